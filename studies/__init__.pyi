"""Names that the package exports, each from its module; they are imported on first access."""

from .registry import MODULES as MODULES
from .registry import STUDIES as STUDIES

__version__: str

"""Names that the package exports, each from its module; they are imported on first access."""

from .own_methods import Intervals as Intervals
from .own_methods import OwnMethod as OwnMethod
from .registry import MODULES as MODULES
from .registry import STUDIES as STUDIES

__version__: str

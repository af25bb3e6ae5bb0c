"""Studies of papers and of the pipeline's stopping rules, with claims and figures, and the command that runs them.

A study is one file that declares ``STUDY``. Packages, this one included, register their studies as entry points of the
group ``dpstudies.studies``, each under the study's name, which then names it on the command line and in `pipeline.run`.
`MODULES` maps all names to ``module:object``, and `STUDIES` to studies, which are imported on access.
"""

import os
import sys
from importlib.util import find_spec

from lazy_loader import attach_stub

_file = getattr(find_spec("pipeline"), "origin", None)
if _file is not None and not os.path.isfile(os.path.join(os.path.dirname(_file), "py.typed")):
    raise ImportError(f"{_file} hides the package pipeline of dpstudies; rename it, or run elsewhere")
_import_name, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Return an exported name, which is imported on first access."""
    if name == "__version__":
        from importlib.metadata import version

        return version("dpstudies")
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    return _import_name(name)

"""Distributed batch pipeline for simulation studies: plan, run, store, aggregate.

The pipeline does not depend on particular statistics or studies. Declare a study with `Study`, `Panel`, `Factor`,
`Method` and `Measure`. `run` computes it on a Dask cluster, or on Dask's current client, into a Zarr store,
`open_results` opens the store with xarray, and `summarise` reduces it.

``dir(pipeline)`` lists all names that this package exports. They are listed in ``__init__.pyi`` and imported on first
access, since xarray, Zarr and Dask take seconds to import.
"""

import sys

from lazy_loader import attach_stub

_SUCCESSORS = {"Stored": "Look", "critical": "Look.critical", "error_level": "Look.level"}
_import_name, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Return an exported name, which is imported on first access."""
    if name == "__version__":
        from importlib.metadata import version

        return version("dpstudies")
    if name not in __all__:
        successor = f"; use {_SUCCESSORS[name]}" if name in _SUCCESSORS else ""
        message = f"module {__name__!r} has no attribute {name!r}{successor}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    return _import_name(name)

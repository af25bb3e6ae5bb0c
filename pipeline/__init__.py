"""Distributed batch pipeline for simulation studies: plan, run, store, aggregate.

The pipeline does not depend on particular statistics or studies. Declare a study with `Study`, `Panel`, `Factor`,
`Method` and `Measure`. `run` computes it on a Dask cluster, or on Dask's current client, into a Zarr store,
`open_results` opens the store with xarray, and `summarise` reduces it.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pipeline.blocks.evaluate import Status
from pipeline.declare.claims import (
    Claim,
    Erratum,
    Finding,
    Stored,
    claim,
    claims_in,
    critical,
    error_level,
    two_sided_level,
    verdict,
)
from pipeline.declare.factors import Factor, Measure, Method, Statistic
from pipeline.declare.panel import Panel
from pipeline.declare.streams import Streams
from pipeline.declare.study import Figure, Scale, Study
from pipeline.errors import BadInputError

if TYPE_CHECKING:
    from pipeline.aggregate import summarise
    from pipeline.interchange import to_arviz, to_pandas
    from pipeline.runs import extend, resume, run
    from pipeline.stores.copies import compact, merge
    from pipeline.stores.results import open_results
    from pipeline.submission import cancel, submit

_ON_ACCESS = {
    "aggregate": ("summarise",),
    "interchange": ("to_arviz", "to_pandas"),
    "runs": ("extend", "resume", "run"),
    "stores.copies": ("compact", "merge"),
    "stores.results": ("open_results",),
    "submission": ("cancel", "submit"),
}
"""Module -> functions imported on first access, since xarray, Zarr and Dask take seconds to import."""

__version__ = version("dpstudies")
__all__ = [
    "BadInputError", "Claim", "Erratum", "Factor", "Figure", "Finding", "Measure", "Method", "Panel", "Scale",
    "Statistic", "Status", "Stored", "Streams", "Study", "cancel", "claim", "claims_in", "compact", "critical",
    "error_level", "extend", "merge", "open_results", "resume", "run", "submit", "summarise", "to_arviz", "to_pandas",
    "two_sided_level", "verdict",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _ON_ACCESS.items():
        if name in names:
            return getattr(import_module(f"pipeline.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

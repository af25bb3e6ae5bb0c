"""Distributed batch pipeline for simulation studies: plan, run, store, aggregate.

Knows no statistics and no study. A study is declared with `Study`, `Panel`, `Factor`, `Method` and `Measure`; `run`
computes it on a Dask cluster into a Zarr store; `open_results` opens the store in xarray, and `summarise` reduces it.
"""

from pipeline.aggregate import summarise
from pipeline.errors import BadInputError
from pipeline.evaluate import Status
from pipeline.factors import Factor, Measure, Method, Statistic
from pipeline.interchange import to_arviz, to_pandas
from pipeline.panel import Panel
from pipeline.run import extend, resume, run, submit
from pipeline.store import open_results
from pipeline.streams import Streams
from pipeline.study import Claim, Figure, Finding, Study

__all__ = [
    "BadInputError",
    "Claim",
    "Factor",
    "Figure",
    "Finding",
    "Measure",
    "Method",
    "Panel",
    "Statistic",
    "Status",
    "Streams",
    "Study",
    "extend",
    "open_results",
    "resume",
    "run",
    "submit",
    "summarise",
    "to_arviz",
    "to_pandas",
]

"""Distributed batch pipeline for simulation studies: plan, run, store, aggregate.

The pipeline does not depend on particular statistics or studies. Declare a study with `Study`, `Panel`, `Factor`,
`Method` and `Measure`. `run` computes it on a Dask cluster into a Zarr store, `open_results` opens the store with
xarray, and `summarise` reduces it.
"""

from pipeline.aggregate import summarise
from pipeline.blocks.evaluate import Status
from pipeline.declare.claims import Claim, Erratum, Finding, claim, verdict
from pipeline.declare.factors import Factor, Measure, Method, Statistic
from pipeline.declare.panel import Panel
from pipeline.declare.streams import Streams
from pipeline.declare.study import Figure, Study
from pipeline.errors import BadInputError
from pipeline.interchange import to_arviz, to_pandas
from pipeline.run import extend, resume, run, submit
from pipeline.stores.results import open_results
from pipeline.submission import cancel

__all__ = [
    "BadInputError",
    "Claim",
    "Erratum",
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
    "cancel",
    "claim",
    "extend",
    "open_results",
    "resume",
    "run",
    "submit",
    "summarise",
    "to_arviz",
    "to_pandas",
    "verdict",
]

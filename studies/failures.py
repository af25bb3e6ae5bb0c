"""Failed trials of a store, grouped by cause, with the commands that recompute the first trial of each group."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline import Status
from pipeline.blocks.evaluate import FAILURES
from pipeline.declare.factors import format_value
from pipeline.errors import command
from pipeline.store.codec.error_texts import cause_of, without_rerun
from pipeline.store.datasets import open_panel
from pipeline.store.result_store import ResultStore

_TRIALS_AT_ONCE = 10_000  # maximum number of trials read at once


@dataclass(frozen=True)
class Failure:
    """Failed trials of one cell and one setting that have the same cause."""

    panel: str
    where: str  # cell and setting
    cell: tuple[str, ...]  # data factors, as ``name=value``
    kind: str  # failed, timed out, or killed
    count: int  # failed trials
    first: int  # index of the first
    cause: str  # on one line
    error: str  # of the first trial: cause, and traceback after an exception

    def rerun(self, store: str) -> str:
        """Return the shell command that recomputes the first trial.

        The command is built from the store's coordinates, because a stored text could contain an arbitrary command.
        """
        cells = (word for value in self.cell for word in ("--cell", value))
        return command("trial", store, "--panel", self.panel, *cells, "--trial", self.first)


def find_causes(store: ResultStore) -> list[list[Failure]]:
    """Group the failures of a store by panel, kind and error, except for its numbers; the most frequent come first."""
    grouped: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in _failures(store):
        words = re.sub(r"\d[\d.,e+-]*", "#", failure.cause)
        grouped.setdefault((failure.panel, failure.kind, words), []).append(failure)
    return sorted(grouped.values(), key=lambda failures: -sum(failure.count for failure in failures))


def _failures(store: ResultStore) -> Iterator[Failure]:
    """Yield the failures of a store, panel by panel and cell by cell."""
    panels = store.spec["panels"]
    for name in panels:
        ds = open_panel(store, name, lazy=True)[["status", "error"]]
        failed = ds["status"].isin(list(FAILURES)).compute()
        dims = [dim for dim in failed.dims if dim != "trial"]
        for place in np.argwhere((failed.any("trial") if "trial" in failed.dims else failed).values):
            at = dict(zip(dims, place.tolist(), strict=True))
            values = {dim: f"{dim}={format_value(ds[dim].values.tolist()[k])}" for dim, k in at.items()}
            where, cell = ", ".join(values.values()), tuple(values[factor] for factor in panels[name]["factors"])
            here = ds.isel(at)
            here = here if "trial" in here.dims else here.expand_dims("trial")
            causes: dict[tuple[int, str], tuple[int, int, str]] = {}  # number, first trial and its error by cause
            for start in range(0, here.sizes["trial"], _TRIALS_AT_ONCE):
                part = here.isel(trial=slice(start, start + _TRIALS_AT_ONCE)).compute()
                kinds, errors = part["status"].values, part["error"].values
                for k in np.flatnonzero(np.isin(kinds, FAILURES)).tolist():
                    error = str(errors[k])
                    cause = int(kinds[k]), cause_of(error)
                    n, trial, first = causes.get(cause, (0, start + k, without_rerun(error)))
                    causes[cause] = n + 1, trial, first
            for (kind, reason), (n, trial, error) in causes.items():
                yield Failure(name, where, cell, Status(kind).words, n, trial, reason, error)

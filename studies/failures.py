"""The failures of a store by their cause: what happened, how often, where first, and what computes it again."""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline import Status, open_results
from pipeline.blocks.evaluate import FAILURES
from pipeline.declare.factors import format_value
from pipeline.stores.store import ResultStore

_SAME_CAUSE = "same cause as the first trial of its block"  # stored by version 0.1.0 in place of an equal traceback


@dataclass(frozen=True)
class Failure:
    """The failed trials of one setting in one cell that have one cause.

    Attributes
    ----------
    panel, where : str
        Panel; cell and setting.
    cell : tuple of str
        Its data factors, as ``name=value``.
    kind : str
        Failed, timed out, or killed.
    count, first : int
        How many trials there are, and the first.
    error : str
        Text stored with the first: why it failed.
    """

    panel: str
    where: str
    cell: tuple[str, ...]
    kind: str
    count: int
    first: int
    error: str

    def rerun(self, store: str) -> str:
        """Return the command that computes the first trial again, for a shell.

        It is made of the store's coordinates, since a stored text may hold any other command.
        """
        cells = (word for value in self.cell for word in ("--cell", value))
        return shlex.join(["dpstudies", "trial", store, "--panel", self.panel, *cells, "--trial", str(self.first)])


@dataclass(frozen=True)
class Cause:
    """Failures of one panel that say the same, but for numbers in it.

    Attributes
    ----------
    failures : tuple of Failure
        One for each cell and setting, the first ones first.
    """

    failures: tuple[Failure, ...]

    @property
    def count(self) -> int:
        """How many trials there are."""
        return sum(failure.count for failure in self.failures)


def find_causes(store: str | os.PathLike[str]) -> list[Cause]:
    """Group the failures of a store by panel, kind and cause, the most frequent first.

    Parameters
    ----------
    store : path
        A store.

    Returns
    -------
    list of Cause
    """
    grouped: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in find_failures(store):
        words = re.sub(r"\d[\d.,e+-]*", "#", last_line(failure.error))
        grouped.setdefault((failure.panel, failure.kind, words), []).append(failure)
    return sorted((Cause(tuple(failures)) for failures in grouped.values()), key=lambda cause: -cause.count)


def find_failures(store: str | os.PathLike[str]) -> Iterator[Failure]:
    """Yield the failures of a store, panel by panel and cell by cell.

    Parameters
    ----------
    store : path
        A store.

    Yields
    ------
    Failure
    """
    panels = ResultStore.open(store).spec["panels"]
    for name, group in open_results(store).children.items():
        ds = group.to_dataset()[["status", "error"]]
        failed = ds["status"].isin(list(FAILURES)).compute()
        dims = [dim for dim in failed.dims if dim != "trial"]
        for place in np.argwhere((failed.any("trial") if "trial" in failed.dims else failed).values):
            at = dict(zip(dims, place.tolist(), strict=True))
            values = {dim: f"{dim}={format_value(ds[dim].values.tolist()[k])}" for dim, k in at.items()}
            cell = tuple(values[factor] for factor in panels[name]["factors"])
            here = ds.isel(at).compute()
            kinds, errors = np.atleast_1d(here["status"].values), np.atleast_1d(here["error"].values)
            found: dict[tuple[int, str], list[int]] = {}
            cause = ""
            for trial in np.flatnonzero(np.atleast_1d(failed.isel(at).values)).tolist():
                said = last_line(str(errors[trial]))
                cause = cause if said == _SAME_CAUSE else said
                found.setdefault((int(kinds[trial]), cause), []).append(trial)
            for (kind, _), trials in found.items():
                word = Status(kind).name.lower().replace("_", " ")
                where, reason = ", ".join(values.values()), without_rerun(str(errors[trials[0]]))
                yield Failure(str(name), where, cell, word, len(trials), trials[0], reason)


def last_line(error: str) -> str:
    r"""Return the line of a stored error that says why the trial failed; empty if there is none.

    Examples
    --------
    >>> last_line("Traceback ...\nValueError: no\nagain: dpstudies trial STORE --panel p --trial 0")
    'ValueError: no'
    """
    lines = without_rerun(error).splitlines()
    return lines[-1] if lines else ""


def without_rerun(error: str) -> str:
    """Return a stored error without the line that computes its trial again."""
    return "\n".join(line for line in error.splitlines() if not line.startswith("again: "))

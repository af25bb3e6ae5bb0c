"""The failures of a store by their cause: what happened, how often, where first, and what computes it again."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline import Status, open_results
from pipeline.blocks.evaluate import FAILURES
from pipeline.declare.factors import format_value

_SAME_CAUSE = "same cause as the first trial of its block"  # stored by version 0.1.0 in place of an equal traceback


@dataclass(frozen=True)
class Failure:
    """The failed trials of one setting in one cell that have one cause.

    Attributes
    ----------
    panel, where : str
        Panel; cell and setting.
    kind : str
        Failed, timed out, or killed.
    count, first : int
        How many trials there are, and the first.
    error : str
        What is stored with the first: why it failed, and in the last line what computes it again.
    """

    panel: str
    where: str
    kind: str
    count: int
    first: int
    error: str


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
    for name, group in open_results(store).children.items():
        ds = group.to_dataset()[["status", "error"]]
        failed = ds["status"].isin(list(FAILURES)).compute()
        dims = [dim for dim in failed.dims if dim != "trial"]
        for place in np.argwhere((failed.any("trial") if "trial" in failed.dims else failed).values):
            at = dict(zip(dims, place.tolist(), strict=True))
            where = ", ".join(f"{dim}={format_value(ds[dim].values.tolist()[k])}" for dim, k in at.items())
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
                yield Failure(str(name), where, word, len(trials), trials[0], str(errors[trials[0]]))


def last_line(error: str) -> str:
    r"""Return the line of a stored error that says what went wrong.

    Examples
    --------
    >>> last_line("Traceback ...\nValueError: no\nagain: dpstudies trial STORE --panel p --trial 0")
    'ValueError: no'
    """
    lines = [line for line in error.splitlines() if not line.startswith("again: ")]
    return lines[-1] if lines else ""

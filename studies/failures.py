"""The failures of a store: which settings failed in which cells, how often, and why."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline import Status, open_results
from pipeline.evaluate import FAILURES
from pipeline.factors import format_value


@dataclass(frozen=True)
class Failure:
    """The failed trials of one setting in one cell.

    Attributes
    ----------
    where : str
        Panel, cell and setting.
    kind : str
        What became of the first of them: failed, timed out, or killed.
    count, first : int
        How many there are, and the first.
    error : str
        What is stored with the first: why it failed, and in the last line what computes it again.
    """

    where: str
    kind: str
    count: int
    first: int
    error: str


def find_failures(store: str | os.PathLike[str]) -> Iterator[Failure]:
    """Yield the failures of a store, panel by panel.

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
            labels = [f"{dim}={format_value(ds[dim].values.tolist()[k])}" for dim, k in at.items()]
            first = int(failed.isel(at).values.argmax())
            one = ds.isel({**at, "trial": first} if "trial" in ds.dims else at).compute()
            kind = Status(int(one["status"].item())).name.lower().replace("_", " ")
            count = int(failed.isel(at).sum().item())
            yield Failure(", ".join([str(name), *labels]), kind, count, first, str(one["error"].item()))


def last_line(error: str) -> str:
    r"""Return the line of a stored error that says what went wrong.

    Examples
    --------
    >>> last_line("Traceback ...\nValueError: no\nagain: dpstudies trial STORE --panel p --trial 0")
    'ValueError: no'
    """
    lines = [line for line in error.splitlines() if not line.startswith("again: ")]
    return lines[-1] if lines else ""

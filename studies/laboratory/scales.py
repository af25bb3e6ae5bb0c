"""All studies in one folder, at published or quick scale.

A folder contains one store per study, ``<study>.zarr``. The quick scale has fewer trials and coarser grids: the same
page takes two to three minutes and has larger errors.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline import BadInputError, Study
from pipeline.declare.study import differences
from pipeline.errors import unknown
from pipeline.stores.locations import holds_root
from pipeline.stores.store import ResultStore
from studies import STUDIES


@dataclass(frozen=True)
class Scale:
    """Subset of a study's published scale; see `pipeline.Study.configure`."""

    trials: int | None = None
    panels: tuple[str, ...] = ()
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


QUICK = {
    "hellinger-accuracy": Scale(1_000, values={"n": (100, 500)}),
    "hellinger-limits": Scale(values={"n": (3, 5, 8)}),
    "privacy-audit": Scale(values={"n": (2, 10), "epsilon": (1.0,)}),
    "calibration": Scale(10),
    "renyi-utility": Scale(300),
    "renyi-logistic": Scale(10, ("abalone", "adult"), {"order": (10.0,), "epsilon": (math.exp(-5), math.exp(1))}),
    "renyi-audit": Scale(values={"dimension": (1,), "beta": (1e-3, 10.0), "epsilon": (1.0,), "order": (1.0, 2.0)}),
    "partition-probability": Scale(200),
    "partition-quantile": Scale(100),
}
SCALES: dict[str, Mapping[str, Scale]] = {"published": {}, "quick": QUICK}


def configure(name: str, scale: str = "published", seed: int | None = None) -> dict[str, Any]:
    """Return the arguments of `pipeline.run` that give a study its scale.

    Parameters
    ----------
    name : str
        A study of `studies.STUDIES`.
    scale : str
        ``published`` or ``quick``.
    seed : int, optional
        Seed of all streams; the study's own by default.

    Raises
    ------
    BadInputError
        If the scale is unknown.

    Examples
    --------
    >>> configure("gibbs-traces", seed=7)
    {'trials': None, 'seed': 7, 'panels': (), 'values': {}}
    """
    if scale not in SCALES:
        raise BadInputError(unknown("scale", scale, SCALES))
    kept = SCALES[scale].get(name, Scale())
    return {"trials": kept.trials, "seed": seed, "panels": kept.panels, "values": dict(kept.values)}


def store_path(folder: str | os.PathLike[str], name: str) -> str:
    """Return the path of a study's store in a folder, or in an object store given by its URL.

    Examples
    --------
    >>> store_path("lab/", "calibration")
    'lab/calibration.zarr'
    """
    return f"{os.fspath(folder).rstrip('/')}/{name}.zarr"


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder with the store of a study, and not a store itself.

    Examples
    --------
    >>> is_folder("lab")
    False
    """
    return not holds_root(path) and any(holds_root(store_path(path, name)) for name in STUDIES)


def require_folder(folder: str | os.PathLike[str], scale: str, seed: int | None) -> None:
    """Raise an error if a folder cannot contain the stores of all studies at this scale.

    Parameters
    ----------
    folder : path
        Existing or new folder.
    scale, seed
        See `configure`.

    Raises
    ------
    BadInputError
        If it is a file or a store, cannot be written, or contains a store of a different spec; nothing is written.
    """
    configured: dict[str, Study] = {
        name: study.configure(**configure(name, scale, seed)) for name, study in STUDIES.items()
    }
    if holds_root(folder):
        raise BadInputError(f"--store must be a folder for the stores of all studies, got the store {folder}")
    for name, study in configured.items():
        path = store_path(folder, name)
        if ResultStore.exists(path):
            found = differences(ResultStore.open(path).spec, study.spec())
            if found:
                raise BadInputError(
                    f"the store {path} was created with a different spec, scale or code version ({found[0]}); "
                    "choose another --store folder, or use the original scale and code"
                )

"""Folders of all studies, at published or quick scale.

A folder contains one store per study, ``<study>.zarr``. The quick scale is declared by each study: it has fewer trials
and coarser grids, so that the same page takes minutes and has larger errors.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline import BadInputError, Scale, Study
from pipeline.declare.study import differences
from pipeline.errors import unknown
from pipeline.store.files.locations import holds_root, is_local, normalise_location
from pipeline.store.result_store import ResultStore
from studies import MODULES, STUDIES

SCALES = ("published", "quick")

COSTS = Path(__file__).with_name("costs.json")
"""File with seconds per evaluation by scale, study and panel, as ``tests/benchmarks/bench_costs.py`` measured them."""


def read_costs(scale: str) -> dict[str, dict[str, float]]:
    """Return seconds per evaluation by study and panel at a scale, of those studies that have some."""
    costs: dict[str, dict[str, float]] = json.loads(COSTS.read_text()).get(scale, {})
    return costs


def configure(study: Study, scale: str = "published", seed: int | None = None) -> dict[str, Any]:
    """Return the arguments with which `pipeline.run` runs a study at a scale."""
    if scale not in SCALES:
        raise BadInputError(unknown("scale", scale, SCALES))
    kept = part_at(study, scale)
    return {"trials": kept.trials, "seed": seed, "panels": kept.panels, "values": dict(kept.values)}


def part_at(study: Study, scale: str) -> Scale:
    """Return the part of a study at a scale, without panels and axes that a copy of the study has removed."""
    if scale != "quick":
        return Scale()
    panels = {panel.name: panel for panel in study.panels}
    axes = {axis for panel in study.panels for axis in panel.settable()}

    def stored(by_panel: Any) -> Any:
        """Return values by panel for the panels of the study, and others as they are."""
        return (
            {name: by_panel[name] for name in by_panel if name in panels} if isinstance(by_panel, Mapping) else by_panel
        )

    values = {axis: stored(given) for axis, given in study.quick.values.items() if axis in axes}
    names = tuple(name for name in study.quick.panels if name in panels)
    return Scale(stored(study.quick.trials) or None, names, {axis: given for axis, given in values.items() if given})


def store_path(folder: str | os.PathLike[str], name: str) -> str:
    """Return the path of a study's store in a folder, or in an object store given by its URL."""
    return f"{os.fspath(folder).rstrip('/')}/{name}.zarr"


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return True if a path is a folder that contains the store of a study, and is not a store itself."""
    return not holds_root(path) and any(holds_root(store_path(path, name)) for name in MODULES)


def other_stores(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of the stores in a local folder that are not named after a built-in study."""
    known = {f"{name}.zarr" for name in MODULES}
    paths = sorted(Path(folder).glob("*.zarr")) if is_local(normalise_location(folder)) else []
    return [path for path in paths if path.name not in known]


def require_folder(folder: str | os.PathLike[str], scale: str, seed: int | None) -> dict[str, Study]:
    """Return all studies at a scale; raise an error if a folder cannot contain their stores."""
    configured = {name: study.configure(**configure(study, scale, seed)) for name, study in STUDIES.items()}
    if holds_root(folder):
        raise BadInputError(f"--store must be a folder for the stores of all studies, got the store {folder}")
    for name, study in configured.items():
        path = store_path(folder, name)
        if ResultStore.exists(path):
            differing = differences(ResultStore.open(path).spec, study.spec())
            if differing:
                raise BadInputError(
                    f"the store {path} was created with a different spec, scale or code version ({differing[0]}); "
                    "choose another --store folder, or use the original scale and code"
                )
    return configured

"""Summaries of the reference methods that the package contains, one file per study, so that no run computes them again.

Losses of first trials are also shipped, for comparisons by trial, but only of panels in which such a comparison has a
smaller error than one with the mean over all trials: where losses rise and fall with the simulated data.

``python -m studies.benchmark.shipped FOLDER`` writes them again, from the stores of a folder of
``dpstudies run all --store FOLDER``. Those of `regression-inference`, which takes hours, have the panels and cells of
its quick scale, with the trials of the published one.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pipeline import BadInputError, Study
from pipeline.declare.study import differences
from pipeline.store.datasets import open_panel
from pipeline.store.result_store import ResultStore, open_complete
from studies import STUDIES, __version__
from studies.benchmark.compared_panel import ComparedPanel, panel_of
from studies.benchmark.losses import compare_losses
from studies.benchmark.method_summary import MethodSummary
from studies.benchmark.results import best_references, judge_references
from studies.folders import store_path
from studies.output import fail, format_size, say

FOLDER = Path(__file__).with_name("references")
_N_PAIRED = 300  # trials of which losses are shipped, so that all files have about 1 MB


@dataclass(frozen=True)
class ShippedReferences:
    """Summaries of the reference methods of a study in the cells of its panels."""

    spec: Mapping[str, Any]  # of the store: what determines data and measures, methods, factors and trials
    panels: Mapping[str, "ShippedPanel"]

    def add_to(self, panel: ComparedPanel) -> ComparedPanel:
        """Return a panel with all methods, in those cells that it has."""
        shipped = self.panels[panel.panel.name]
        values = {dim: coordinate.values.tolist() for dim, coordinate in panel.coordinates.items()}
        cells = shipped.cells.sel(values).values.ravel().tolist()
        own = panel.summaries[panel.own].with_first_trials(shipped.n_paired)
        n_own = {measure: trials.shape[-1] for measure, trials in own.trials.items()}
        summaries = {
            name: summary.select(cells).with_first_trials(n_own) for name, summary in shipped.summaries.items()
        }
        limited = replace(panel, summaries={panel.own: own}, most_paired=shipped.n_paired)
        return limited.with_summaries(summaries, shipped.attributes)

    def without_trials(self) -> "ShippedReferences":
        """Return the summaries without the trials, for data of another seed."""
        return replace(self, panels={name: panel.without_trials() for name, panel in self.panels.items()})

    def describe(self, panels: Sequence[str]) -> str:
        """Return the origin of the numbers of some panels."""
        stated = {name: self._describe_trials(name) for name in panels}
        by_panel = "; ".join(f"{name}: {text}" for name, text in stated.items())
        text = stated[panels[0]] if len({*stated.values()}) == 1 else by_panel
        return f"shipped with dpstudies {__version__} ({text})"

    def _describe_trials(self, panel: str) -> str:
        paired = [f"{measure} of the first {n:,} paired" for measure, n in self.panels[panel].n_paired.items()]
        return f"{self.spec['panels'][panel]['trials']:,} trials per cell, {', '.join(paired) or 'not paired'}"


@dataclass(frozen=True)
class ShippedPanel:
    """Summaries of methods by name."""

    cells: xr.DataArray  # their indices in the summaries, by the values of the factors
    attributes: Mapping[str, str]  # of the dimension of the methods
    summaries: Mapping[str, MethodSummary]

    @property
    def n_paired(self) -> dict[str, int]:
        """Numbers of first trials that are shipped, by measure."""
        return {
            measure: trials.shape[-1]
            for summary in self.summaries.values()
            for measure, trials in summary.trials.items()
        }

    def without_trials(self) -> "ShippedPanel":
        """Return the summaries without the trials."""
        return replace(self, summaries={name: replace(kept, trials={}) for name, kept in self.summaries.items()})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ShippedPanel":
        """Return the panel of JSON values; raise KeyError, TypeError or ValueError for other ones."""
        shape = [len(values) for _, values in value["coordinates"]]
        n_cells = int(np.prod(shape, dtype=int))
        cells = xr.DataArray(np.arange(n_cells).reshape(shape), [*map(tuple, value["coordinates"])])
        summaries = {name: MethodSummary.from_json(method, n_cells) for name, method in value["methods"]}
        return cls(cells, dict(value["attributes"]), summaries)


def read_shipped(study: str) -> ShippedReferences | None:
    """Return the shipped references of a study, None without a file; raise BadInputError if it is damaged."""
    path = FOLDER / f"{study}.json.gz"
    if not path.exists():
        return None
    try:
        value = json.loads(gzip.decompress(path.read_bytes()))
        panels = {name: ShippedPanel.from_json(panel) for name, panel in value["panels"].items()}
        parts = value["spec"]["panels"]
        if (
            "criteria" not in value["spec"]
            or set(parts) != set(panels)
            or not all(isinstance(part["trials"], int) for part in parts.values())
        ):
            raise ValueError("the spec is not that of the panels")
        return ShippedReferences(value["spec"], panels)
    except (OSError, EOFError, zlib.error, ValueError, TypeError, LookupError, AttributeError) as error:
        raise BadInputError(
            f"the shipped references {path} must be readable, got {type(error).__name__}; install dpstudies again, or "
            "compute them with --recompute"
        ) from error


def data_of(spec: Mapping[str, Any], panels: Collection[str]) -> dict[str, Any]:
    """Return the part of a spec that determines simulated data and measures, for factors of any values."""
    kept = ("version", "dims", "outputs", "constants", "measures")
    parts = {name: {key: spec["panels"][name][key] for key in kept} for name in panels}
    return {**{key: spec[key] for key in ("study", "version", "seed")}, "panels": parts}


def references_of(spec: Mapping[str, Any], panels: Collection[str]) -> dict[str, Any]:
    """Return that part of a spec with the methods that no user added."""
    part = data_of(spec, panels)
    for name in panels:
        methods = spec["panels"][name]["methods"]
        part["panels"][name]["methods"] = {key: value for key, value in methods.items() if "code" not in value}
    return part


def criteria_of(study: Study) -> dict[str, Any]:
    """Return the criteria of a study, which no store has, as JSON values."""
    criteria: dict[str, Any] = json.loads(json.dumps(asdict(study.criteria)))
    return criteria


def outdated(spec: Mapping[str, Any], study: Study) -> str:
    """Return the first difference between a shipped spec and a study, except for factors and trials, or ""."""
    present, names = study.spec(), spec["panels"].keys() & {panel.name for panel in study.panels}
    absent = [f"panel {name} is absent" for name in spec["panels"] if name not in names]
    criteria = differences(spec["criteria"], criteria_of(study), "criteria")
    return next(iter([*absent, *criteria, *differences(references_of(spec, names), references_of(present, names))]), "")


def summarise(store: ResultStore, study: Study) -> dict[str, Any]:
    """Return the JSON values of the references of a store; raise BadInputError if trials are pending or outdated."""
    names = [panel.name for panel in study.panels if panel.accepts and panel.name in store.spec["panels"]]
    spec = {**references_of(store.spec, names), "criteria": criteria_of(study)}
    for name in names:
        spec["panels"][name] |= {
            role: store.spec["panels"][name][role] for role in ("factors", "method_factors", "trials")
        }
    reason = outdated(spec, study)
    if reason:
        raise BadInputError(f"the store {store.url} must have the present spec, got {reason}; run the study again")
    panels: list[ComparedPanel] = []
    for name in names:
        ds = open_panel(store, name, lazy=False)
        by = study.panel(name).method_dim
        ds = ds.sel({by: [method for method in ds[by].values.tolist() if method in spec["panels"][name]["methods"]]})
        panel = panel_of(study.name, study.panel(name), study.criteria, ds).with_methods(ds)
        if any(summary.counts["pending"].any() for summary in panel.summaries.values()):
            raise BadInputError(f"the store {store.url} must be complete, got pending trials in {name}; resume it")
        panels.append(panel)
    families = judge_references(panels)
    return {
        "spec": spec,
        "panels": {panel.panel.name: _to_json(panel, best_references(panel, families)) for panel in panels},
    }


def _to_json(panel: ComparedPanel, best: Sequence[str | None]) -> dict[str, Any]:
    """Return the JSON values of a panel, given the best reference of each cell."""
    paired = [measure for measure in (panel.loss, panel.width) if measure and _is_paired(panel, measure, best)]
    return {
        "coordinates": [[dim, values.values.tolist()] for dim, values in panel.coordinates.items()],
        "attributes": {key: value for key, value in panel.attributes.items() if key != "notes"},  # nothing shows them
        "methods": [[method, summary.to_json(paired, _N_PAIRED)] for method, summary in panel.summaries.items()],
    }


def _is_paired(panel: ComparedPanel, measure: str, best: Sequence[str | None]) -> bool:
    """Return True if errors are smaller paired with the best method than with its exact means, as a geometric mean."""
    by_cell = {name: summary.in_cells(measure) for name, summary in panel.summaries.items()}
    ratios = []
    for name, losses in by_cell.items():
        bases = [by_cell[base][cell] if base and base != name else None for cell, base in enumerate(best)]
        means = [base and replace(base, error=np.zeros_like(base.error), trials=None) for base in bases]
        paired, unpaired = (compare_losses(losses, sides, panel.data_groups).mean_error for sides in (bases, means))
        if paired > 0.0 and unpaired > 0.0:  # NaN without a cell to compare, 0 for a constant measure
            ratios.append(paired / unpaired)
    return bool(ratios) and float(np.log(ratios).mean()) < 0.0


def write_shipped(folder: str) -> tuple[dict[str, Path], dict[str, str]]:
    """Write the references of all stores of a folder; return files by study, and why others have none."""
    written, omitted = {}, {}
    for name in (name for name in STUDIES if any(panel.accepts for panel in STUDIES[name].panels)):
        path = store_path(folder, name)
        if not ResultStore.exists(path):
            omitted[name] = f"there is no store {path}"
            continue
        try:
            value = summarise(open_complete(path), STUDIES[name])
        except BadInputError as error:
            omitted[name] = str(error)
            continue
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
        written[name] = FOLDER / f"{name}.json.gz"
        FOLDER.mkdir(exist_ok=True)
        written[name].write_bytes(gzip.compress(text.encode(), mtime=0))
    return written, omitted


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        return fail("usage: python -m studies.benchmark.shipped FOLDER", 2)
    written, omitted = write_shipped(arguments[0])
    for name, path in written.items():
        say(f"{name}: wrote {path}, {format_size(path.stat().st_size)}")
    for name, reason in omitted.items():
        say(f"{name}: nothing written, {reason}")
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

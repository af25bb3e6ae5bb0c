"""Plans of a benchmark's runs, one per study, and the stores of reference results that they are compared with."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pipeline import BadInputError, Panel, Scale, Study
from pipeline.clusters.profiles import load_profile
from pipeline.declare.factors import format_value
from pipeline.declare.method_files import MethodFile, read_records
from pipeline.declare.panel import AddedMethod
from pipeline.declare.source import find_study
from pipeline.declare.study import differences
from pipeline.errors import command, unknown
from pipeline.runs.run_plan import RunOptions, RunPlan, plan_run
from pipeline.store.files.locations import holds_root, is_local, normalise_location
from pipeline.store.result_store import ResultStore, open_complete
from studies import MODULES, STUDIES
from studies.benchmark.compared_panel import panel_of
from studies.benchmark.shipped import ShippedReferences, criteria_of, data_of, read_shipped, references_of
from studies.benchmark.uniformity import LARGE_DEVIATION, count_tests, trials_to_detect
from studies.folders import part_at, store_path

BenchmarkScale = Literal["quick", "full"]


@dataclass(frozen=True)
class OmittedPanel:
    """Panel that accepts a method, but is not part of its benchmark."""

    study: str
    panel: str
    reason: str


@dataclass(frozen=True)
class BenchmarkRun:
    """Run of one study with the own method; `reference` has the other methods, unless the run computes them."""

    name: str
    own: str
    plan: RunPlan
    declared: Study  # with all methods
    reference: ResultStore | ShippedReferences | None
    not_shipped: str = ""  # why the run computes the other methods though it was not asked to

    @property
    def path(self) -> str:
        """Path of the store."""
        return os.fspath(self.plan.path)

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """Panels of the run, with all methods of the study."""
        return tuple(
            replace(panel, methods=self.declared.panel(panel.name).methods) for panel in self.plan.study.panels
        )


def plan_benchmark(
    file: MethodFile,
    folder: str,
    scale: BenchmarkScale,
    reference: str | None = None,
    studies: Collection[str] = (),
    trials: int | None = None,
    seed: int | None = None,
    recompute: bool = False,
    allow_failures: bool = False,
    time_limit: float | None = None,
) -> tuple[list[BenchmarkRun], list[OmittedPanel]]:
    """Return the runs of a method in all studies, or in named ones, that accept its kind; nothing is written.

    Other methods are read from the stores of the folder `reference`, or from the shipped references. They are computed
    if `recompute` is true, and in studies whose shipped references do not fit. With another `seed`, shipped references
    are not paired. Where they are read, and unless `trials` is given, the own method has as many trials as decide on
    its calibration in each cell, but at most those of the references and of the full scale.

    Return also the panels of these studies that accept the kind and are omitted.
    """
    if not is_local(normalise_location(folder)) or holds_root(folder):
        raise BadInputError(
            f"--store must be a local folder for stores and a page, got {folder}; choose another folder"
        )
    if recompute and reference is not None:
        raise BadInputError("--recompute cannot be combined with --reference; omit one of them")
    own = file.load()
    accepting = [name for name in STUDIES if own.kind in _kinds(STUDIES[name])]
    if not accepting:
        kinds = sorted({kind for name in STUDIES for kind in _kinds(STUDIES[name])})
        raise BadInputError(f"a method must be of kind {', '.join(kinds)}, got {own.name} of kind {own.kind!r}")
    for name in studies:
        if name not in accepting:
            raise BadInputError(unknown(f"study that accepts methods of kind {own.kind}", name, accepting))
    if reference is not None:
        _require_references(reference, folder, accepting)
    # of all studies, so that numbers of trials do not depend on the chosen ones
    n_tests = {name: _count_tests(STUDIES[name], own, scale) for name in accepting}
    needed = trials_to_detect(LARGE_DEVIATION, max(1, sum(sum(by_panel.values()) for by_panel in n_tests.values())))
    runs: list[BenchmarkRun] = []
    omitted: list[OmittedPanel] = []
    chosen = list(dict.fromkeys(studies or accepting))
    for name in chosen:
        kept = [panel.name for panel in _at_scale(STUDIES[name], scale).panels if _supports(panel, own)]
        if kept:
            limits = allow_failures, time_limit
            least = {panel: needed for panel in kept if n_tests[name].get(panel)} if trials is None else {}
            runs.append(_plan(name, file, kept, folder, scale, reference, trials, least, seed, recompute, *limits))
        omitted += _omitted(name, own, kept, scale)
    if not runs:
        raise BadInputError(
            f"{own.name} must support a cell of {' or '.join(chosen)} at {scale} scale, got none; change its "
            "function supports"
        )
    return runs, omitted


def _omitted(name: str, own: AddedMethod, kept: Collection[str], scale: BenchmarkScale) -> Iterator[OmittedPanel]:
    """Yield the panels of a study that accept a method and are not kept, with the reason."""
    at_scale = {panel.name for panel in _at_scale(STUDIES[name], scale).panels}
    for panel in STUDIES[name].panels:
        if own.kind not in panel.accepts or panel.name in kept:
            continue
        if panel.on_demand:
            reason = "computed on demand only"
        elif not _supports(panel, own):
            reason = f"{own.name} supports none of its cells"
        elif panel.name in at_scale:
            reason = f"{own.name} supports none of its cells at {scale} scale"
        else:
            reason = f"not part of the {scale} scale; add --scale full"
        yield OmittedPanel(name, panel.name, reason)


def _kinds(study: Study) -> set[str]:
    return {kind for panel in study.panels for kind in panel.accepts}


def _at_scale(study: Study, scale: BenchmarkScale) -> Study:
    part = part_at(study, scale)
    return study.configure(part.trials, None, part.panels, part.values, check=False)


def _supports(panel: Panel, own: AddedMethod) -> bool:
    """Return True if a panel accepts a method, which supports one of its cells."""
    return own.kind in panel.accepts and bool(_supported(panel, own).any())


def _supported(panel: Panel, own: AddedMethod) -> NDArray[np.bool_]:
    """Return the mask of the cells of a panel that a method of a kind that it accepts supports, shape (cell,)."""
    return np.array(replace(panel, methods=(panel.accepts[own.kind](own),)).applicable.any(axis=1), bool)


def _count_tests(study: Study, own: AddedMethod, scale: BenchmarkScale) -> dict[str, int]:
    """Return the number of tests of a method's calibration in each panel that has some, unless trials fail."""
    exact = [panel for panel in _at_scale(study, scale).panels if panel.name in study.criteria.exact]
    return {
        panel.name: count_tests(
            panel_of(study.name, panel, study.criteria, _coordinates(panel)), _supported(panel, own)
        )
        for panel in exact
        if own.kind in panel.accepts
    }


def _coordinates(panel: Panel) -> xr.Dataset:
    """Return the values of the factors of a panel as in its store, where vectors are text."""
    return xr.Dataset(
        coords={
            factor.name: [format_value(value) if isinstance(value, tuple) else value for value in factor.values]
            for factor in (*panel.factors, *panel.method_factors)
        }
    )


def _plan(
    name: str,
    file: MethodFile,
    panels: Sequence[str],
    folder: str,
    scale: BenchmarkScale,
    reference: str | None,
    trials: int | None,
    least: Mapping[str, int],
    seed: int | None,
    recompute: bool,
    allow_failures: bool,
    time_limit: float | None,
) -> BenchmarkRun:
    """Return the run of a study; if references are read, a panel has the `least` trials as far as they have."""
    _require_method(store_path(folder, name), file, folder)
    source = replace(find_study(name, MODULES), methods=(file,))
    declared, own, part = source.load(), file.load().name, part_at(STUDIES[name], scale)
    values = dict(_values_in(declared, part, panels))
    of_scale = _kept(part.trials, panels) if isinstance(part.trials, Mapping) else part.trials
    options = RunOptions(
        trials=of_scale if trials is None else trials,
        seed=seed,
        panels=tuple(panels),
        values=values,
        cluster=load_profile(None),
        allow_failures=allow_failures,
        time_limit=time_limit,
    )
    configured = declared.configure(options.trials, seed, panels, values, check=False)
    references: ResultStore | ShippedReferences | None = None
    not_shipped = ""
    if reference is not None:
        references = _open_references(store_path(reference, name), configured, declared)
    elif not recompute:
        references, not_shipped = _shipped_references(configured, declared)
    if references is not None:
        for panel in panels:
            dim = declared.panel(panel).method_dim
            assert dim is not None  # panels that accept methods have a dimension of them
            values[dim] = {**values.get(dim, {}), panel: (own,)}
        options = replace(options, trials=_with_more_trials(configured, declared, references, least))
    plan = plan_run(source, store_path(folder, name), replace(options, values=values))
    return BenchmarkRun(name, own, plan, declared, references, not_shipped)


def _with_more_trials(
    study: Study, declared: Study, references: ResultStore | ShippedReferences, least: Mapping[str, int]
) -> dict[str, int]:
    """Return the trials of each panel: `least`, if neither the references nor the full scale have fewer."""
    trials = {panel.name: panel.trials for panel in study.panels if panel.trials is not None}
    for name, needed in least.items():
        most = min(declared.panel(name).n_trials, references.spec["panels"][name]["trials"])
        trials[name] = max(trials[name], min(needed, most))
    return trials


def _require_method(path: str, file: MethodFile, folder: str) -> None:
    """Raise BadInputError if a store has another added method."""
    stored = read_records(ResultStore.open(path).attributes) if ResultStore.exists(path) else []
    names, own = [record["name"] for record in stored], file.load().name
    if names and own not in names:
        raise BadInputError(
            f"--store must be a folder of the benchmark of {own}, got {folder} with that of {', '.join(names)}; choose "
            f"another --store, and for both on one page add --reference {folder} if it was computed with --recompute"
        )


def _shipped_references(study: Study, declared: Study) -> tuple[ShippedReferences | None, str]:
    """Return the shipped references that a study is compared with, or None and why there are none."""
    shipped = read_shipped(study.name)
    if shipped is None:
        return None, "no results are shipped"
    reason = _misfit(shipped.spec, study, declared, is_paired=False)
    if reason:
        return None, f"the shipped results do not fit ({reason})"
    return shipped if shipped.spec["seed"] == study.seed else shipped.without_trials(), ""


def _kept(by_panel: Mapping[str, Any], panels: Collection[str]) -> dict[str, Any]:
    return {panel: value for panel, value in by_panel.items() if panel in panels}


def _values_in(study: Study, part: Scale, panels: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the values of a scale by name and panel, for those panels that are kept and have the name."""
    for name, values in part.values.items():
        having = [panel for panel in panels if name in study.panel(panel).settable()]
        by_panel = values if isinstance(values, Mapping) else dict.fromkeys(having, values)
        if kept := _kept(by_panel, having):
            yield name, kept


def _require_references(reference: str, folder: str, names: Sequence[str]) -> None:
    """Raise BadInputError unless a folder has stores of references, and is not that of the benchmark."""
    paths = [store_path(reference, name) for name in names]
    if os.path.realpath(reference) == os.path.realpath(folder):
        raise BadInputError(f"--reference must be another folder than --store, got {reference} for both")
    if not any(ResultStore.exists(path) for path in paths):
        raise BadInputError(
            f"--reference must be a folder with a store of {' or '.join(names)}, got none in {reference}; compute one "
            f"with: {command('run', names[0], '--store', paths[0])}, or omit --reference"
        )


def _open_references(path: str, study: Study, declared: Study) -> ResultStore | None:
    """Open a store, None if there is none; raise BadInputError unless it can be compared with a run by trial."""
    if not ResultStore.exists(path):
        return None
    stored = open_complete(path)
    reason = _misfit(stored.spec, study, declared, is_paired=True)
    if reason:
        raise BadInputError(
            f"the reference {stored.url} does not fit ({reason}); choose other --trials or another --scale, run the "
            "reference again, or omit --reference"
        )
    return stored


def _misfit(spec: Mapping[str, Any], study: Study, declared: Study, is_paired: bool) -> str:
    """Return why references of a spec cannot be compared with a study, or an empty string.

    Paired ones need the seed of the study and as many trials, and may lack methods.
    """
    own = study.spec()
    for name, panel in own["panels"].items():
        if name not in spec["panels"]:
            return f"panel {name} is absent"
        stored = spec["panels"][name]
        for role in ("factors", "method_factors"):
            for factor, values in panel[role].items():
                absent = [value for value in values if value not in stored[role].get(factor, ())]
                if absent:
                    return f"panels.{name}.{factor}: {absent[0]} is absent"
        if is_paired and stored["trials"] < panel["trials"]:
            return f"panels.{name}.trials: stored {stored['trials']:,}, now {panel['trials']:,}"
    if not is_paired and spec["criteria"] != criteria_of(declared):
        return "criteria differ"
    stored_part, present = references_of(spec, own["panels"]), data_of(own, own["panels"])
    if not is_paired:
        present["seed"] = stored_part["seed"]
    for name, panel in references_of(declared.spec(), own["panels"])["panels"].items():
        kept = stored_part["panels"][name]["methods"] if is_paired else panel["methods"]
        present["panels"][name]["methods"] = {key: panel["methods"].get(key) for key in kept}
    return next(iter(differences(stored_part, present)), "")

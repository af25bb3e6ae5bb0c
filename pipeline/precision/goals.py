"""Goals of a run that grows a store: a precision in every cell and setting, or decided claims."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.blocks.evaluate import Status
from pipeline.declare.claims import Claim
from pipeline.declare.factors import Measure, format_value
from pipeline.declare.panel import Panel
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, counted, require_known, verb
from pipeline.precision.stopping import MIN_TRIALS, confidence_sequence, next_trials, required_trials
from pipeline.precision.targets import CLAIMS, PanelTarget, Precision, Target, parse_target, resolve_target
from pipeline.results.verdicts import LookHistory, judge_look, summarise_panel
from pipeline.store.codec.regions import positions
from pipeline.store.read import read_at
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import Stop
from pipeline.store.scan.states import requested_trials

Grids = Mapping[str, np.ndarray]
"""Numbers of trials asked for by panel, shape (cell, setting)."""


Precisions = dict[tuple[str, int, tuple[int, ...]], tuple[int, Precision]]
"""Number of trials asked for and precision, by panel, cell and settings."""


@dataclass(frozen=True)
class Assessment:
    """State of a panel with respect to a goal, as arrays of shape (cell, setting)."""

    wanted: np.ndarray  # number of trials to ask for next; the present number where the goal is reached
    stopped: np.ndarray  # `Stop` where the goal is reached; `Stop.NOT_YET` elsewhere
    ratios: np.ndarray  # order in which further trials are added: the largest first

    @classmethod
    def without_target(cls, requested: np.ndarray) -> "Assessment":
        """Return the state before any target is assessed, given the numbers of trials asked for."""
        return cls(requested.copy(), np.full(requested.shape, int(Stop.NO_TARGET)), np.zeros(requested.shape))


class PrecisionGoal:
    """Bound on the Monte Carlo error of a quantity in every cell and setting; see `Target`."""

    min_trials = MIN_TRIALS

    def __init__(self, target: Target, study: Study) -> None:
        self._target = target
        resolve_target(target, study)  # raises before anything is written
        self.reached: Precisions = {}

    def assess(self, store: ResultStore, study: Study, trials: Grids) -> dict[str, Assessment]:
        """Return the state of each panel with trials."""
        targets = resolve_target(self._target, study, trials)
        return {name: self._assess(store, targets[name], requested) for name, requested in trials.items()}

    def _assess(self, store: ResultStore, target: PanelTarget, requested: np.ndarray) -> Assessment:
        assessment = Assessment.without_target(requested)
        reached = assess_items(store, target, requested, self.reached)
        self.reached |= reached
        for (_, cell, item), (n, precision) in reached.items():
            stop, wanted = _next_step(precision, n)
            for k in item:
                assessment.wanted[cell, k] = max(assessment.wanted[cell, k], wanted)
                if assessment.stopped[cell, k] != Stop.NOT_YET:  # a setting stops with the last of its pairs
                    assessment.stopped[cell, k] = stop
                assessment.ratios[cell, k] = max(assessment.ratios[cell, k], precision.ratio)
        return assessment

    def record(self) -> dict[str, Any]:
        """Return no fields: the target is recorded as given."""
        return {}

    def unmet(self, study: Study) -> str:
        """Return a cell and setting without a finite error, and the widest one with the trials that it needs."""
        failed = [
            (at, n, precision)
            for at, (n, precision) in self.reached.items()
            if _next_step(precision, n)[0] == Stop.FAILED
        ]
        wide = self._describe_wide(study)
        if not failed:
            return wide
        (name, cell, item), n, precision = failed[0]
        text = (
            f"{len(failed):,} of {counted(len(self.reached), 'error')} {verb(len(failed))} not finite: "
            f"{study.panel(name).describe(cell, item)} has {counted(precision.n, 'value')} after {counted(n, 'trial')}"
        )
        return f"{text}; {wide}" if wide else text

    def _describe_wide(self, study: Study) -> str:
        wide = [
            (precision.ratio, at, n, precision)
            for at, (n, precision) in self.reached.items()
            if _next_step(precision, n)[0] == Stop.NOT_YET
        ]
        if not wide:
            return ""
        _, (name, cell, item), n, precision = max(wide, key=lambda entry: entry[0])
        panel = study.panel(name)
        place = panel.describe(cell, item)
        of_all = f"{len(wide):,} of {counted(len(self.reached), 'error')}"
        if not np.isfinite(precision.ratio):
            return (
                f"{of_all} {verb(len(wide))} unknown: the estimate of {place} is "
                f"{precision.estimate:g} after {n:,} trials, which do not determine its error"
            )
        needed = f"needs about {whole_blocks(panel, max(n + 1, required_trials(n, precision.ratio))):,} trials"
        if precision.error <= precision.bound:
            return (
                f"{of_all} {verb(len(wide))} uncertain, since the trials are few for their skewness or "
                f"contain few events or values: {place} has {n:,} and {needed}"
            )
        return (
            f"{of_all} {verb(len(wide), 'exceeds', 'exceed')} the bound; the largest is {precision.error:.2g} "
            f"after {n:,} trials instead of {precision.bound:.2g} ({place}), which {needed}"
        )


def _next_step(precision: Precision, n: int) -> tuple[Stop, int]:
    """Return the reason to stop, if any, and the number of trials to ask for next, given `n` asked trials."""
    if not np.isfinite(precision.error):
        return Stop.FAILED, n
    if precision.is_constant:
        return Stop.CONSTANT, n
    if precision.is_reached:
        return Stop.REACHED, n
    per_ok = n / precision.n  # failed trials count as asked for
    return Stop.NOT_YET, int(np.ceil(per_ok * next_trials(precision.n, precision.ratio)))


class ClaimsGoal:
    """Verdicts on all claims of a study; each look spends a share of their error levels, see `level_share`.

    At each look, a claim that is not decided asks for twice the trials of all methods that it needs. One without an
    error level, or that holds because it was not rejected, is decided by the whole budget only. Earlier sessions, whose
    records are given, may have spent shares.
    """

    def __init__(self, study: Study, sessions: Sequence[Mapping[str, Any]] = ()) -> None:
        self._claims = [claim for claim in study.claims if _has_needs(study, claim)]
        if not self._claims:
            raise BadInputError(
                f"--until claims requires a claim on the chosen panels and values of study {study.name}, got none; "
                "choose other panels, or a precision"
            )
        self.min_trials = max([MIN_TRIALS, *(claim.min_trials for claim in self._claims)])
        self._looks = LookHistory.of(sessions)
        self._open: list[str] = []

    def assess(self, store: ResultStore, study: Study, trials: Grids) -> dict[str, Assessment]:
        """Judge the claims that are not decided, and return the state of each panel with trials."""
        sizes = {name: int(requested.max(initial=0)) for name, requested in trials.items()}
        look, decided = self._looks.note(study, trials), self._looks.decided
        summaries = {panel.name: summarise_panel(store, panel) for panel in study.panels}
        assessments = {name: Assessment.without_target(requested) for name, requested in trials.items()}
        self._open = []
        for claim in self._claims:
            if claim.name not in decided:
                finding = judge_look(study, claim, summaries, look)
                is_undecided = finding.verdict == "undecided"
                if claim.level is not None and finding.is_settled and not is_undecided:
                    decided[claim.name] = look
                self._open += [claim.name] * is_undecided
            is_decided = claim.name in decided
            for name, assessment in assessments.items():
                at = slice(None), _settings_of(claim, study.panel(name))
                if is_decided:
                    assessment.stopped[at] = np.where(
                        assessment.stopped[at] == Stop.NO_TARGET, Stop.DECIDED, assessment.stopped[at]
                    )
                else:
                    assessment.wanted[at], assessment.stopped[at] = 2 * sizes[name], Stop.NOT_YET
                    assessment.ratios[at] += 1  # settings of the most claims come first
        for name, assessment in assessments.items():
            others = ~study.panel(name).applicable
            assessment.wanted[others], assessment.stopped[others] = trials[name][others], Stop.NO_TARGET
        return assessments

    def record(self) -> dict[str, Any]:
        """Return the sizes of the looks, and the look at which each decided claim was decided."""
        return self._looks.record()

    def unmet(self, study: Study) -> str:
        """Return the names of the claims whose verdict is undecided."""
        return f"undecided claims: {', '.join(self._open)}" if self._open else ""


Goal = PrecisionGoal | ClaimsGoal
"""Goal of a run that grows a store."""


def _has_needs(study: Study, claim: Claim) -> bool:
    """Return True if a configured study has the panels and values that a claim needs."""
    panels = {panel.name: panel for panel in study.panels}
    read = claim.panels_read(panels)
    if not read or not panels.keys() >= set(read):
        return False
    for name, values in claim.needs.items():
        require_known(f"dimension of panel {name}", values, panels[name].settable(), f"claim {claim.name} needs an ")
        for dim, needed in values.items():
            axis = panels[name].settable()[dim]
            known = {format_value(value) if axis.kind == "vector" else value for value in axis.values}
            if not known.issuperset(needed):
                return False
    return True


def _settings_of(claim: Claim, panel: Panel) -> list[int]:
    """Return the settings of a panel that a claim needs; all if it names no panel or no method."""
    if panel.name not in (claim.needs or claim.panels_read([panel.name])):
        return []
    methods = claim.values_read(panel.name).get(panel.method_dim or "")
    return [k for k, setting in enumerate(panel.settings()) if methods is None or setting.method.name in methods]


def whole_blocks(panel: Panel, trials: Any) -> Any:
    """Return numbers of trials rounded up to whole blocks."""
    return -(-trials // panel.block_trials) * panel.block_trials


def assess_items(store: ResultStore, target: PanelTarget, requested: np.ndarray, before: Precisions) -> Precisions:
    """Return the precision of each cell and item of a target, as `before` for the same number of trials asked for."""
    panel, precisions = target.panel, Precisions()
    for cell in range(len(panel.cells())):
        for item in target.items:
            if panel.applicable[cell, list(item)].all():
                at, n = (panel.name, cell, item), int(requested[cell, list(item)].min())
                known = before[at] if at in before and before[at][0] == n else None
                precisions[at] = known or (n, target.assess(read_draws(store, panel, target.measure, cell, item, n)))
    return precisions


def read_draws(
    store: ResultStore, panel: Panel, measure: Measure, cell: int, item: Sequence[int], n_trials: int
) -> list[np.ndarray]:
    r"""Read a measure of one setting or two at the trials that are ok in both, shape (trial, \*outputs)."""
    trials = range(min(n_trials, panel.n_trials))
    values, ok = [], np.ones(len(trials), bool)
    for k in item:
        position = next(positions(panel, cell, panel.settings()[k]))
        ok &= read_at(store, panel, position, trials, "status") == Status.OK
        values.append(read_at(store, panel, position, trials, measure.name))
    return [draws[ok] for draws in values]


@dataclass(frozen=True)
class Reached:
    """Precision of a panel."""

    panel: str
    widest: str  # cell and setting with the largest ratio of error to bound
    precision: Precision  # of this cell and setting
    target: str  # of the run, as given
    n_asked: int  # trials that were asked for, summed over cells and settings that apply
    n_more: int  # further trials, summed likewise, after which every error is at most half the bound

    @property
    def is_known(self) -> bool:
        """False if the draws do not determine an error, as for events of which none or all occurred."""
        return self.precision.error > 0 or math.isfinite(self.precision.ratio)

    @property
    def half_width(self) -> float:
        """Half-width of a 95 % interval that holds at every stopping time; see `confidence_sequence`."""
        return confidence_sequence(self.precision.n) * self.precision.error


def reached_precision(store: ResultStore, study: Study) -> list[Reached]:
    """Return the precision of each panel in the target of the last run; an empty list if there was none."""
    with_target = [session for session in store.sessions if session.get("until", CLAIMS) != CLAIMS]
    if not with_target:
        return []
    text, panels = with_target[-1]["until"], with_target[-1].get("panels") or None
    reached = []
    for name, target in resolve_target(parse_target(text), study, panels).items():
        requested = requested_trials(store, target.panel)
        finite = {
            at: (n, precision)
            for at, (n, precision) in assess_items(store, target, requested, {}).items()
            if np.isfinite(precision.error)
        }
        if not finite:
            continue
        (_, cell, item), (_, widest) = max(finite.items(), key=lambda entry: entry[1][1].ratio)
        more = np.zeros_like(requested)
        for (_, at, settings), (n, precision) in finite.items():
            half = max(2 * precision.error / precision.bound, precision.ratio) if precision.bound else math.inf
            extra = max(0, required_trials(n, half) - n)
            for k in settings:
                more[at, k] = max(more[at, k], extra)
        where = target.panel.describe(cell, item)
        n_asked = int(requested[target.panel.applicable].sum())
        reached.append(Reached(name, where, widest, text, n_asked, int(more.sum())))
    return reached

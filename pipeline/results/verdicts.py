"""Verdicts on the claims of a study, from the summaries of a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from pipeline.declare.claims import Claim, Finding, level_share
from pipeline.declare.factors import format_value
from pipeline.declare.panel import Panel
from pipeline.declare.study import Study
from pipeline.errors import about, counted, require_known, verb
from pipeline.results.summaries import summarise
from pipeline.results.value_counts import ValueCounts
from pipeline.store.datasets import open_panel
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.requested import RequestedTrials, read_requested, record_requested
from pipeline.store.scan.states import requested_trials

Summaries = Mapping[str, xr.Dataset]
LOOKS = "looks"
"""Key of the looks in the record of a session."""


@dataclass(frozen=True)
class LookHistory:
    """Looks at the claims of a study in a run until claims are decided."""

    trials: list[dict[str, int]]  # largest number of trials by panel, for each look
    numbers: list[dict[str, Any]]  # record of those of all cells and settings; empty for a look of an earlier version
    decided: dict[str, int]  # number of the look, from 1, at which each decided claim was decided

    @classmethod
    def of(cls, sessions: Sequence[Mapping[str, Any]]) -> "LookHistory":
        """Return the looks recorded by the sessions of a store."""
        nothing: dict[str, Any] = {"trials": [], "decided": {}}
        record = next((session[LOOKS] for session in reversed(sessions) if LOOKS in session), nothing)
        trials = [dict(by_panel) for by_panel in record["trials"]]
        return cls(trials, record.get("numbers") or [{} for _ in trials], dict(record["decided"]))

    def record(self) -> dict[str, Any]:
        """Return the fields of a session's record from which `of` restores the looks."""
        return {LOOKS: {"trials": self.trials, "numbers": self.numbers, "decided": self.decided}}

    def note(self, study: Study, asked: Mapping[str, np.ndarray]) -> int:
        """Return the number of the look at these trials by panel, shape (cell, setting); new unless the last had them.

        Each look at other trials spends a share of the error levels, also if the largest number is the same.
        """
        sizes = {name: int(numbers.max(initial=0)) for name, numbers in asked.items()}
        of_settings = RequestedTrials.of_settings
        record = record_requested({name: of_settings(study.panel(name), grid) for name, grid in asked.items()})
        if self.trials[-1:] != [sizes] or self.numbers[-1] not in ({}, record):
            self.trials.append(sizes)
            self.numbers.append(record)
        return len(self.trials)

    def trials_at(self, study: Study, look: int) -> dict[str, RequestedTrials]:
        """Return the trials of a look by panel; all settings have the largest number in one of an earlier version."""
        everywhere = {
            name: RequestedTrials.of_settings(panel, np.full((len(panel.cells()), len(panel.settings())), n_trials))
            for name, n_trials in self.trials[look - 1].items()
            for panel in [study.panel(name)]
        }
        return everywhere | read_requested(self.numbers[look - 1])


def summarise_panel(store: ResultStore, panel: Panel, only: RequestedTrials | None = None) -> xr.Dataset:
    """Return the summary of a stored panel, or of the first trials of its settings, with its declared statistics."""
    ds = open_panel(store, panel.name, only=only)
    with about(f"panel {panel.name}"):
        return summarise(ds, panel.statistics, panel.events)


def judge(study: Study, summaries: Summaries) -> list[tuple[Claim, Finding]]:
    """Check every claim of a study, which is undecided without the values and trials that it requires."""
    read = ((claim, without_added(study, claim, summaries)) for claim in study.claims)
    return [(claim, undecided(study, claim, part) or check(study, claim, part)) for claim, part in read]


def without_added(study: Study, claim: Claim, summaries: Summaries) -> Summaries:
    """Return summaries without added methods that a claim does not name, on which no verdict may depend."""
    parts = dict(summaries)
    for panel in study.panels:
        added = {method.name for method in panel.methods if method.is_added}
        if panel.name not in parts or panel.method_dim is None or not added:
            continue
        named = {str(value) for value in claim.needs.get(panel.name, {}).get(panel.method_dim, ())}
        stored = parts[panel.name][panel.method_dim].values.tolist()
        kept = [name for name in stored if name in named or name not in added]
        parts[panel.name] = parts[panel.name].sel({panel.method_dim: kept})
    return parts


def check(study: Study, claim: Claim, summaries: Summaries, share: float = 1.0) -> Finding:
    """Check a claim; it is undecided if its check reads statistics of a ragged measure that rest on too few values."""
    counts = ValueCounts(claim.min_trials if claim.min_values is None else claim.min_values)
    recording = {name: counts.record(study.panel(name), summaries[name]) for name in claim.panels_read(summaries)}
    finding = claim.judge(recording, share)
    few = counts.few()
    return Finding("undecided", few) if few else finding


def undecided(study: Study, claim: Claim, summaries: Summaries) -> Finding | None:
    """Return the finding that a claim cannot be decided yet, or None."""
    read = claim.panels_read(summaries)
    if not read:
        return Finding("undecided", "The store has no panel that the claim reads.")
    for panel in read:
        if panel not in summaries:
            return Finding("undecided", f"The store has no panel {panel}.")
        summary = summaries[panel]
        needed = claim.needs.get(panel, {})
        require_known(f"dimension of panel {panel}", needed, summary.coords, f"claim {claim.name} needs an ")
        for dim, values in needed.items():
            stored = np.atleast_1d(summary[dim].values)
            absent = [value for value in values if value not in stored]
            if absent:
                named = ", ".join(map(format_value, absent[:5])) + (", ..." if len(absent) > 5 else "")
                return Finding("undecided", f"Panel {panel} has no {dim} = {named}.")
        positions = claim.positions_read(panel, summary)
        at = {dim: chosen for dim, chosen in positions.items() if dim in summary["n_ok"].dims}
        # arrays without coordinates: selections of data sets would take seconds
        ok, failed, pending = (summary[name].variable.isel(at).values for name in ("n_ok", "n_failed", "n_pending"))
        n_all, n_pending = ok + failed + pending, int(pending.sum())
        n_ok = int(np.where(n_all > 0, ok, n_all.max()).min())  # 0 of 0: a setting that does not apply
        n_least = 1 if study.panel(panel).trials is None else claim.min_trials
        if n_pending:
            return Finding("undecided", f"{counted(n_pending, 'trial')} of panel {panel} {verb(n_pending)} pending.")
        if n_ok < n_least:
            return Finding("undecided", f"A method of panel {panel} has {n_ok} ok trials, needed: {n_least}.")
    return None


def judge_look(study: Study, claim: Claim, summaries: Summaries, number: int) -> Finding:
    """Check a claim at a look, with the share of its error level for this look; the evidence states both."""
    summaries = without_added(study, claim, summaries)
    missing = undecided(study, claim, summaries)
    if missing is not None or not claim.level:
        return missing or check(study, claim, summaries)
    finding = check(study, claim, summaries, level_share(number))
    spent = f"Look {number} spends {level_share(number) * claim.level:.2g} of the error level {claim.level:.2g}."
    return replace(finding, evidence=f"{finding.evidence} {spent}")


def judge_store(study: Study, store: ResultStore, summaries: Summaries) -> list[tuple[Claim, Finding]]:
    """Check every claim of a study; one that was decided at a look is judged on its trials, with its error level."""
    looks = LookHistory.of(store.sessions)
    if not looks.trials:
        return judge(study, summaries)
    panels = [panel for panel in study.panels if panel.name in looks.trials[-1]]
    last = looks.note(study, {panel.name: requested_trials(store, panel) for panel in panels})
    parts: dict[int, Summaries] = {last: summaries}
    findings = []
    for claim in study.claims:
        look = looks.decided.get(claim.name, last)
        if look not in parts:
            parts[look] = {
                **summaries,
                **{
                    name: summarise_panel(store, study.panel(name), only)
                    for name, only in looks.trials_at(study, look).items()
                },
            }
        findings.append((claim, judge_look(study, claim, parts[look], look)))
    return findings

"""Results of a folder of stores, by study: summaries, verdicts, completeness and wall time."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from pipeline import BadInputError, Claim, Finding, Study
from pipeline.declare.source import find_study
from pipeline.errors import IncompleteStoreError, UnreadableStoreError, command
from pipeline.resolve import study_of
from pipeline.stores.store import ResultStore
from studies import MODULES, STUDIES
from studies.laboratory.scales import store_path
from studies.report import State, Summaries, judge, load_summaries, summarised_state


@dataclass(frozen=True)
class StudyResults:
    """A study with the results of its store.

    Attributes
    ----------
    study : Study
        Study configured by the stored spec.
    store : ResultStore
        The store.
    summaries : dict of str to xarray.Dataset
        Summaries by panel; see `pipeline.summarise`.
    claims : list of (Claim, Finding)
        Claims with their verdicts.
    state : State
        Numbers of evaluations that are ok, failed and pending.
    """

    study: Study
    store: ResultStore
    summaries: Summaries
    claims: list[tuple[Claim, Finding]]
    state: State

    @cached_property
    def sessions(self) -> list[dict[str, Any]]:
        """Intact records of the store's sessions, in order; empty if they were lost."""
        return [record for record in self.store.sessions if "damaged" not in record]

    @property
    def seconds(self) -> float:
        """Wall time of the finished sessions."""
        return sum(
            (datetime.fromisoformat(one["finished"]) - datetime.fromisoformat(one["started"])).total_seconds()
            for one in self.sessions
            if "finished" in one
        )


Results = Mapping[str, StudyResults]
"""Results by name of the study."""


def load_results(folder: str | os.PathLike[str]) -> tuple[dict[str, StudyResults], dict[str, str]]:
    """Read the stores of a folder.

    Parameters
    ----------
    folder : path
        See `studies.laboratory.scales`.

    Returns
    -------
    results : dict of str to StudyResults
        Results of the studies with a store in the folder, in the order of `studies.STUDIES`.
    missing : dict of str to str
        Reasons why the other studies are missing.

    Raises
    ------
    BadInputError
        If there is no store of any study.
    """
    results, missing = {}, {}
    for name in STUDIES:
        path = store_path(folder, name)
        try:
            store = ResultStore.open(path)
            _, study = study_of(store, find_study(name, MODULES), accept_edited_study=True)
            summaries = load_summaries(path, study=study)
            results[name] = StudyResults(study, store, summaries, judge(study, summaries), summarised_state(summaries))
        except (BadInputError, IncompleteStoreError, UnreadableStoreError) as error:
            missing[name] = str(error)
    if not results:
        raise BadInputError(f"{folder} contains no store of a study; run: {command('run', 'all', '--store', folder)}")
    return results, missing

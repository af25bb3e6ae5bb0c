"""Results of one store, and of all stores in a folder: summaries, verdicts, completeness and wall time."""

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
from pipeline.verdicts import judge_store
from studies import MODULES, STUDIES
from studies.claims import Summaries
from studies.folders import store_path
from studies.report.summaries import State, load_summaries, summarised_state


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
        Numbers of evaluations that succeeded, failed, and are pending.
    """

    study: Study
    store: ResultStore
    summaries: Summaries
    claims: list[tuple[Claim, Finding]]
    state: State

    @cached_property
    def sessions(self) -> list[dict[str, Any]]:
        """Intact session records of the store, in order; empty if all were lost."""
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


def read_results(store: ResultStore, study: Study) -> StudyResults:
    """Read a store, and judge the claims of its study.

    Parameters
    ----------
    store : ResultStore
        The store, which may be incomplete.
    study : Study
        Study configured by the stored spec.
    """
    summaries = load_summaries(store.url, study=study)
    return StudyResults(study, store, summaries, judge_store(study, store, summaries), summarised_state(summaries))


def load_results(folder: str | os.PathLike[str]) -> tuple[dict[str, StudyResults], dict[str, str]]:
    """Read the stores of a folder.

    Parameters
    ----------
    folder : path
        See `studies.folders`.

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
        try:
            store = ResultStore.open(store_path(folder, name))
            _, study = study_of(store, find_study(name, MODULES), accept_edited_study=True)
            results[name] = read_results(store, study)
        except (BadInputError, IncompleteStoreError, UnreadableStoreError) as error:
            missing[name] = str(error)
    if not results:
        raise BadInputError(f"{folder} contains no store of a study; run: {command('run', 'all', '--store', folder)}")
    return results, missing

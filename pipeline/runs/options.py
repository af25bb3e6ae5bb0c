"""Options of `run`, `submit`, `resume` and `extend`, validated once."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pipeline.blocks.evaluate import Status
from pipeline.clusters.user_cluster import ChosenCluster, ClusterChoice, choose_cluster
from pipeline.declare.factors import require_integer
from pipeline.declare.panel import MAX_TRIALS
from pipeline.declare.source import StudySource
from pipeline.declare.study import Study, Values
from pipeline.errors import BadInputError
from pipeline.precision.stopping import MIN_TRIALS
from pipeline.store.scan.run_part import RunPart

OTHERS_THAN_UNTIL = "--until cannot be combined with --trials, or with --set of an extension; omit one of them"
OTHERS_THAN_ADD = "--add of an extension cannot be combined with --until or --panel; omit one of them"

StudyLike: TypeAlias = Study | StudySource | str
Trials: TypeAlias = int | Mapping[str, int] | None
ProgressLike: TypeAlias = Callable[[Any], Any] | bool  # `pipeline.runs.progress.Progress`, or True for a bar


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run; see `pipeline.run`, `extend` and `resume` for their meaning."""

    trials: Trials = None
    seed: int | None = None
    panels: Iterable[str] = ()
    values: Values | None = None
    cluster: ClusterChoice = None
    time_limit: float | None = None
    until: str | None = None
    at_most: int | None = None
    within: float | None = None
    share: str | None = None
    retry: Collection[Status] = ()
    allow_failures: bool = False
    accept_edited_study: bool = False
    progress: ProgressLike = True
    chosen_cluster: ChosenCluster = field(init=False)
    """Profile that `cluster` names, or client or cluster of the user."""

    def __post_init__(self) -> None:
        """Raise BadInputError for an invalid number, options that exclude each other, or an unknown profile."""
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise BadInputError(f"the time limit of a block must be > 0 seconds, got {self.time_limit}")
        if self.until is None and (self.at_most is not None or self.within is not None):
            raise BadInputError("--at-most and --within are for runs with --until; add --until, or use --trials")
        if self.share is not None:
            RunPart.parse(self.share)
            if self.until is not None:
                raise BadInputError("--share cannot be combined with --until, which needs all blocks; omit one of them")
        if self.until is not None and self.trials:
            raise BadInputError(OTHERS_THAN_UNTIL)
        if self.within is not None and not 0 < self.within < float("inf"):
            raise BadInputError(f"the time of --within must be > 0 seconds, got {self.within}")
        if self.at_most is not None:
            require_integer("--at-most", self.at_most, MIN_TRIALS, MAX_TRIALS)
        object.__setattr__(self, "panels", (self.panels,) if isinstance(self.panels, str) else tuple(self.panels))
        object.__setattr__(self, "chosen_cluster", choose_cluster(self.cluster))
        if self.cluster is None:  # copies of these options keep the choice
            object.__setattr__(self, "cluster", self.chosen_cluster)

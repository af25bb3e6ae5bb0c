"""Options of a run, declared once for `run`, `submit`, `resume` and `extend`, in Python and as commands."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import Parameter, signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from pipeline.blocks.evaluate import Status
from pipeline.clusters.user_cluster import ChosenCluster, ClusterChoice, choose_cluster
from pipeline.declare.factors import require_integer
from pipeline.declare.panel import MAX_TRIALS
from pipeline.declare.source import StudySource
from pipeline.declare.study import Study, Values
from pipeline.errors import BadInputError
from pipeline.precision.stopping import MIN_TRIALS
from pipeline.stores.asked import Share

OTHERS_THAN_UNTIL = "--until cannot be combined with --trials, or with --set of an extension; omit one of them"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run; see `pipeline.run`, `extend` and `resume` for their meaning."""

    study: Study | StudySource | str | None = None  # of an existing store
    trials: int | Mapping[str, int] | None = None
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
    progress: Callable[[Any], Any] | bool = True  # `pipeline.progress.Progress`, or True for a bar on a terminal
    chosen_cluster: ChosenCluster = field(init=False)
    """Profile that `cluster` names, or client or cluster of the user."""

    def __post_init__(self) -> None:
        """Raise BadInputError for an invalid number, options that exclude each other, or an unknown profile."""
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise BadInputError(f"the time limit of a block must be > 0 seconds, got {self.time_limit}")
        if self.until is None and (self.at_most is not None or self.within is not None):
            raise BadInputError("--at-most and --within are for runs with --until; add --until, or use --trials")
        if self.share is not None:
            Share.parse(self.share)
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


_P = ParamSpec("_P")
_A = TypeVar("_A")
_B = TypeVar("_B")
_R = TypeVar("_R")


class _Declare(Protocol[_P]):
    @overload
    def __call__(self, function: Callable[[_A, RunOptions], _R]) -> Callable[Concatenate[_A, _P], _R]: ...
    @overload
    def __call__(self, function: Callable[[_A, _B, RunOptions], _R]) -> Callable[Concatenate[_A, _B, _P], _R]: ...


def takes(options: Callable[_P, RunOptions], *omitted: str) -> _Declare[_P]:
    """Return a decorator for a function of some arguments and `RunOptions`, which takes the options as keywords."""
    make: Any = options  # the class, whose parameters type checkers then know as those of the decorated function
    known = [one for one in fields(make) if one.init and one.name not in omitted]
    keywords = [Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type) for one in known]

    def declare(function: Any) -> Any:
        own = signature(function)
        *first, _ = own.parameters.values()
        declared = own.replace(parameters=[*first, *keywords])

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            bound = declared.bind(*args, **given).arguments
            return function(*(bound.pop(one.name) for one in first), make(**bound))

        call.__signature__ = declared  # type: ignore[attr-defined]
        return call

    return declare

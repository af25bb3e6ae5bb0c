"""Options of a run, declared once for `run`, `submit`, `resume` and `extend`, in Python and as commands."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pipeline.blocks.evaluate import Status
from pipeline.clusters.profiles import Profile, load_profile
from pipeline.declare.factors import require_integer
from pipeline.declare.panel import MAX_TRIALS
from pipeline.declare.study import Values
from pipeline.errors import BadInputError
from pipeline.precision.stopping import MIN_TRIALS
from pipeline.stores.asked import Share

OTHERS_THAN_UNTIL = "--until cannot be combined with --trials, or with --set of an extension; omit one of them"


@dataclass(frozen=True)
class RunOptions:
    """Options of a run; see `pipeline.run` for their meaning."""

    trials: int | Mapping[str, int] | None = None
    seed: int | None = None
    panels: Iterable[str] = ()
    values: Values | None = None
    cluster: str | Profile | None = None
    time_limit: float | None = None
    until: str | None = None
    at_most: int | None = None
    within: float | None = None
    share: str | None = None
    retry: Collection[Status] = ()
    allow_failures: bool = False
    accept_edited_study: bool = False
    progress: Callable[[Any], Any] | bool = True  # `pipeline.progress.Progress`, or True for a bar on a terminal
    profile: Profile = field(init=False)
    """Profile that `cluster` names."""

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
        profile = self.cluster if isinstance(self.cluster, Profile) else load_profile(self.cluster)
        object.__setattr__(self, "profile", profile)


def options_of(arguments: Mapping[str, Any]) -> RunOptions:
    """Return the options among the arguments of a function."""
    return RunOptions(**{one.name: arguments[one.name] for one in fields(RunOptions) if one.name in arguments})

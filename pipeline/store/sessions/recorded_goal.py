"""Goal of a run until a target, as the record of its session states it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import command
from pipeline.store.sessions.records import REQUESTED


@dataclass(frozen=True)
class RecordedGoal:
    """Goal and budget of the latest run until a target, as its session recorded them."""

    until: str  # target as given
    at_most: int | None  # maximum number of trials per cell
    within: float | None  # maximum time in seconds
    panels: tuple[str, ...]  # of the goal; empty for all
    is_open: bool  # True if interrupted before the goal was reached or the budget spent
    unmet: str  # missing part of the goal when the run ended; empty if reached

    def continuation(self, url: str, *options: str) -> str:
        """Return the command that continues towards the target with a larger budget, and with further options."""
        panels = [word for name in self.panels for word in ("--panel", name)]
        return command("extend", url, "--until", self.until, *panels, "--at-most", "N", *options)

    def record(self) -> dict[str, Any]:
        """Return the fields of a session's record from which `read_goal` restores the goal and budget."""
        return {"until": self.until, "at_most": self.at_most, "within": self.within, "panels": list(self.panels)}


def read_goal(sessions: Sequence[Mapping[str, Any]]) -> RecordedGoal | None:
    """Return the goal of the latest run until a target, or None if there was none or a fixed number replaced it.

    The latter leaves out panels in its record of the trials asked for; new values or methods do not.
    """
    last = max((number for number, session in enumerate(sessions) if "until" in session), default=None)
    if last is None:
        return None
    record, asked = sessions[last], sessions[last].get(REQUESTED, {})
    if any(not asked.keys() <= session.get(REQUESTED, asked).keys() for session in sessions[last + 1 :]):
        return None
    unmet = record.get("unmet", "")
    return RecordedGoal(
        record["until"],
        record.get("at_most"),
        record.get("within"),
        tuple(record.get("panels", ())),
        "finished" not in record and not unmet,
        unmet,
    )

"""Seconds and memory that methods took, in the records of sessions: provenance, which no number depends on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

COSTS = "costs"
"""Key of the costs in the record of a session: {panel: {method: [evaluations, seconds]}}."""
PEAKS = "peaks"
"""Key of the traced memory in the record of a session: {panel: {method: bytes}}."""


@dataclass
class MethodCosts:
    """Costs of methods on the workers by panel and method.

    Attributes
    ----------
    by_panel : dict
        Numbers of evaluations, and their wall-clock seconds.
    peaks : dict
        Traced peak memory of one trial in bytes, of methods for which it was measured.
    """

    by_panel: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)
    peaks: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> "MethodCosts":
        """Return the total of the records of some sessions, and their largest peaks."""
        total = cls()
        for record in records:
            for panel, methods in record.get(COSTS, {}).items():
                for method, (n, seconds) in methods.items():
                    total.add(panel, method, n, seconds)
            total.add_peaks(record.get(PEAKS, {}))
        return total

    def add(self, panel: str, method: str, n: int, seconds: float) -> None:
        """Add evaluations of a method."""
        of_panel = self.by_panel.setdefault(panel, {})
        before, seconds_before = of_panel.get(method, (0, 0.0))
        of_panel[method] = before + n, seconds_before + seconds

    def add_peaks(self, peaks: Mapping[str, Mapping[str, int]]) -> None:
        """Add peaks by panel and method; the larger one counts."""
        for panel, methods in peaks.items():
            of_panel = self.peaks.setdefault(panel, {})
            for method, peak in methods.items():
                of_panel[method] = max(peak, of_panel.get(method, 0))

    def record(self) -> dict[str, Any]:
        """Return the costs as fields of a record, with milliseconds."""
        costs = {
            panel: {method: [n, round(seconds, 3)] for method, (n, seconds) in methods.items()}
            for panel, methods in self.by_panel.items()
        }
        return {COSTS: costs, PEAKS: self.peaks}


def is_costs(value: Any) -> bool:
    """Return True if a value of a record has the form of costs; it may come from somebody else."""
    return isinstance(value, dict) and all(
        isinstance(methods, dict)
        and all(
            isinstance(cost, list)
            and len(cost) == 2
            and type(cost[0]) is int
            and isinstance(cost[1], int | float)
            and 0 <= cost[0] < 2**63
            and 0 <= cost[1] < 2**63
            for cost in methods.values()
        )
        for methods in value.values()
    )


def is_peaks(value: Any) -> bool:
    """Return True if a value of a record has the form of peaks."""
    return isinstance(value, dict) and all(
        isinstance(methods, dict) and all(type(peak) is int and 0 <= peak < 2**63 for peak in methods.values())
        for methods in value.values()
    )

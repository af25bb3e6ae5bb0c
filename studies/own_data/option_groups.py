"""Groups of options that commands on private records share, by the names of the arguments of the commands."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BudgetOptions:
    """Budget of a release; a rehearsal has a seed, and spends nothing."""

    ledger: str | None
    budget: str | None
    yes: bool
    rehearsal: int | None  # --seed


@dataclass(frozen=True)
class ColumnOptions:
    """Columns of a table for a regression, and the texts of its missing cells."""

    table: str | None
    target: str | None
    features: str | None
    na: list[str] | None


@dataclass(frozen=True)
class OutputOptions:
    """Forms of an answer, in addition to its lines on the terminal."""

    json: bool
    plot: Path | None = None
    path: Path | None = None  # --output

"""The budget of commands that release a user's own numbers: ledgers, confirmations and rehearsals."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipeline.errors import BadInputError
from studies.commands.options import require_seed
from studies.commands.output import say, writing

if TYPE_CHECKING:
    from mechanisms.privacy import Guarantee
    from studies.data.ledger_file import LedgerFile

RELEASE = ("ledger", "budget", "yes", "rehearsal")
"""Names of the options of all commands that release a user's own numbers."""


@dataclass(frozen=True)
class Account:
    """Ledger of the releases of one command; `ledger` is None without the option ``--ledger``."""

    ledger: "LedgerFile | None"
    is_rehearsal: bool
    is_confirmed: bool

    def confirm(self, what: str, loss: object, note: str = "") -> None:
        """Ask for a confirmation of a release, unless it was given; raise BadInputError if the answer is no."""
        if self.is_rehearsal or self.is_confirmed:
            return
        if not sys.stdin.isatty():
            raise BadInputError(
                "a release must be confirmed, but there is no terminal to ask; pass --yes, or --seed to rehearse"
            )
        if not typer.confirm(f"{note}Release the {what}, with a privacy loss of {loss}?", err=True):
            raise BadInputError("the release was not confirmed; nothing was released")

    def entry(self, guarantee: "Guarantee", what: str) -> Callable[[], object]:
        """Return the function that enters a release in the ledger, to be called before its noise is drawn."""
        book = self.ledger
        return lambda: None if book is None or self.is_rehearsal else book.spend(guarantee, what)

    def check(self, *guarantees: "Guarantee") -> None:
        """Raise BadInputError if the ledger has less left than releases with these guarantees spend together."""
        if self.ledger is not None and not self.is_rehearsal:
            self.ledger.check(*guarantees)

    def lines(self) -> list[str]:
        """Return the line on the rest of the budget; none for a rehearsal."""
        if self.is_rehearsal:
            return []
        if self.ledger is None:
            return ["ledger: none; losses of all releases from these records add up"]
        return [f"ledger: {self.ledger.describe()}"]


def open_account(given: Mapping[str, Any]) -> Account:
    """Return the account of a command with the options of `RELEASE`."""
    from studies.data.ledger_file import LedgerFile, Loss

    ledger, budget, yes, rehearsal = (given[name] for name in RELEASE)
    require_seed(rehearsal)
    if budget is not None and ledger is None:
        raise BadInputError(f"--ledger must be given with --budget, got a budget of {budget} alone; name a file")
    try:
        total = None if budget is None else Loss(*(Decimal(repr(float(part))) for part in budget.split(":")))
    except (ValueError, TypeError):  # no number, or more than two
        raise BadInputError(
            f"budget must be a number > 0, got {budget!r}; pass the total epsilon, such as 3, or with a delta, 3:1e-6"
        ) from None
    return Account(None if ledger is None else LedgerFile(ledger, total), rehearsal is not None, yes)


def write_plot(plot: Path, specification: dict[str, Any]) -> None:
    """Write a figure of released values as SVG or PNG."""
    from studies.figures.conversion import convert

    with writing(plot, "the values above are valid"):
        plot.write_bytes(convert("svg" if plot.suffix == ".svg" else "png", specification))
    say(f"plot: {plot}")

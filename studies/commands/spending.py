"""The budget of commands that release a user's own numbers: ledgers, confirmations and rehearsals."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipeline.errors import BadInputError, as_bad_input
from studies.commands.options import require_seed
from studies.commands.output import say, writing

if TYPE_CHECKING:
    from mechanisms import Guarantee, LedgerFile
    from mechanisms.release import CheckedRelease, Rehearsal

RELEASE = ("ledger", "budget", "yes", "rehearsal")
"""Names of the options of all commands that release a user's own numbers."""


@dataclass(frozen=True)
class Account:
    """Ledger of the releases of one command; `ledger` is None without the option ``--ledger``."""

    ledger: "LedgerFile | None"
    seed: int | None  # of a rehearsal
    is_confirmed: bool

    def confirm(self, what: str, loss: object, note: str = "") -> None:
        """Ask for a confirmation of a release, unless it was given; raise BadInputError if the answer is no."""
        if self.seed is not None or self.is_confirmed:
            return
        if not sys.stdin.isatty():
            raise BadInputError(
                "a release must be confirmed, but there is no terminal to ask; pass --yes, or --seed to rehearse"
            )
        if not typer.confirm(f"{note}Release the {what}, with a privacy loss of {loss}?", err=True):
            raise BadInputError("the release was not confirmed; nothing was released")

    def check(self, *guarantees: "Guarantee") -> None:
        """Raise BadInputError if the ledger has less left than releases with these guarantees spend together."""
        if self.ledger is not None and self.seed is None:
            with as_bad_input():
                self.ledger.check(*guarantees)

    def release(self, guarantee: "Guarantee", what: str) -> "CheckedRelease | Rehearsal":
        """Return the release that the ledger allows, or the rehearsal of it."""
        from mechanisms.release import check_release

        with as_bad_input():
            return check_release(guarantee, what, self.seed, self.ledger)

    def lines(self) -> list[str]:
        """Return the line on the rest of the budget; none for a rehearsal."""
        if self.seed is not None:
            return []
        if self.ledger is None:
            return ["ledger: none; losses of all releases from these records add up"]
        with as_bad_input():
            return [f"ledger: {self.ledger.describe()}"]


def open_account(given: Mapping[str, Any]) -> Account:
    """Return the account of a command with the options of `RELEASE`."""
    from mechanisms import LedgerFile

    ledger, budget, yes, rehearsal = (given[name] for name in RELEASE)
    require_seed(rehearsal)
    if budget is not None and ledger is None:
        raise BadInputError(f"--ledger must be given with --budget, got a budget of {budget} alone; name a file")
    with as_bad_input():
        return Account(None if ledger is None else LedgerFile(ledger, budget), rehearsal, yes)


def write_plot(plot: Path, specification: dict[str, Any]) -> None:
    """Write a figure of released values as SVG or PNG."""
    from studies.figures.conversion import convert

    with writing(plot, "the values above are valid"):
        plot.write_bytes(convert("svg" if plot.suffix == ".svg" else "png", specification))
    say(f"plot: {plot}")

"""The budget of commands that release a user's own numbers: ledgers, confirmations and rehearsals."""

import sys
from dataclasses import dataclass

import typer

from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import add_losses, validate_epsilon
from mechanisms.release import CheckedRelease, LedgerFile, Loss, Rehearsal
from pipeline.errors import BadInputError, as_bad_input
from studies.option_texts import require_seed
from studies.own_data.option_groups import BudgetOptions


def require_losses(epsilon: float, bounds_epsilon: float | None = None) -> None:
    """Raise BadInputError unless the losses of the releases of a command, and their sum, are valid."""
    with as_bad_input():
        validate_epsilon(epsilon)
    if bounds_epsilon is not None:
        with as_bad_input("bounds-epsilon"):
            validate_epsilon(bounds_epsilon)
            validate_epsilon(add_losses(bounds_epsilon, epsilon))


@dataclass(frozen=True)
class Account:
    """Budget of the releases of one command; `ledger` is None without the option ``--ledger``."""

    ledger: LedgerFile | None
    seed: int | None  # of a rehearsal
    is_confirmed: bool

    @classmethod
    def open(cls, options: BudgetOptions) -> "Account":
        """Return the account of a command with these options."""
        seed, budget = options.rehearsal, options.budget
        require_seed(seed)
        if budget is not None and options.ledger is None:
            raise BadInputError(f"--ledger must be given with --budget, got a budget of {budget} alone; name a file")
        if options.ledger is None:
            return cls(None, seed, options.yes)
        with as_bad_input():
            return cls(LedgerFile(options.ledger, budget), seed, options.yes)

    def confirm(self, release: str, guarantee: Guarantee, note: str = "") -> None:
        """Ask for a confirmation of a release, unless it was given; raise BadInputError if the answer is no."""
        if self.seed is not None or self.is_confirmed:
            return
        if not sys.stdin.isatty():
            raise BadInputError(
                "a release must be confirmed, but there is no terminal to ask; pass --yes, or --seed to rehearse"
            )
        if not typer.confirm(f"{note}Release the {release}, with a privacy loss of {Loss.of(guarantee)}?", err=True):
            raise BadInputError("the release was not confirmed; nothing was released")

    def check(self, *guarantees: Guarantee) -> None:
        """Raise BadInputError if the ledger has less left than releases with these guarantees spend together."""
        if self.ledger is not None and self.seed is None:
            with as_bad_input():
                self.ledger.check(*guarantees)

    def check_release(self, guarantee: Guarantee, name: str) -> CheckedRelease | Rehearsal:
        """Return the release that the ledger allows, or the rehearsal of it."""
        with as_bad_input():
            return CheckedRelease(guarantee, name, self.ledger) if self.seed is None else Rehearsal(self.seed)

    def labelled(self, name: str) -> LedgerFile | None:
        """Return the ledger, in which releases have the given name."""
        return None if self.ledger is None else self.ledger.with_label(name)

    def describe_rest(self) -> list[str]:
        """Return the line on the rest of the budget; none for a rehearsal.

        It follows a release, of which an error of the ledger must not end the output.
        """
        if self.seed is not None:
            return []
        if self.ledger is None:
            return ["ledger: none; losses of all releases from these records add up"]
        try:
            return [f"ledger: {self.ledger.describe()}"]
        except ValueError:
            return [
                f"warning: the ledger {self.ledger.path}, which has this release, cannot be read; restore it before "
                "another one"
            ]

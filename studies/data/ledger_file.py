"""Ledger of the releases from one data set, in a file of JSON lines: a budget, then one line per release.

A line is on disk before the noise of its release is drawn, so that a crash can lose a release but not its entry. A last
line without a line end is counted if it is complete; a cut off one is dropped, because its release was not drawn.
By basic composition, releases with guarantees (ε_i, δ_i) are (Σε_i, Σδ_i)-DP together. Both sums have a budget, that
of δ is 0 by default, and are computed from the decimal numbers in the file, not from doubles.
"""

import errno
import fcntl
import functools
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal, localcontext
from typing import NamedTuple

from mechanisms.privacy import Guarantee
from pipeline.errors import BadInputError

_BUDGET = "budget"
_EXACT = Context(prec=1_100)  # digits of sums of doubles from 5e-324 to 1.8e308


class Loss(NamedTuple):
    """Parameters of an (ε, δ) guarantee, or a budget for their sums, as decimal numbers."""

    epsilon: Decimal
    delta: Decimal = Decimal()

    @classmethod
    def of(cls, guarantee: Guarantee) -> "Loss":
        """Return the parameters of a guarantee."""
        return cls(Decimal(repr(guarantee.epsilon)), Decimal(repr(guarantee.delta)))

    def __str__(self) -> str:
        return f"{float(self.epsilon):g}" + (f" and a delta of {float(self.delta):g}" if self.delta else "")


@dataclass(frozen=True)
class LedgerFile:
    """Ledger at a path, with the budget that the user gave; None if the file must contain it."""

    path: str
    budget: Loss | None = None

    def __post_init__(self) -> None:
        if self.budget is None:
            return
        epsilon, delta = self.budget
        if not (epsilon.is_finite() and epsilon > 0):
            raise BadInputError(f"budget must be finite and > 0, got {epsilon}; pass the total epsilon, such as 3")
        if not (delta.is_finite() and 0 <= delta < 1):
            raise BadInputError(f"delta of the budget must be in [0, 1), got {delta}; pass e.g. --budget 3:1e-6")

    def check(self, *guarantees: Guarantee) -> Loss:
        """Return the rest of the budget after releases with these guarantees, without writing; raise if it is < 0."""
        return self._remaining(self._read(), *guarantees)[0]

    def describe(self) -> str:
        """Return the rest of the budget as text."""
        rest, _, budget = self._remaining(self._read())
        text = f"{self.path}, {float(rest.epsilon):g} of the budget left"
        with_delta = f", and {float(rest.delta):g} of its delta; epsilons add up, and so do deltas"
        return text + (with_delta if budget.delta else "")

    def spend(self, guarantee: Guarantee, label: str) -> None:
        """Add a release to the file under a lock; raise BadInputError, and write nothing, if it exceeds the budget."""
        entry = {
            "epsilon": guarantee.epsilon,
            **({} if guarantee.is_pure else {"delta": guarantee.delta}),
            "release": label,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            with self._locked() as descriptor:
                content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                _remaining, whole, budget = self._remaining(content, guarantee)
                first = {_BUDGET: float(budget.epsilon), **({"delta": float(budget.delta)} if budget.delta else {})}
                lines = [entry] if whole else [first, entry]
                missing_end = b"\n" if whole and not whole.endswith(b"\n") else b""
                added = missing_end + b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                os.ftruncate(descriptor, len(whole))
                if os.pwrite(descriptor, added, len(whole)) < len(added):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
        except OSError as error:
            raise self._unusable(error) from error

    def _read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Yield a descriptor of the file, which is created if it is absent, while no other process writes to it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # the lock is held until the descriptor is closed
            yield descriptor
            folder = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY)
            try:
                os.fsync(folder)  # so that a new file survives a crash
            finally:
                os.close(folder)
        finally:
            os.close(descriptor)

    def _remaining(self, content: bytes, *guarantees: Guarantee) -> tuple[Loss, bytes, Loss]:
        """Return the rest of the budget after releases, the content without a cut off line, and the budget."""
        lines, whole = content.split(b"\n"), content
        last = lines.pop()
        if last and _parse(last) is not None:
            lines.append(last)
        else:
            whole = content[: len(content) - len(last)]
        losses: list[Loss] = []
        for number, line in enumerate(lines, 1):
            key, loss = _parse(line) or ("", None)
            if loss is None or key != ("epsilon" if losses else _BUDGET):
                wanted = "epsilon" if losses else _BUDGET
                raise BadInputError(
                    f"line {number} of the ledger {self.path} must be a JSON object with the number {wanted!r}, got "
                    "other text; restore the file, or start a ledger only for a data set without earlier releases"
                )
            losses.append(loss)
        budget = losses[0] if losses else self.budget
        if budget is None:
            raise BadInputError(
                f"--budget must be given for the new ledger {self.path}, got none; pass a total epsilon"
            )
        if self.budget not in (None, budget):
            raise BadInputError(
                f"budget must be {budget}, the budget of the ledger {self.path}, got {self.budget}; omit --budget"
            )
        spent, asked = _add(losses[1:]), _add(map(Loss.of, guarantees))
        after = _add([spent, asked])
        for name, total, used, wish, both in zip(Loss._fields, budget, spent, asked, after, strict=True):
            if name == "epsilon" and used >= total and wish:
                raise BadInputError(
                    f"the budget of {float(total):g} in the ledger {self.path} is spent, got a loss of "
                    f"{float(wish):g}; nothing was released"
                )
            if both > total:
                raise BadInputError(
                    f"{name} must be at most {float(total - used):g}, the rest of the budget of {float(total):g} in "
                    f"the ledger {self.path}, got {float(wish):g}; nothing was released"
                    + (name == "delta")
                    * "; omit --delta, or start the ledger of other records with --budget 3:1e-6"
                )
        return _add([budget, Loss(*(number.copy_negate() for number in after))]), whole, budget

    def _unusable(self, error: OSError) -> BadInputError:
        return BadInputError(f"cannot use the ledger {self.path}: {error.strerror}; nothing was released")


def _add(losses: Iterable[Loss]) -> Loss:
    with localcontext(_EXACT):
        return functools.reduce(lambda a, b: Loss(a.epsilon + b.epsilon, a.delta + b.delta), losses, Loss(Decimal()))


def _parse(line: bytes) -> tuple[str, Loss] | None:
    """Return the key and the numbers of a budget or a release, with ε > 0 and δ in [0, 1); None for other text."""
    try:
        entry = json.loads(line, parse_float=Decimal, parse_int=Decimal)
    except (ValueError, ArithmeticError, RecursionError):  # an exponent or a depth beyond all limits
        return None
    keys = [key for key in (_BUDGET, "epsilon") if isinstance(entry, dict) and key in entry]
    if len(keys) != 1:
        return None
    loss = Loss(entry[keys[0]], entry.get("delta", Decimal()))
    is_decimal = all(isinstance(number, Decimal) and number.is_finite() for number in loss)
    return (keys[0], loss) if is_decimal and loss.epsilon > 0 and 0 <= loss.delta < 1 else None

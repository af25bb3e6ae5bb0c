"""Ledger of the releases from one data set, in a file of JSON lines: a budget, then one line per release.

A line is on disk before the noise of its release is drawn, so that a crash can lose a release but not its entry. A last
line without a line end is counted if it is complete; a cut off one is dropped, because its release was not drawn.
The losses of pure guarantees add up; they are added as the decimal numbers in the file, without rounding.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pipeline.errors import BadInputError

_BUDGET = "budget"


@dataclass(frozen=True)
class LedgerFile:
    """Ledger at a path, with the budget in nats that the user gave; None if the file must contain it."""

    path: str
    budget: Decimal | None = None

    def __post_init__(self) -> None:
        if self.budget is not None and not (self.budget.is_finite() and self.budget > 0):
            raise BadInputError(f"budget must be finite and > 0, got {self.budget}; pass the total epsilon, such as 3")

    def check(self, *losses: float) -> Decimal:
        """Return the rest of the budget after releases with these losses, without writing; raise if it is < 0."""
        try:
            with open(self.path, "rb") as file:
                return self._remaining(file.read(), *losses)[0]
        except FileNotFoundError:
            return self._remaining(b"", *losses)[0]
        except OSError as error:
            raise self._unusable(error) from error

    def spend(self, epsilon: float, label: str) -> None:
        """Add a release to the file under a lock; raise BadInputError, and write nothing, if it exceeds the budget."""
        entry = {"epsilon": epsilon, "release": label, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            with self._locked() as descriptor:
                content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                _remaining, whole, budget = self._remaining(content, epsilon)
                lines = [entry] if whole else [{_BUDGET: float(budget)}, entry]
                missing_end = b"\n" if whole and not whole.endswith(b"\n") else b""
                added = missing_end + b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                os.ftruncate(descriptor, len(whole))
                if os.pwrite(descriptor, added, len(whole)) < len(added):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
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

    def _remaining(self, content: bytes, *losses: float) -> tuple[Decimal, bytes, Decimal]:
        """Return the rest of the budget after releases, the content without a cut off line, and the budget."""
        lines, whole = content.split(b"\n"), content
        last = lines.pop()
        if last and _parse(last) is not None:
            lines.append(last)
        else:
            whole = content[: len(content) - len(last)]
        entries = [_parse(line) for line in lines]
        wanted = [_BUDGET, *["epsilon"] * (len(lines) - 1)] if lines else []
        for number, (entry, key) in enumerate(zip(entries, wanted, strict=True), 1):
            if entry is None or key not in entry:
                raise BadInputError(
                    f"line {number} of the ledger {self.path} must be a JSON object with the number {key!r}, got other "
                    "text; restore the file, or start a ledger only for a data set without earlier releases"
                )
        if not lines and self.budget is None:
            raise BadInputError(
                f"--budget must be given for the new ledger {self.path}, got none; pass a total epsilon"
            )
        budget = entries[0][_BUDGET] if entries and entries[0] else self.budget
        assert budget is not None
        if self.budget not in (None, budget):
            raise BadInputError(
                f"budget must be {budget}, the budget of the ledger {self.path}, got {self.budget}; omit --budget"
            )
        spent = sum((entry["epsilon"] for entry in entries[1:] if entry), Decimal())
        wanted_loss = sum((Decimal(repr(loss)) for loss in losses), Decimal())
        remaining = budget - spent - wanted_loss
        if remaining < 0:
            if spent >= budget:
                raise BadInputError(
                    f"the budget of {float(budget):g} in the ledger {self.path} is spent, got a loss of "
                    f"{float(wanted_loss):g}; nothing was released"
                )
            raise BadInputError(
                f"epsilon must be at most {float(budget - spent):g}, the rest of the budget of {float(budget):g} in "
                f"the ledger {self.path}, got {float(wanted_loss):g}; nothing was released"
            )
        return remaining, whole, budget

    def _unusable(self, error: OSError) -> BadInputError:
        return BadInputError(f"cannot use the ledger {self.path}: {error.strerror}; nothing was released")


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return an entry, whose budget or ε is a finite decimal > 0; None for other text."""
    try:
        entry = json.loads(line, parse_float=Decimal, parse_int=Decimal)
    except ValueError:
        return None
    if not isinstance(entry, dict):
        return None
    numbers = [entry[key] for key in (_BUDGET, "epsilon") if key in entry]
    is_valid = len(numbers) == 1 and isinstance(numbers[0], Decimal) and numbers[0].is_finite() and numbers[0] > 0
    return entry if is_valid else None

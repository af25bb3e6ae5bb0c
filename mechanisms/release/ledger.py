"""Ledger of the releases from one data set, in a file of JSON lines: a budget, then one line per release.

A line is on disk before the noise of its release is drawn, so that a crash can lose a release but not its entry. A last
line without a line end is counted if it is complete; a cut off one is dropped, because its release was not drawn.
By basic composition, releases with guarantees (ε_i, δ_i) are (Σε_i, Σδ_i)-DP together. Both sums have a budget, that
of δ is 0 by default, and are computed from the decimal numbers in the file, not from doubles.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Context, Decimal, localcontext
from typing import NamedTuple

from mechanisms.core.arguments import describe, is_real
from mechanisms.core.privacy import Guarantee, Neighbouring, Status
from mechanisms.core.privacy_parameters import as_decimal, format_loss, format_rest

_BUDGET = "budget"
_MAX_REPLACEMENTS = 100  # of the file while a process waits for its lock
_EXACT = Context(prec=1_100)  # digits of sums of doubles from 5e-324 to 1.8e308


class Loss(NamedTuple):
    """Parameters of an (ε, δ) guarantee under replacement of one record, or a budget for their sums."""

    epsilon: Decimal
    delta: Decimal = Decimal()

    @classmethod
    def of(cls, guarantee: Guarantee) -> Loss:
        """Return the loss of a guarantee under replacement of one record, twice ε under addition and removal."""
        if not isinstance(guarantee, Guarantee):
            raise ValueError(f"a ledger adds (epsilon, delta) guarantees, got {guarantee}; convert it to a Guarantee")
        epsilon, delta = map(as_decimal, (guarantee.epsilon, guarantee.delta))
        if guarantee.relation is Neighbouring.REPLACE_ONE:
            return cls(epsilon, delta)
        if delta:
            raise ValueError(f"delta must be 0 under add/remove in a ledger, got {guarantee}; use replacement")
        return cls(as_decimal(2.0 * guarantee.epsilon))  # doubling a double is exact

    def __str__(self) -> str:
        return format_loss(self.epsilon) + (f" and a delta of {format_loss(self.delta)}" if self.delta else "")


class LedgerError(ValueError):
    """Refusal of a release; `reason` omits that nothing was released, for callers with an earlier release."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; nothing was released{remedy}")
        self.reason = reason


BudgetLike = Loss | float | str | Decimal | tuple[float | str | Decimal, float | str | Decimal]
"""Budget of ε as a number, with a budget of δ as a pair, or either as text, ``3`` or ``3:1e-6``."""


@dataclass(frozen=True, init=False)
class LedgerFile:
    """Ledger of the releases from one data set, in a file that refuses losses beyond a budget.

    Functions that release real data take it, or the path of an existing ledger, as `ledger`, and add a line to the file
    before noise is drawn. The commands ``dpstudies mean`` to ``partition`` use the same files. Unlike `Ledger`, which
    computes the total of given releases by tight accounting and stores nothing, it uses basic composition, enforces a
    budget and survives the process.

    Parameters
    ----------
    path : str or path
        File on a local POSIX file system, which is created by the first release. The folder must exist.
    budget : float, str, Decimal or pair, optional
        Total ε, finite and > 0, or a pair of total ε and total δ in [0, 1), or text, ``"3:1e-6"``. Floats are the
        decimal numbers that they print as. It can be omitted for an existing file, and otherwise equals that of the
        file.
    label : str, optional
        Text of the lines that releases with this object add; by default the name of the function.

    Privacy
    -------
    Releases with (εᵢ, δᵢ)-DP whose lines are in the file are together (Σεᵢ, Σδᵢ)-DP, at most the budget, under
    replacement of one record, also if the parameters of a release depend on the outputs of earlier ones. An ε-DP
    release under addition or removal of one record enters 2ε: a replacement is a removal and an addition, so that the
    release is 2ε-DP under replacement (group privacy). The total is no guarantee under addition and removal, as
    releases under replacement publish the number of records. One ledger must count all releases from a data set.

    Raises
    ------
    ValueError
        If the budget is invalid, is another one than that of the file, or is missing; if a release exceeds it, or the
        file is damaged or cannot be written. Nothing is written.

    Examples
    --------
    >>> import os, tempfile
    >>> from mechanisms import private_posterior
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = LedgerFile(os.path.join(folder, "people.ledger"), budget=3)
    ...     posterior = private_posterior([52, 48], "multinomial", (1, 1), 2.0, n=100, ledger=ledger)
    ...     print(posterior.guarantee, ledger.check())
    ...     try:
    ...         private_posterior([52, 48], "multinomial", (1, 1), 2.0, n=100, ledger=ledger.path)
    ...     except ValueError as error:
    ...         print(str(error).partition(",")[0])
    2-DP 1
    epsilon must be at most 1
    """

    path: str
    budget: Loss | None
    label: str | None
    file: str = field(init=False)  # absolute path, which a change of the folder or another process leaves

    def __init__(
        self, path: str | os.PathLike[str], budget: BudgetLike | None = None, *, label: str | None = None
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"the path of a ledger must be a string or a path, got {describe(path)}; pass one")
        if not (label is None or isinstance(label, str)):
            raise ValueError(f"label must be a string, got {describe(label)}; pass the name of the release")
        total = None if budget is None else _as_loss(budget)
        name = os.fspath(path)
        vars(self).update(path=name, budget=total, label=label, file=os.path.abspath(name))

    def with_label(self, label: str) -> LedgerFile:
        """Return this ledger with another text of the lines that its releases add."""
        labelled = LedgerFile(self.path, self.budget, label=label)
        vars(labelled).update(file=self.file)
        return labelled

    def check(self, *guarantees: Guarantee) -> Loss:
        """Return the rest of the budget after releases with these guarantees, without writing; raise if it is < 0."""
        return self._remaining(self._read(), *guarantees)[0]

    def describe(self) -> str:
        """Return the rest of the budget as text."""
        rest, _, budget = self._remaining(self._read())
        text = f"{self.path}, {format_rest(rest.epsilon)} of the budget left"
        with_delta = f", and {format_rest(rest.delta)} of its delta; epsilons add up, and so do deltas"
        return text + (with_delta if budget.delta else "")

    def spend(self, guarantee: Guarantee, label: str) -> None:
        """Add a release to the file under a lock; raise ValueError, and write nothing, if it exceeds the budget."""
        loss = Loss.of(guarantee)
        is_usual = guarantee.relation is Neighbouring.REPLACE_ONE and guarantee.status is Status.PROVED
        entry = {
            "epsilon": float(loss.epsilon),
            **({"delta": float(loss.delta)} if loss.delta else {}),
            **({} if is_usual else {"guarantee": str(guarantee)}),
            "release": label,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            with self._locked() as descriptor:
                content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                _remaining, complete_lines, budget = self._remaining(content, guarantee)
                first = {_BUDGET: float(budget.epsilon), **({"delta": float(budget.delta)} if budget.delta else {})}
                lines = [entry] if complete_lines.strip() else [first, entry]
                missing_end = b"\n" if complete_lines and not complete_lines.endswith(b"\n") else b""
                added = missing_end + b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                os.ftruncate(descriptor, len(complete_lines))
                if os.pwrite(descriptor, added, len(complete_lines)) < len(added):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
        except OSError as error:
            raise self._unusable(error) from error

    def _read(self) -> bytes:
        try:
            with open(os.open(self.file, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe has no end
                _require_regular(file.fileno())
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unusable(error) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Yield a descriptor of the file, which is created if it is absent, while no other process writes to it."""
        import fcntl  # of POSIX only; the rest of the package needs no POSIX system

        file = os.path.realpath(self.file)
        for _ in range(_MAX_REPLACEMENTS):
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
            try:
                _require_regular(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not _is_same(descriptor, file):
                    continue  # the file was replaced while this process waited for the lock
                yield descriptor
                if not _is_same(descriptor, file):
                    raise OSError(errno.EAGAIN, "the file was replaced by another one during the entry")
                _sync_folder(file)  # so that a new file survives a crash
                return
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have the same open file
                os.close(descriptor)
        raise OSError(errno.EAGAIN, "the file is replaced by another one again and again")

    def _remaining(self, content: bytes, *guarantees: Guarantee) -> tuple[Loss, bytes, Loss]:
        """Return the rest of the budget after releases, the content without a cut off line, and the budget."""
        lines, complete_lines = content.split(b"\n"), content
        last = lines.pop()
        if last and _parse(last) is not None:
            lines.append(last)
        elif not last or _is_cut_off(last):
            complete_lines = content[: len(content) - len(last)]
        else:
            lines.append(last)  # other text, which is refused
        losses: list[Loss] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            key, loss = _parse(line) or ("", None)
            if loss is None or key != ("epsilon" if losses else _BUDGET):
                wanted = "epsilon" if losses else _BUDGET
                raise ValueError(
                    f"line {number} of the ledger {self.path} must be a JSON object with the number {wanted!r}, got "
                    "other text; restore the file, or start a ledger only for a data set without earlier releases"
                )
            losses.append(loss)
        budget = losses[0] if losses else self.budget
        if budget is None:
            raise ValueError(f"a budget must be given for the new ledger {self.path}, got none; pass a total epsilon")
        if self.budget not in (None, budget):
            raise ValueError(
                f"budget must be {budget}, the budget of the ledger {self.path}, got {self.budget}; omit it"
            )
        spent, asked = _add(losses[1:]), _add(map(Loss.of, guarantees))
        is_doubled = any(guarantee.relation is not Neighbouring.REPLACE_ONE for guarantee in guarantees)
        remedy = "; an epsilon under add/remove counts twice" if is_doubled else ""
        after = _add([spent, asked])
        for name, total, used, wish, used_after in zip(Loss._fields, budget, spent, asked, after, strict=True):
            if name == "epsilon" and used >= total and wish:
                reason = (
                    f"the budget of {float(total):g} in the ledger {self.path} is spent, got a loss of "
                    f"{format_loss(wish)}"
                )
                raise LedgerError(reason, remedy)
            if used_after > total:
                if name == "delta":
                    remedy += "; choose a delta of 0, or start the ledger of other records with a delta, 3:1e-6"
                raise LedgerError(
                    f"{name} must be at most {format_rest(total - used)}, the rest of the budget of {float(total):g} "
                    f"in the ledger {self.path}, got {format_loss(wish)}",
                    remedy,
                )
        return _add([budget, Loss(*(number.copy_negate() for number in after))]), complete_lines, budget

    def _unusable(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"cannot use the ledger {self.path}: {error.strerror}", "; choose a file that can be written"
        )


def _as_loss(budget: BudgetLike) -> Loss:
    """Return a valid budget; floats are the decimal numbers that they print as, which the file contains."""
    parts = budget.split(":") if isinstance(budget, str) else budget if isinstance(budget, tuple) else (budget,)
    try:
        is_number = all(isinstance(part, str | Decimal) or is_real(part) for part in parts)
        if len(parts) > 2 or not is_number or any("_" in part for part in parts if isinstance(part, str)):
            raise ValueError
        epsilon, *rest = (Decimal(repr(float(part))) for part in parts)
        delta = rest[0] if rest else Decimal()
    except (ValueError, OverflowError):
        raise ValueError(
            f"budget must be a number > 0, got {budget!r}; pass the total epsilon, such as 3, or with a delta, 3:1e-6"
        ) from None
    if not (epsilon.is_finite() and epsilon > 0):
        raise ValueError(f"budget must be finite and > 0, got {epsilon}; pass the total epsilon, such as 3")
    if not (delta.is_finite() and 0 <= delta < 1):
        raise ValueError(f"delta of the budget must be in [0, 1), got {delta}; pass e.g. 3:1e-6")
    return Loss(epsilon, delta)


def _require_regular(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _is_same(descriptor: int, file: str) -> bool:
    """Return True if an open file is the one at a path."""
    opened = os.fstat(descriptor)
    try:
        at_path = os.stat(file)
    except FileNotFoundError:
        return False
    return (opened.st_dev, opened.st_ino) == (at_path.st_dev, at_path.st_ino)


def _sync_folder(file: str) -> None:
    folder = os.open(os.path.dirname(file), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _add(losses: Iterable[Loss]) -> Loss:
    with localcontext(_EXACT):
        return functools.reduce(lambda a, b: Loss(a.epsilon + b.epsilon, a.delta + b.delta), losses, Loss(Decimal()))


def _parse(line: bytes) -> tuple[str, Loss] | None:
    """Return the key and the numbers of a budget or a release; None for other text.

    δ is in [0, 1), and ε is > 0, or 0 if a release has δ > 0.
    """
    try:
        entry = json.loads(line, parse_float=Decimal, parse_int=Decimal)
    except (ValueError, ArithmeticError, RecursionError):  # an exponent or a depth beyond all limits
        return None
    keys = [key for key in (_BUDGET, "epsilon") if isinstance(entry, dict) and key in entry]
    if len(keys) != 1:
        return None
    loss = Loss(entry[keys[0]], entry.get("delta", Decimal()))
    is_decimal = all(isinstance(number, Decimal) and number.is_finite() and _is_double(number) for number in loss)
    if not is_decimal or not 0 <= loss.delta < 1:
        return None
    is_loss = loss.epsilon > 0 or (loss.epsilon == 0 < loss.delta and keys[0] == "epsilon")
    return (keys[0], loss) if is_loss else None


def _is_cut_off(line: bytes) -> bool:
    """Return True if a line is the beginning of a budget or of an entry, as a crash leaves it."""
    return any(line.startswith(start) or start.startswith(line) for start in (b'{"budget": ', b'{"epsilon": ')) and (
        not line.endswith(b"}")
    )


def _is_double(number: Decimal) -> bool:
    """Return True for numbers between those of doubles, whose sums are exact."""
    return not number or -400 < number.adjusted() < 400

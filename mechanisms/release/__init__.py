"""The way of private records to a release: checks, ledger, exact noise.

`CheckedRelease` is a release that has passed its public checks. Entering it writes a line of its `LedgerFile` to the
disk, calls the user's function, and returns `ExactNoise`, the only object that draws noise with entropy of the
operating system. `check_release` returns a `Rehearsal` instead if there is a seed.
"""

from mechanisms.release.entry import (
    CheckedRelease,
    ExactNoise,
    Hook,
    LedgerLike,
    Rehearsal,
    check_release,
    open_ledger,
    require_opendp,
)
from mechanisms.release.ledger import LedgerError, LedgerFile, Loss

__all__ = [
    "CheckedRelease",
    "ExactNoise",
    "Hook",
    "LedgerError",
    "LedgerFile",
    "LedgerLike",
    "Loss",
    "Rehearsal",
    "check_release",
    "open_ledger",
    "require_opendp",
]

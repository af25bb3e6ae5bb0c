"""Exceptions of the pipeline, and parts of their messages."""

import shlex
from collections.abc import Iterable
from difflib import get_close_matches


class BadInputError(ValueError):
    """Invalid user input, raised before anything is written; the message is one line."""


class IncompleteStoreError(RuntimeError):
    """Error for a store whose creation was interrupted; `resume` completes it."""


class UnreadableStoreError(RuntimeError):
    """Error for a store with missing content or a failed checksum; `verify` finds and repairs the damage."""


class DamagedChunkError(ValueError):
    """Error for a chunk that fails its checksum or cannot be decoded."""


class StoreAccessError(RuntimeError):
    """Error of network, permissions or disk space on access to a store that is not damaged."""


class BusyStoreError(BadInputError):
    """Error for a store to which another session is writing."""


class SessionSupersededError(RuntimeError):
    """Error for a write by a session that another session has replaced after a missed lease."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"another session has taken over the store {url}, because this session was suspended for longer than its "
            f"lease; show the status with: {command('status', url)}"
        )
        self.url = url

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Return the arguments for unpickling: the constructor takes the URL."""
        return type(self), (self.url,)


def command(*words: object) -> str:
    """Return a ``dpstudies`` command quoted for a shell.

    Examples
    --------
    >>> command("resume", "my results.zarr")
    "dpstudies resume 'my results.zarr'"
    """
    return shlex.join(["dpstudies", *map(str, words)])


def unknown(what: str, given: object, allowed: Iterable[object]) -> str:
    """Return a one-line message for an unknown name, with the nearest allowed names.

    Parameters
    ----------
    what : str
        Kind of name, such as ``"panel"``.
    given : object
        The name as the user wrote it.
    allowed : iterable
        Allowed names.

    Returns
    -------
    str
        The message, without a line break.

    Examples
    --------
    >>> unknown("factor", "epsilom", ["epsilon", "delta"])
    "unknown factor 'epsilom'; did you mean epsilon? Allowed: epsilon, delta"
    >>> unknown("factor", "colour", [])
    "unknown factor 'colour'; none is declared here"
    """
    name, names = str(given), [str(known) for known in allowed]
    if not names:
        return f"unknown {what} {name!r}; none is declared here"
    near = get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown {what} {name!r}; {hint}Allowed: {', '.join(names)}"

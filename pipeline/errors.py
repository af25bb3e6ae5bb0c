"""Bad input: one exception, and messages that say what was given, what is near and what is allowed."""

import shlex
from collections.abc import Iterable
from difflib import get_close_matches


class BadInputError(ValueError):
    """What a user gave is refused, before anything was written; the message is one line that says what to do."""


class IncompleteStoreError(RuntimeError):
    """A store whose creation was interrupted; resume finishes it."""


class UnreadableStoreError(RuntimeError):
    """Damage of a store: content that fails its checksum, or is absent; `verify` finds and repairs it."""


class DamagedChunkError(ValueError):
    """A chunk that fails its checksum or cannot be decoded."""


class StoreAccessError(RuntimeError):
    """A store that cannot be read or written now, for a reason that is not damage: the network, rights, a full disk."""


class BusyStoreError(BadInputError):
    """Another session is writing to the store."""


class SessionSupersededError(RuntimeError):
    """Another session has taken over the store, as this one showed no sign of life; its writes are refused."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"another session has taken over the store {url}, as this one had stopped for longer than its lease; "
            f"see what is there with: {command('status', url)}"
        )
        self.url = url

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Return what restores the error in another process."""
        return type(self), (self.url,)


def command(*words: object) -> str:
    """Return a command of ``dpstudies`` as it is typed in a shell.

    Examples
    --------
    >>> command("resume", "my results.zarr")
    "dpstudies resume 'my results.zarr'"
    """
    return shlex.join(["dpstudies", *map(str, words)])


def unknown(what: str, given: object, allowed: Iterable[object]) -> str:
    """Return one line that refuses a name and offers the nearest allowed ones.

    Parameters
    ----------
    what : str
        What the name stands for, such as ``"panel"``.
    given : object
        The name as the user wrote it.
    allowed : iterable
        The names that would have been accepted.

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

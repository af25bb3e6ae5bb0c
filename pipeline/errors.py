"""Bad input: one exception, and messages that say what was given, what is near and what is allowed."""

from collections.abc import Iterable
from difflib import get_close_matches


class BadInputError(ValueError):
    """What a user gave is refused, before anything was written; the message is one line that says what to do."""


class IncompleteStoreError(RuntimeError):
    """A store whose creation was interrupted; resume finishes it."""


class UnreadableStoreError(RuntimeError):
    """Something that was committed cannot be read; verify finds it and returns it to what is pending."""


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

"""Exceptions of the pipeline, and parts of their messages."""

import gzip
import json
import shlex
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal


class BadInputError(ValueError):
    """Error for invalid user input, raised before anything is written; the message is one line."""


@contextmanager
def as_bad_input(place: str = "") -> Iterator[None]:
    """Raise a ValueError, or the error of a package that is not installed, as a BadInputError about a place."""
    try:
        yield
    except BadInputError:
        raise
    except (ValueError, ModuleNotFoundError) as error:
        raise BadInputError(f"{place}: {error}" if place else str(error)) from error


@contextmanager
def about(place: str) -> Iterator[None]:
    """Add a place to the message of a BadInputError."""
    try:
        yield
    except BadInputError as error:
        raise BadInputError(f"{place}: {error}") from error


class IncompleteStoreError(RuntimeError):
    """Error for a store whose creation was interrupted; `resume` completes it."""


class UnreadableStoreError(RuntimeError):
    """Error for a store with missing content or a failed checksum; `verify` finds and repairs the damage."""


@dataclass(frozen=True)
class Damage:
    """Damage to a file of a store, or numbers that differ from recomputed ones; `kind` determines the repair.

    A repair resets ``unreadable``, ``missing`` or ``inconsistent`` chunks of a block to pending, rewrites ``damaged``
    coordinates, metadata and records, replaces ``different`` numbers, and ``lost`` records by a note.
    """

    kind: Literal["unreadable", "missing", "inconsistent", "damaged", "different", "lost"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


class DamagedChunkError(ValueError):
    """Error for a chunk that is missing, cannot be decoded, or is not the one that its block committed."""

    def __init__(self, reason: str, kind: Literal["unreadable", "missing", "inconsistent"] = "unreadable") -> None:
        super().__init__(reason)
        self.kind = kind


class StoreAccessError(RuntimeError):
    """Error due to the network, permissions or disk space on access to an undamaged store."""


class ExecutionError(RuntimeError):
    """Error that ends a run; committed work is kept."""


class TargetNotReachedError(ExecutionError):
    """Error for a run that spent its trials or time before its target was reached; no asked trial is pending."""


class BusyStoreError(BadInputError):
    """Error for a store to which another session is writing."""


class SessionSupersededError(RuntimeError):
    """Error for a write by a session that another session has superseded, or whose store was moved or deleted.

    It is not retried, and ends the run.
    """

    def __init__(self, url: str, *, is_store_missing: bool = False) -> None:
        super().__init__(
            f"the store {url} was moved or deleted during this session; if it was moved, complete it with: "
            f"{command('resume', 'NEW_PATH')}"
            if is_store_missing
            else f"another session has taken over the store {url}, because this session was suspended for longer than "
            f"its lease; show the status with: {command('status', url)}"
        )
        self.url, self.is_store_missing = url, is_store_missing

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a function and its argument, from which unpickling constructs the exception."""
        return partial(type(self), is_store_missing=self.is_store_missing), (self.url,)


def credentials_error(kind: str, url: str) -> BadInputError:
    """Return the error for a URL with credentials; the message contains only its scheme."""
    return BadInputError(
        f"the URL of a {kind} must contain no credentials and no options, got a {url.partition('://')[0]}:// URL with "
        "some; set them in the environment, such as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"
    )


def unreadable_reason(error: Exception) -> str:
    """Return the reason for which a file cannot be read: without its content, and without names of Python's classes.

    >>> unreadable_reason(EOFError("private text"))
    'its compressed content is damaged or ends early'
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON (line {error.lineno}, column {error.colno})"
    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        return "its compressed content is damaged or ends early"
    return "it is damaged, or has another format"


def command(*words: object) -> str:
    """Return a ``dpstudies`` command quoted for a shell."""
    return shlex.join(["dpstudies", *map(str, words)])


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, which is in the plural unless the number is 1.

    >>> counted(1, "pending block"), counted(2000, "pending block")
    ('1 pending block', '2,000 pending blocks')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def verb(number: int, one: str = "is", several: str = "are") -> str:
    """Return a verb for a number of things: `one` if it is 1."""
    return one if number == 1 else several


def unknown(kind: str, name: object, allowed: Iterable[object]) -> str:
    """Return a one-line message for an unknown name, with the nearest allowed names."""
    text, names = str(name), [str(known) for known in allowed]
    if not names:
        return f"unknown {kind} {text!r}; none is declared here"
    near = suggest(text, names)
    return f"unknown {kind} {text!r}; {near}{'Allowed' if near else 'allowed'}: {', '.join(names)}"


def suggest(name: str, allowed: Sequence[str], most: int = 3) -> str:
    """Return the question whether one of the nearest allowed names was meant, and a space; or an empty string."""
    near = get_close_matches(name, allowed, n=most)
    return f"did you mean {' or '.join(near)}? " if near else ""


def require_known(kind: str, names: Iterable[object], allowed: Iterable[object], where: str = "") -> None:
    """Raise `BadInputError` for the first name that is not allowed; the message begins with `where`."""
    allowed_names = list(allowed)
    for name in names:
        if name not in allowed_names:
            raise BadInputError(f"{where}{unknown(kind, name, allowed_names)}")

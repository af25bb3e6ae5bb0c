"""Rules for values of a profile, with descriptions for error messages."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dask.utils import parse_bytes, parse_timedelta

from pipeline.errors import BadInputError, suggest, unknown
from pipeline.redact import short_repr

_LEAST_BYTES = 10**6
_MOST_NAMES = 15  # largest number of names in a message


@dataclass(frozen=True)
class Rule:
    """Rule for the values of a key."""

    allowed: str  # as in "must be a number > 0"
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_integer(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_duration(value: Any) -> bool:
    try:
        return _is_number(value) and value > 0 if not isinstance(value, str) else parse_timedelta(value) > 0
    except (ValueError, KeyError, IndexError, OverflowError):
        return False


def _is_size(value: Any) -> bool:
    try:
        return (_is_number(value) or _is_text(value)) and parse_bytes(value) >= _LEAST_BYTES
    except (ValueError, OverflowError):
        return False


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(_is_text(item) for item in value)


FLAG = Rule("true or false", lambda value: isinstance(value, bool))
TEXT = Rule("text, in quotes where YAML reads it as another type", _is_text)
TEXTS = Rule("a list of texts, in quotes where YAML reads them as another type", _is_texts)
TEXT_OR_TEXTS = Rule("text or a list of texts", lambda value: _is_text(value) or (bool(value) and _is_texts(value)))
LIST = Rule("a list", lambda value: isinstance(value, list))
MAPPING = Rule("a mapping", lambda value: isinstance(value, Mapping))
COUNT = Rule("an integer >= 0", _is_integer(0))
POSITIVE = Rule("an integer >= 1", _is_integer(1))
SECONDS = Rule("a number of seconds > 0", lambda value: _is_number(value) and value > 0)
DURATION = Rule("a number of seconds > 0, or text such as 500ms or 55m", _is_duration)
SIZE = Rule("a size of at least 1 MB, such as 16GB", _is_size)
MEMORY_LIMIT = Rule(
    "a size per worker such as 2GB, a fraction <= 1 of the machine's memory, or auto",
    lambda value: value in (None, "auto") or (_is_number(value) and 0 <= value <= 1) or _is_size(value),
)


def check_values(where: str, settings: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """Raise `BadInputError` for values that violate their rules; keys without a rule are not checked."""
    for key, value in settings.items():
        if key in rules and not rules[key].accepts(value):
            raise BadInputError(f"{where}: {key} must be {rules[key].allowed}, got {short_repr(value, key)}")


def check_names(where: str, kind: str, names: Mapping[Any, Any], allowed: Collection[str]) -> None:
    """Raise `BadInputError` for unknown names; the message lists the nearest allowed names, or all if there are few."""
    for name in names:
        if name in allowed:
            continue
        if len(allowed) <= _MOST_NAMES:
            raise BadInputError(f"{where}: {unknown(kind, name, allowed)}")
        hint = suggest(str(name), list(allowed)).rstrip() or "see the Dask documentation"
        raise BadInputError(f"{where}: unknown {kind} {str(name)!r}; {hint}")

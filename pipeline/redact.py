"""Redaction of secrets in printed profiles, messages and logs."""

import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "***"
MOST_CHARACTERS = 10_000
"""Number of characters after which the text of an exception is cut."""
_WORDS = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|credential|cookie|signature|sshpass|connection.?string|keyfile"
    r"|(?:api|private|access|account)keys?(?![a-z])|(?<![a-z])(?:pass|auth|authorization|dsn|sas|sig|sv|keys?)(?![a-z])"
)
# a separator belongs to the value unless a name, a quote or the end follows
_VALUE = r"""(?:(?:Bearer|Basic)\s+)?(?:"[^"]*"|'[^']*'|[^\s,;&"'})\]]|[,;&]+(?![\w.-]*+\s?[=:])(?=[^\s,;&"'})\]]))+"""
_SECRET_NAME = re.compile(_WORDS, re.IGNORECASE)
# NAME=value, NAME: value, "NAME": value, --option value: one match per name, which the caller checks
_ASSIGNMENT = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]++)(?P<is>["']?\s?[=:]\s?|(?<=[\w-])\s+)(?=[^\s,;&})\]])""")
_VALUE_HERE = re.compile(_VALUE, re.IGNORECASE)
_PEM = re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\Z)", re.DOTALL)
# a password may contain a slash, a quote or a space; a number between the colon and the end of a word is a port
_USER = re.compile(
    r"(?<=://)(?:[^/\s'\"]*@|[^/\s:@'\"]*:(?:(?!://)\S){1,200}@|"
    r"[^/\s:@'\"]*:(?!\d{1,5}(?:\W|$)|\s)(?:(?!://)[^\n]){1,200}@)"
)


def is_secret_name(name: object) -> bool:
    """Return True if a variable, argument or option with this name is secret."""
    return _SECRET_NAME.search(str(name)) is not None


def redact(value: Any, name: object = "") -> Any:
    """Return a value from YAML, or another one as text, with `HIDDEN` in place of secrets.

    Secrets are values with a secret name, keys and certificates in PEM format, and credentials in URLs.
    """
    if value is None or isinstance(value, bool):
        return value
    if is_secret_name(name):
        return HIDDEN
    if isinstance(value, Mapping):
        # Kubernetes writes variables as {name: NAME, value: VALUE}
        names = {**dict.fromkeys(value), **({"value": value["name"]} if "name" in value else {})}
        return {redact(key): redact(item, names[key] or key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _redact_sequence(value)
    if isinstance(value, str):
        return redact_text(value)
    return value if isinstance(value, int | float) else redact_text(text_of(value))


def _redact_sequence(values: list[Any] | tuple[Any, ...]) -> Any:
    """Redact the items of a sequence; an item that follows an option with a secret name is its value."""
    redacted = [
        HIDDEN if isinstance(before, str) and before.startswith("-") and is_secret_name(before) else redact(value)
        for before, value in zip([None, *values], values, strict=False)
    ]
    return tuple(redacted) if isinstance(values, tuple) else redacted  # a named tuple has other parameters


def redact_text(text: str) -> str:
    """Return a text, such as a command, message or job script, without secrets and without lone surrogates."""
    text = _USER.sub(f"{HIDDEN}@", _PEM.sub(HIDDEN, text))
    parts, done = [], 0
    for match in _ASSIGNMENT.finditer(text):
        is_option = match["is"].isspace()
        if (
            match.start() < done
            or (is_option and not match["name"].startswith("--"))
            or not is_secret_name(match["name"])
        ):
            continue
        value = _VALUE_HERE.match(text, match.end())
        if value is not None:
            parts += [text[done : match.end()], HIDDEN]
            done = value.end()
    return encodable("".join([*parts, text[done:]]))


def encodable(text: str) -> str:
    """Return a text that can be printed and stored; a lone surrogate, as in names of files, becomes an escape."""
    return text.encode(errors="backslashreplace").decode()


def text_of(value: object, form: Callable[[object], str] = str) -> str:
    """Return `str` or `repr` of an exception, or of another object of a user, shortened, or a note if it raises."""
    try:
        text = str.__str__(form(value))  # methods of a subclass may raise exceptions as well
    except BaseException as error:
        return f"<{class_name(value)} without a text: its __{form.__name__}__ raises {class_name(error)}>"
    return shorten(text)


def class_name(value: object) -> str:
    """Return the name of the class of an exception, or of another object of a user, whatever its metaclass does."""
    return str.__str__(type.__dict__["__name__"].__get__(type(value)))


def shorten(text: str) -> str:
    """Return the first `MOST_CHARACTERS` of a text, up to a space, with the number of characters that it has."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS].rsplit(maxsplit=1)[0]} ... ({len(text):,} characters)"


def short_repr(value: Any, name: object = "") -> str:
    """Return a short one-line representation of a value without secrets."""
    return " ".join(_SHORT.repr(redact(value, name)).split())


def format_error(error: BaseException) -> str:
    """Return the type and message of an exception on one line, without secrets."""
    return redact_text(" ".join(f"{class_name(error)}: {text_of(error)}".split()))


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80

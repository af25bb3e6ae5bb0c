"""Root of a store: a file and its copy, each with a checksum that is verified when the store is opened.

The root, ``zarr.json``, contains the spec and the consolidated metadata of all arrays, so a single changed bit
could change the meaning of every number. The root and its copy have the SHA-256 of their content as an attribute.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import BadInputError
from pipeline.stores.files import Files
from pipeline.stores.layout import refuse_other_layout
from pipeline.stores.locations import ROOT, STATE

STORE_FORMAT = 5
"""Version of the layout, increased when earlier versions of this package would misread the store."""
COMPACT_FORMAT = 6
"""Version of the layout with shards, which `pipeline.compact` writes; the store can only be read."""
COPY = f"{STATE}/root.json"
_SEAL = "content_sha256"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # escape of half a character


@dataclass(frozen=True)
class Root:
    """Verified root of a store."""

    content: bytes  # in the form that Zarr reads
    is_in_place: bool = True  # False if only the copy exists: the store is being created, or its root was lost
    problem: str = ""  # damage to the root or its copy; empty if both are intact

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group."""
        return json.loads(self.content)["attributes"]


def seal(document: Mapping[str, Any], key: str = "") -> bytes:
    """Return a JSON document as bytes, with the SHA-256 of its content added to it or to its mapping `key`."""
    plain = _without_seal(document, key)
    digest = {_SEAL: sha256(canonical_json(plain))}
    sealed = {**plain, key: {**plain[key], **digest}} if key else {**plain, **digest}
    return json.dumps(sealed, indent=2).encode()


def unseal(content: bytes | None, key: str = "") -> dict[str, Any] | None:
    """Return a sealed document without its checksum, or None if it is missing, was changed, or is not Unicode text."""
    try:
        document = json.loads(content or b"")
        if _SURROGATE.search(content or b""):
            json.dumps(document, ensure_ascii=False).encode()  # raises ValueError for a lone surrogate
        held = document[key] if key else document
        plain = _without_seal(document, key)
        return plain if held[_SEAL] == sha256(canonical_json(plain)) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _without_seal(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    held = document[key] if key else document
    plain = {name: value for name, value in held.items() if name != _SEAL}
    return {**document, key: plain} if key else plain


def seal_root(content: bytes) -> bytes:
    """Return the content of a root, with its checksum added to its attributes."""
    return seal(json.loads(content), "attributes")


def read_root(files: Files) -> Root | None:
    """Read the root of a store and its copy; return None if there is no store yet."""
    stored, copy = files.read(ROOT), files.read(COPY)
    intact, copied = unseal(stored, "attributes"), unseal(copy, "attributes")
    if stored is None and copy is None:
        return None
    if intact is not None:
        assert stored is not None
        problem = "" if copied is not None else f"the copy of the root, {COPY}, is {'damaged' if copy else 'missing'}"
        root = Root(stored, problem=problem)
    elif copied is not None:
        assert copy is not None
        problem = "" if stored is None else f"the root, {ROOT}, is damaged; its copy is intact"
        root = Root(copy, is_in_place=stored is not None, problem=problem)
    else:
        raise BadInputError(_refuse(files.url, stored, copy))
    document = intact or copied
    assert document is not None
    _refuse_other_format(files.url, document["attributes"].get("store_format"))
    files.require_folders(refuse_other_layout(files.url, document))
    return root


def _refuse(url: str, stored: bytes | None, copy: bytes | None) -> str:
    """Return the error message for a location that has neither an intact root nor an intact copy."""
    try:
        attributes = json.loads(stored or b"")["attributes"]
        is_of_format_1 = {"spec", "spec_sha256", "sessions"} <= attributes.keys() and _SEAL not in attributes
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_of_format_1 = False
    if is_of_format_1:
        _refuse_other_format(url, 1)
    if copy is not None or b"store_format" in (stored or b""):
        return (
            f"the root of the store {url} and its copy ({COPY}) are damaged; restore one of the two files from a "
            "backup: no other file was changed"
        )
    return f"{url} exists but is not a result store; choose another path"


def _refuse_other_format(url: str, found: Any) -> None:
    if found not in (STORE_FORMAT, COMPACT_FORMAT):
        advice = (
            f"read it with plain xarray, or use dpstudies {'0.1' if found < 3 else '0.2'} for it, or rerun the study "
            "with another --store path"
            if isinstance(found, int) and found < STORE_FORMAT
            else "install the version of dpstudies that wrote it, or a later one"
        )
        raise BadInputError(
            f"the store {url} has format {found}, and this version reads formats {STORE_FORMAT} and {COMPACT_FORMAT}; "
            + advice
        )

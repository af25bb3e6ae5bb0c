"""Locations of stores: local folders and URLs of object stores."""

import os
import re
from collections.abc import Callable
from typing import Any

from pipeline.errors import BadInputError, credentials_error
from pipeline.faults import ObjectStoreError
from pipeline.store.files.object_clients import CLIENTS, PROBE_SECONDS, get_version, has_objects, open_objects

ROOT = "zarr.json"
STATE = ".dpstudies"
"""Folder of a store for files that Zarr does not read: the copy of the root, sessions, and temporary files."""
SESSIONS = f"{STATE}/sessions"
COPYING = f"{STATE}/copying"
"""Marker of a copy that is being written to an object store, where its objects appear one by one, the root last."""
_MAX_NAME = 255  # largest number of bytes on most file systems
_MAX_PATH = 800  # largest number of bytes; with names of files, below the 1,024 bytes of the strictest systems


def is_local(url: str) -> bool:
    """Return True for a folder, False for a URL."""
    return "://" not in url


def probe_name(label: object, run: str) -> str:
    """Return the name of a file by which machines find out that they share a folder."""
    return f"cluster-check-{label}.{run}.partial"


def is_probe(name: str) -> bool:
    """Return True for a name of `probe_name`."""
    return name.startswith("cluster-check-") and name.endswith(".partial")


def normalise_location(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a folder, or the URL of an object store without a trailing slash."""
    text = os.fsdecode(path)
    if not text.strip() or "\0" in text:
        got = "a null character" if "\0" in text else "an empty string"
        raise BadInputError(f"the path of a store must be a folder or a URL, got {got}; pass one, such as s.zarr")
    return _normal_folder(text) if is_local(text) else _normal_url(text)


def _normal_folder(text: str) -> str:
    folder = os.path.abspath(text)
    written = folder.encode(errors="surrogatepass")
    length, longest = len(written), max(map(len, written.split(b"/")))
    if length > _MAX_PATH or longest > _MAX_NAME:
        raise BadInputError(
            f"the path of a store must have at most {_MAX_PATH} bytes, and {_MAX_NAME} per name, got {length} and "
            f"{longest}; choose a shorter one"
        )
    return folder


def _normal_url(text: str) -> str:
    scheme, _, rest = text.partition("://")
    bucket, _, name = rest.partition("/")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise BadInputError(
            "the URL of a store must have the form s3://BUCKET/NAME.zarr, got other characters before ://"
        )
    if "@" in bucket or ":" in bucket or "?" in rest:  # a password may contain slashes before the "@"
        raise credentials_error("store", text)
    if scheme not in CLIENTS:
        raise BadInputError(
            f"a store must be a folder or the URL of an object store, s3://, gs:// or az://, got {text}; copy it to one"
        )
    names = name.rstrip("/").split("/")
    if not re.fullmatch(r"[\w.-]+", bucket, re.ASCII) or not name.isprintable() or {"", ".", ".."} & {*names}:
        raise BadInputError(
            f"the URL of a store must have the form s3://BUCKET/NAME.zarr, with printable names, got {text!r}"
        )
    return text.rstrip("/")


def holds_root(path: str | os.PathLike[str]) -> bool:
    """Return True if the location has the root of a store; raise `BadInputError` if the location cannot be reached."""
    url = normalise_location(path)
    return os.path.isfile(os.path.join(url, ROOT)) if is_local(url) else _reached(url, _has_root)


def exists_remotely(url: str) -> bool:
    """Return True if an object store has any object under a URL; raise `BadInputError` if there is no response."""
    return _reached(url, has_objects)


def _has_root(objects: Any, path: str) -> bool:
    return get_version(objects, f"{path}/{ROOT}") is not None


def _reached(url: str, look: Callable[[Any, str], bool]) -> bool:
    """Return whether the objects at a URL have a property, which must be known after some seconds."""
    objects, path = open_objects(url, PROBE_SECONDS)
    try:
        return look(objects, path)
    except ObjectStoreError as error:
        raise BadInputError(
            f"the object store of {url} cannot be reached: {error}; check the address, such as "
            "AWS_ENDPOINT_URL, the bucket, and the credentials in the environment"
        ) from error

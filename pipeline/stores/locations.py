"""Locations of stores: local folders and URLs of object stores."""

import os
import re

import fsspec
import fsspec.asyn

from pipeline.errors import BadInputError, credentials_error
from pipeline.redact import format_error

ROOT = "zarr.json"
STATE = ".dpstudies"
"""Folder of a store for files that Zarr does not read: the copy of the root, sessions, and temporary files."""
SESSIONS = f"{STATE}/sessions"
_MAX_NAME = 255  # largest number of bytes on most file systems
_MAX_PATH = 800  # largest number of bytes; with names of files, below the 1,024 bytes of the strictest systems
_ANSWER_SECONDS = 10  # timeout in seconds; otherwise clients would retry for a minute or longer


def is_local(url: str) -> bool:
    """Return True for a folder, False for a URL."""
    return "://" not in url


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
    if scheme == "memory":
        raise BadInputError(
            f"a store must be in persistent storage, got {text}; pass a folder or a URL such as s3://BUCKET/NAME.zarr"
        )
    try:
        fsspec.get_filesystem_class(scheme)
    except (ValueError, ImportError) as error:
        raise BadInputError(
            f"a store must be a folder or the URL of an object store whose fsspec driver is installed, got {text}: "
            f"{' '.join(str(error).split())}; for s3:// install dpstudies[s3]"
        ) from error
    if not bucket or not name.strip("/"):
        raise BadInputError(f"the URL of a store must have the form s3://BUCKET/NAME.zarr, got {text}")
    return text.rstrip("/")


def holds_root(path: str | os.PathLike[str]) -> bool:
    """Return True if the location has the root of a store; raise `BadInputError` if the location cannot be reached."""
    url = normalise_location(path)
    return os.path.isfile(os.path.join(url, ROOT)) if is_local(url) else _exists_any(url, f"/{ROOT}")


def exists_remotely(url: str) -> bool:
    """Return True if an object store has any object under a URL; raise `BadInputError` if there is no response."""
    return _exists_any(url, f"/{ROOT}", "")


def _exists_any(url: str, *ends: str) -> bool:
    """Return True if an object or folder exists at the URL followed by any of `ends`."""
    try:
        files, base = fsspec.url_to_fs(url, use_listings_cache=False)
        return any(
            fsspec.asyn.sync(files.loop, files._exists, key, timeout=_ANSWER_SECONDS)
            if isinstance(files, fsspec.asyn.AsyncFileSystem)
            else files.exists(key)
            for key in (base + end for end in ends)
        )
    except fsspec.FSTimeoutError as error:
        raise BadInputError(
            f"the object store of {url} cannot be reached: no response within {_ANSWER_SECONDS} s; check the address, "
            "such as AWS_ENDPOINT_URL, and the network"
        ) from error
    except Exception as error:  # each client has different error types
        raise BadInputError(
            f"the object store of {url} cannot be reached: {format_error(error)}; check the address, the "
            "bucket, and the credentials in the environment"
        ) from error

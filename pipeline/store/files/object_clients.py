"""Clients of object stores, which the environment configures, and requests to them.

A request is repeated after transient errors. If the response to a conditional write is lost, its repetition finds that
the condition is not met, so callers then compare the object with the content.
"""

import errno
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from obstore import store as stores
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError

from pipeline.errors import BadInputError
from pipeline.faults import NO_CREDENTIALS, ObjectStoreError, is_transient, retried
from pipeline.redact import redact_text

CLIENTS: dict[str, Callable[..., Any]] = {
    "s3": stores.S3Store,
    "s3a": stores.S3Store,
    "gs": stores.GCSStore,
    "az": stores.AzureStore,
    "memory": stores.MemoryStore,
}
"""Clients by scheme: S3 and compatible stores, Google Cloud Storage, Azure, and the memory of this process."""
_CONFIGURATION = ("AWS_", "AZURE_", "GOOGLE_")  # first letters of the variables of the environment
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REQUEST_SECONDS = 30  # an interrupt waits for the end of a request
PROBE_SECONDS = 4
"""Limit per request before anything is written; with three repetitions, it is reported within 30 s."""
_METADATA_SERVICE = re.compile(r"://(169\.254\.|metadata\.)")  # has the credentials of a machine in the cloud

Answer = TypeVar("Answer")


def open_objects(url: str, seconds: int = _REQUEST_SECONDS) -> tuple[Any, str]:
    """Return the client of the bucket of a URL, with a limit per request in seconds, and the path in the bucket."""
    scheme, _, address = url.partition("://")
    bucket, _, path = address.partition("/")
    if scheme == "memory":
        return _memory(bucket), path
    environment = tuple(sorted((name, text) for name, text in os.environ.items() if name.startswith(_CONFIGURATION)))
    for name, text in environment:
        _require_variable(name, text)
    try:
        return _client(scheme, bucket, seconds, environment), path
    except BadInputError:
        raise
    except Exception as error:  # providers of credentials have various errors
        raise BadInputError(
            f"the object store of {url} cannot be used: {_text_of(error)}; set its account and credentials in the "
            "environment"
        ) from None


@cache  # of the objects of each bucket, until the process ends
def _memory(bucket: str) -> Any:
    return stores.MemoryStore()


@lru_cache(maxsize=16)  # opening a client takes 40 ms; more buckets than these are rare
def _client(scheme: str, bucket: str, seconds: int, environment: tuple[tuple[str, str], ...]) -> Any:
    """Return the client of a bucket, which reads the variables of the environment."""
    options: dict[str, Any] = {
        "client_options": {"allow_http": True, "connect_timeout": "5 s", "timeout": f"{seconds} s"},
        "retry_config": {"max_retries": 0},  # `retried` repeats requests
    }
    names = [name for name, _ in environment]
    if scheme in ("s3", "s3a") and "AWS_PROFILE" in names and "AWS_ACCESS_KEY_ID" not in names:
        try:
            from obstore.auth.boto3 import Boto3CredentialProvider
        except ModuleNotFoundError as error:
            raise BadInputError(
                "the profile in AWS_PROFILE requires boto3; pip install 'dpstudies[s3]', or set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY"
            ) from error
        options["credential_provider"] = Boto3CredentialProvider()
    return CLIENTS[scheme](bucket, **options)


def _require_variable(name: str, text: str) -> None:
    """Raise `BadInputError` for a variable of the environment with which the client would terminate."""
    form = "be printable text"
    is_right = text.isprintable() or name.startswith("GOOGLE_")  # such as a JSON document
    if name in _ENDPOINTS:
        form = "have the form http://HOST:PORT or https://HOST"
        try:
            address = urlsplit(text)
            is_url = address.scheme in ("http", "https") and (address.port or 1) > 0
            is_right &= is_url and bool(re.fullmatch(r"[\w.:-]+", address.hostname or "", re.ASCII))
            is_right &= "@" not in address.netloc and not re.search(r"[\s?#]", text)
        except ValueError:  # an invalid port or IPv6 address
            is_right = False
    if not is_right:
        raise BadInputError(f"the environment variable {name} must {form}, got another text; correct it, or unset it")


def request(function: Callable[..., Answer], *arguments: Any) -> Answer:
    """Call a function with a request of obstore until it raises no transient error; raise its errors as OSError."""
    return retried(_call, function, *arguments)


@cache  # of one number
def _first_process() -> int:
    """Return the identifier of the process that made the first request; others lack the threads of its clients."""
    return os.getpid()


def _call(function: Callable[..., Answer], *arguments: Any) -> Answer:
    if os.getpid() != _first_process():
        raise BadInputError(
            "an object store cannot be used in a process that was forked after a request to one; start processes with "
            "the method 'spawn'"
        )
    try:
        return function(*arguments)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "the bucket or the object does not exist") from None
    except (BaseError, NotImplementedError) as error:
        raise _as_os_error(error) from None


def get(objects: Any, path: str) -> bytes | None:
    """Return the content of an object, or None if it does not exist."""
    try:
        return request(lambda: bytes(objects.get(path).bytes()))
    except FileNotFoundError:
        return None


def get_version(objects: Any, path: str) -> dict[str, str] | None:
    """Return the entity tag, and the version if the object store has versions, or None if there is no object."""
    try:
        metadata = request(objects.head, path)
    except FileNotFoundError:
        return None
    return {name: metadata[name] for name in ("e_tag", "version") if metadata[name] is not None}


def put_if(objects: Any, path: str, content: bytes, version: Mapping[str, str] | None) -> bool:
    """Write an object if it has `version` or, for None, if it does not exist; otherwise return False."""

    def put() -> bool:
        try:
            objects.put(path, content, mode=version or "create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    return request(put)


def delete(objects: Any, path: str) -> None:
    """Remove an object if it exists."""
    with suppress(FileNotFoundError):
        request(objects.delete, path)


def list_paths(objects: Any, folder: str) -> list[str]:
    """Return the paths of all objects in a folder and its folders."""
    return request(lambda: [entry["path"] for entry in objects.list(folder).collect()])


def has_objects(objects: Any, folder: str) -> bool:
    """Return True if there is an object in a folder or its folders."""
    return request(lambda: next(iter(objects.list(folder, chunk_size=1)), None) is not None)


def require_conditional_writes(url: str, key: str) -> None:
    """Raise `BadInputError` unless an object store refuses writes of an object whose condition is not met."""
    objects, folder = open_objects(url, PROBE_SECONDS)
    probe, reason = f"{folder}/{key}", "a test of them failed"
    try:
        put_if(objects, probe, b"created", None)
        is_created_again = put_if(objects, probe, b"created again", None)
        version = get_version(objects, probe)
        put_if(objects, probe, b"updated", version)
        is_updated_again = put_if(objects, probe, b"updated again", version)
        if not (is_created_again or is_updated_again) and get(objects, probe) == b"updated":
            return
    except ObjectStoreError as error:
        if is_transient(error) or error.status in (400, 401, 403):
            raise
        reason = str(error)
    finally:
        delete(objects, probe)
    raise BadInputError(
        f"the object store of {url} must have conditional writes (If-None-Match and If-Match), which keep sessions "
        f"apart, but {reason}; choose another --store"
    )


def _as_os_error(error: Exception) -> ObjectStoreError:
    """Return an error with the code and status of the response, which obstore only states in the text of its error.

    The rest of the response is dropped, because responses to wrong credentials contain keys and signed texts.
    """
    text = _text_of(error)
    if _METADATA_SERVICE.search(text):
        return ObjectStoreError("no credentials in the environment, and none for this machine", NO_CREDENTIALS)
    if status := re.search(r"status code: (\d{3})", text):
        code, message = (re.search(f"<{tag}>([^<]*)</{tag}>", text) for tag in ("Code", "Message"))
        name = code[1] if code else ""
        reason = f"HTTP status {status[1]}" + (f" ({name})" if name else "") + (f": {message[1]}" if message else "")
        return ObjectStoreError(reason, name, int(status[1]))
    if isinstance(error, GenericError):
        return ObjectStoreError(f"no complete response ({text.rpartition(' - ')[2]})")
    return ObjectStoreError(text, type(error).__name__)


def _text_of(error: Exception) -> str:
    """Return the message of an error in one line, without secrets and without the fields of the error."""
    return redact_text(" ".join(str(error).partition("\n\nDebug source")[0].split()))

"""Tests of the classification of input/output errors by their causes."""

import errno
import os

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from fsspec import FSTimeoutError
from s3fs.errors import translate_boto_error

from pipeline.faults import explain, is_expired, is_transient, retried

TRANSIENT = ("ESTALE", "EIO", "EMFILE", "ENFILE", "EAGAIN", "EINTR", "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "EPIPE")
FATAL = ("ENOSPC", "EROFS", "EACCES", "EPERM", "EDQUOT", "ENOENT", "EISDIR", "ENAMETOOLONG", "EINVAL")


def answer(code, status):
    """Return the exception that an S3 client raises for a response."""
    return ClientError({"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Put")


@pytest.mark.parametrize("name", TRANSIENT)
def test_transient_system_errors(name):
    number = getattr(errno, name)
    assert is_transient(OSError(number, os.strerror(number)))


@pytest.mark.parametrize("name", FATAL)
def test_other_system_errors_are_not_transient(name):
    number = getattr(errno, name)
    assert not is_transient(OSError(number, os.strerror(number)))
    assert not is_expired(OSError(number, os.strerror(number)))


@pytest.mark.parametrize(
    "error",
    [TimeoutError(), FSTimeoutError(), ConnectionResetError(), EndpointConnectionError(endpoint_url="http://h")],
    ids=lambda error: type(error).__name__,
)
def test_timeouts_and_lost_connections_are_transient(error):
    assert is_transient(error)


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), MemoryError(), OSError("no number")], ids=repr)
def test_other_errors_are_not(error):
    assert not is_transient(error)


@pytest.mark.parametrize(
    ("code", "status", "transient", "expired"),
    [
        ("SlowDown", 503, True, False),
        ("InternalError", 500, True, False),
        ("Throttling", 400, True, False),
        ("RequestTimeout", 400, True, False),
        ("TooManyRequests", 429, True, False),
        ("BadGateway", 502, True, False),
        ("AccessDenied", 403, False, False),
        ("NoSuchBucket", 404, False, False),
        ("ExpiredToken", 400, False, True),
        ("ExpiredTokenException", 400, False, True),  # s3fs translates it to EIO
        ("RequestExpired", 400, False, True),
        ("QuotaExceeded", 403, False, False),
    ],
)
def test_answers_of_object_stores(code, status, transient, expired):
    """The error of an S3 client and the error that s3fs raises for it belong to the same class."""
    for error in (answer(code, status), translate_boto_error(answer(code, status))):
        assert (is_transient(error), is_expired(error)) == (transient, expired)


def test_missing_credentials_are_not_transient():
    assert is_expired(NoCredentialsError())
    assert not is_transient(NoCredentialsError())


def caused(error, cause):
    error.__cause__ = cause
    return error


def test_errors_are_classified_by_their_cause():
    stale, full = OSError(errno.ESTALE, "stale"), OSError(errno.ENOSPC, "full")
    assert is_transient(caused(RuntimeError("cannot write"), stale))
    assert not is_transient(RuntimeError("cannot write"))
    assert not is_transient(caused(full, TimeoutError()))


def test_a_group_is_transient_if_all_its_errors_are():
    stale, full = OSError(errno.ESTALE, "stale"), OSError(errno.ENOSPC, "full")
    assert is_transient(ExceptionGroup("g", [stale, TimeoutError()]))
    assert not is_transient(ExceptionGroup("g", [stale, full]))


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "full"), "free some space"),
        (OSError(errno.EDQUOT, "quota"), "larger quota"),
        (OSError(errno.EROFS, "read-only"), "mount the file system with write access"),
        (PermissionError(errno.EACCES, "denied"), "check the permissions"),
        (translate_boto_error(answer("ExpiredToken", 400)), "renew the credentials"),
    ],
    ids=str,
)
def test_explanations_are_one_line_with_advice(error, advice):
    assert advice in explain(error)
    assert "\n" not in explain(error)


def test_only_transient_errors_are_retried():
    calls = []

    def fail(error):
        calls.append(error)
        raise error

    with pytest.raises(TimeoutError):
        retried(fail, TimeoutError(), waits=(0, 0, 0))
    assert len(calls) == 4
    with pytest.raises(PermissionError):
        retried(fail, PermissionError(errno.EACCES, "denied"), waits=(0, 0, 0))
    assert len(calls) == 5

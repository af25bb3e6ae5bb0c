"""Tests of the classification of input/output errors by their causes."""

import errno
import pickle

import pytest
from obstore.exceptions import GenericError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

from pipeline.faults import NO_CREDENTIALS, ObjectStoreError, explain, is_expired, is_transient, retried
from pipeline.store.files.object_clients import request

TRANSIENT = ("ESTALE", "EIO", "EMFILE", "ENFILE", "EAGAIN", "EINTR", "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "EPIPE")
FATAL = ("ENOSPC", "EROFS", "EACCES", "EPERM", "EDQUOT", "ENOENT", "EISDIR", "ENAMETOOLONG", "EINVAL")


def answer(code, status, kind=GenericError, host="127.0.0.1"):
    """Return the error that a request raises after a response of an object store."""

    def fail():
        body = f"<Error><Code>{code}</Code>\n<Message>m</Message><AWSAccessKeyId>hush</AWSAccessKeyId></Error>"
        reason = f"Server returned non-2xx status code: {status} Reason: {body}"
        raise kind(f"Error performing PUT http://{host}/b/k in 3 ms - {reason}\n\nDebug source:\nhush")

    with pytest.raises(ObjectStoreError) as caught:
        request(fail)
    return caught.value


def caused(error, cause):
    error.__cause__ = cause
    return error


STALE, FULL = OSError(errno.ESTALE, "stale"), OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("name", [*TRANSIENT, *FATAL])
def test_system_errors_are_classified_by_their_number(name):
    error = OSError(getattr(errno, name), "words")
    assert is_transient(error) == (name in TRANSIENT)
    assert not is_expired(error)


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (ObjectStoreError("no complete response"), True),
        (ValueError("x"), False),
        (KeyError("x"), False),
        (MemoryError(), False),
        (OSError("no number"), False),
        (caused(RuntimeError("cannot write"), STALE), True),
        (RuntimeError("cannot write"), False),
        (caused(OSError(errno.ENOSPC, "full"), TimeoutError()), False),
        (ExceptionGroup("all transient", [STALE, TimeoutError()]), True),
        (ExceptionGroup("one is not", [STALE, FULL]), False),
    ],
    ids=repr,
)
def test_errors_are_classified_by_their_class_and_cause(error, transient):
    assert is_transient(error) == transient


@pytest.mark.parametrize(
    ("code", "status", "transient", "expired"),
    [
        ("SlowDown", 503, True, False),
        ("InternalError", 500, True, False),
        ("Throttling", 400, True, False),
        ("RequestTimeout", 400, True, False),
        ("TooManyRequests", 429, True, False),
        ("BadGateway", 502, True, False),
        ("NotImplemented", 501, False, False),
        ("AccessDenied", 403, False, False),
        ("NoSuchBucket", 404, False, False),
        ("ExpiredToken", 400, False, True),
        ("ExpiredTokenException", 400, False, True),
        ("RequestExpired", 400, False, True),
        ("QuotaExceeded", 403, False, False),
    ],
)
def test_answers_of_object_stores(monkeypatch, code, status, transient, expired):
    """An error has the class of its response, also after it was sent to another process."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    kind = {401: UnauthenticatedError, 403: PermissionDeniedError}.get(status, GenericError)
    for error in (answer(code, status, kind), answer(code, status)):  # lists raise the second one
        for copy in (error, pickle.loads(pickle.dumps(error))):
            assert (is_transient(copy), is_expired(copy)) == (transient, expired)
            assert str(copy) == f"HTTP status {status} ({code}): m"


def test_errors_without_a_response(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def fail(error):
        raise error

    for error, transient in (
        (GenericError("Error performing PUT http://h in 3 ms - HTTP error: error sending request"), True),
        (NotSupportedError("Operation not supported"), False),
        (NotImplementedError("not yet implemented"), False),
    ):
        with pytest.raises(ObjectStoreError) as caught:
            request(fail, error)
        assert is_transient(caught.value) == transient


def test_missing_credentials_are_not_transient():
    error = answer("x", 403, host="169.254.169.254")
    assert error.code == NO_CREDENTIALS
    assert is_expired(error)
    assert not is_transient(error)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "full"), "free some space"),
        (OSError(errno.EDQUOT, "quota"), "larger quota"),
        (OSError(errno.EROFS, "read-only"), "mount the file system with write access"),
        (PermissionError(errno.EACCES, "denied"), "check the permissions"),
        (answer("ExpiredToken", 400), "renew the credentials"),
        (answer("AccessDenied", 403), "check the permissions"),
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

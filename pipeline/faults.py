"""Classification of input/output errors: transient errors, which a retry may fix, and others.

Errors are classified in the process that raises them, because pickling drops the causes of an exception.
"""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pipeline.redact import class_name, redact_text, text_of

NO_CREDENTIALS = "NoCredentials"
"""Error code of a request that no response refused, because there are no credentials for it."""
Result = TypeVar("Result")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TRANSIENT = frozenset(
    getattr(errno, name)
    for name in _words(
        "EAGAIN EINTR EBUSY EIO EREMOTEIO ESTALE EMFILE ENFILE ENOLCK ENOBUFS ETIMEDOUT ECONNRESET ECONNREFUSED "
        "ECONNABORTED EPIPE ENOTCONN ESHUTDOWN EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN ENETRESET"
    )
    if hasattr(errno, name)
)
_TRANSIENT_ANSWERS = (408, 425, 429)  # HTTP: timeout, too early, too many requests; in addition to 500 and above
# throttling codes of object stores, some with HTTP status 400
_THROTTLED = _words(
    "SlowDown Throttling ThrottlingException ThrottledException TooManyRequests TooManyRequestsException "
    "RequestLimitExceeded RequestThrottled BandwidthLimitExceeded RequestTimeout RequestTimeoutException "
    "OperationAborted InternalError ServiceUnavailable IncompleteBody PriorRequestNotComplete"
)
_EXPIRED = _words(
    "ExpiredToken ExpiredTokenException RequestExpired TokenRefreshRequired InvalidToken InvalidClientTokenId "
    f"UnrecognizedClientException {NO_CREDENTIALS}"
)
_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or request a larger quota",
    errno.EROFS: "mount the file system with write access",
    errno.EACCES: "check the permissions, and the credentials in the environment",
    errno.EPERM: "check the permissions, and the credentials in the environment",
}
_WAITS = (0.1, 0.4, 1.6)  # times in seconds between the attempts


class ObjectStoreError(OSError):
    """Error of an object store, with the code and the HTTP status of its response, or "" and 0 without a response."""

    def __init__(self, text: str, code: str = "", status: int = 0) -> None:
        super().__init__(text)
        self.code, self.status = code, status
        if status == 403:
            self.errno = errno.EACCES


def is_transient(error: BaseException) -> bool:
    """Return True if a retry may succeed: after errors of devices and networks, timeouts, or throttling."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_transient, error.exceptions))
    chain = list(_chain(error))
    if any(map(_is_expired, chain)):
        return False
    for cause in chain:
        if isinstance(cause, ObjectStoreError):
            has_answer = cause.code or cause.status
            return not has_answer or cause.code in _THROTTLED or _is_repeatable(cause.status)
        if isinstance(cause, TimeoutError | ConnectionError):
            return True
        if isinstance(cause, OSError) and cause.errno is not None:
            return cause.errno in _TRANSIENT
    return False


def _is_repeatable(status: int) -> bool:
    """Return True for the HTTP status of a response to a request that may succeed later."""
    return status in _TRANSIENT_ANSWERS or (status >= 500 and status != 501)  # 501: not implemented


def is_expired(error: BaseException) -> bool:
    """Return True if an error is due to missing or expired credentials."""
    return any(map(_is_expired, _chain(error)))


def is_interrupt(error: BaseException) -> bool:
    """Return True for an interrupt by the user, which Python raises in the main thread only."""
    is_one = issubclass(type(error), KeyboardInterrupt)  # `isinstance` reads an attribute, which may raise an exception
    return is_one and threading.current_thread() is threading.main_thread()


def explain(error: BaseException) -> str:
    """Return a one-line message for an error, without secrets, with advice if available."""
    text = text_of(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    text = redact_text(" ".join(text.split()))
    if not text or not (isinstance(error, OSError) or _package(type(error)) == "pipeline"):
        text = f"{class_name(error)}: {text}" if text else class_name(error)
    advice = (
        "renew the credentials in the environment of the workers"
        if is_expired(error)
        else _ADVICE.get(getattr(error, "errno", None) or 0, "")
    )
    return f"{text}; {advice}" if advice else text


def retried(function: Callable[..., Result], *args: Any, waits: tuple[float, ...] = _WAITS) -> Result:
    """Call an idempotent function; while it raises a transient error, retry it after each wait (in seconds)."""
    for wait in waits:
        try:
            return function(*args)
        except Exception as error:
            if not is_transient(error):
                raise
        time.sleep(wait)
    return function(*args)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the errors that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _is_expired(error: BaseException) -> bool:
    return isinstance(error, ObjectStoreError) and (error.code in _EXPIRED or error.status == 401)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]

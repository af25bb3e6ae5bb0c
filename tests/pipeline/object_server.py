"""Server of objects with the part of the S3 interface that obstore uses, and with faults that tests choose."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

KEYS = {"AWS_ACCESS_KEY_ID": "AKIATESTHUSH", "AWS_SECRET_ACCESS_KEY": "hush-hush", "AWS_DEFAULT_REGION": "us-east-1"}
_REFUSALS = {
    "throttled": (503, "SlowDown"),
    "broken": (500, "InternalError"),
    "expired": (400, "ExpiredToken"),
    "denied": (403, "AccessDenied"),
    "unmet": (412, "PreconditionFailed"),
    "in conflict": (409, "ConditionalRequestConflict"),
}


class ObjectServer(ThreadingHTTPServer):
    """Server of one bucket on loopback.

    Attributes
    ----------
    objects : dict
        Contents by key.
    requests : Counter
        Number of requests by method and kind of key, ``chunk`` or ``other``.
    choose_fault : callable
        Function of method and key that returns "" or a fault: an entry of `_REFUSALS`, ``lost`` (the request is
        carried out, and the connection is closed without a response), ``half`` (the connection is closed after half of
        the content), or ``slow`` (the response takes .3 s).
    conditions : str
        "met" as in S3, "ignored", or "unsupported".
    """

    daemon_threads, request_queue_size = True, 128

    def __init__(self, bucket: str = "studies") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bucket, self.conditions = bucket, "met"
        self.objects: dict[str, bytes] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self.choose_fault: Callable[[str, str], str] = lambda method, key: ""
        self.lock = Lock()

    def __enter__(self) -> "ObjectServer":
        """Start the server."""
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.shutdown()
        self.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the environment of clients."""
        return {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}"}

    def handle_error(self, *_: object) -> None:
        """Print nothing about connections that clients close."""


def fault_once(method: str, part: str, fault: str) -> Callable[[str, str], str]:
    """Return a function for `ObjectServer.choose_fault`: a fault of the first request whose key contains `part`."""
    left = [fault]

    def choose(requested: str, key: str) -> str:
        return left.pop() if left and requested == method and part in key else ""

    return choose


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: ObjectServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        bucket, _, key = unquote(address.path).removeprefix("/").partition("/")
        with self.server.lock:
            self.server.requests[self.command, "chunk" if "/c/" in key else "other"] += 1
        fault = self.server.choose_fault(self.command, key)
        if fault == "slow":
            time.sleep(0.3)
        if self.headers["Authorization"].partition("Credential=")[2].partition("/")[0] != KEYS["AWS_ACCESS_KEY_ID"]:
            self._refuse(403, "InvalidAccessKeyId")
        elif bucket != self.server.bucket:
            self._refuse(404, "NoSuchBucket")
        elif fault in _REFUSALS:
            self._refuse(*_REFUSALS[fault])
        else:
            with self.server.lock:
                status, answer, tag = self._carry_out(key, content, parse_qs(address.query, keep_blank_values=True))
            if fault == "lost":
                self.close_connection = True
            elif status >= 400:
                self._refuse(status, {404: "NoSuchKey", 412: "PreconditionFailed"}.get(status, "NotImplemented"))
            else:
                self._answer(status, answer, tag, n_sent=len(answer) // 2 if fault == "half" else None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _carry_out(self, key: str, content: bytes, query: dict[str, list[str]]) -> tuple[int, bytes, str]:
        """Return status, content and entity tag of a response; status 400 and above stands for a refusal."""
        objects = self.server.objects
        if self.command == "PUT":
            if status := self._unmet(key):
                return status, b"", ""
            objects[key] = content
            return 200, b"", _tag(content)
        if self.command == "DELETE":
            objects.pop(key, None)
            return 204, b"", ""
        if self.command == "POST":  # ?delete
            elements = ElementTree.fromstring(content).iter()
            keys = [str(element.text) for element in elements if element.tag.rpartition("}")[2] == "Key"]
            for deleted in keys:
                objects.pop(deleted, None)
            entries = "".join(f"<Deleted><Key>{escape(deleted)}</Key></Deleted>" for deleted in keys)
            return 200, f"<DeleteResult>{entries}</DeleteResult>".encode(), ""
        if "list-type" in query:
            return 200, self._list(query["prefix"][0] if "prefix" in query else "", "delimiter" in query), ""
        return (200, objects[key], _tag(objects[key])) if key in objects else (404, b"", "")

    def _unmet(self, key: str) -> int:
        """Return the status with which a write is refused, or 0."""
        stored, conditions = self.server.objects.get(key), self.server.conditions
        expected, forbidden = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if conditions == "ignored" or not (expected or forbidden):
            return 0
        if conditions == "unsupported":
            return 501
        if forbidden and stored is not None:
            return 412
        if expected and stored is None:
            return 404
        return 412 if expected and stored is not None and expected != _tag(stored) else 0

    def _list(self, prefix: str, is_shallow: bool) -> bytes:
        paths = sorted(key for key in self.server.objects if key.startswith(prefix))
        folders = {prefix + path[len(prefix) :].partition("/")[0] + "/" for path in paths if "/" in path[len(prefix) :]}
        contents = [path for path in paths if not is_shallow or "/" not in path[len(prefix) :]]
        entries = "".join(
            f"<Contents><Key>{escape(path)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(_tag(self.server.objects[path]))}</ETag><Size>{len(self.server.objects[path])}</Size>"
            "</Contents>"
            for path in contents
        )
        if is_shallow:
            entries += "".join(
                f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders
            )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>a message</Message><AWSAccessKeyId>{KEYS['AWS_ACCESS_KEY_ID']}"
        self._answer(status, f"{text}</AWSAccessKeyId></Error>".encode(), "")

    def _answer(self, status: int, content: bytes, tag: str, n_sent: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:n_sent])
        self.close_connection = self.close_connection or n_sent is not None


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'

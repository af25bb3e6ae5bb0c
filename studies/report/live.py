"""Page about a store or a folder of stores that is served to browsers on this machine while a study runs.

Tornado serves what `store_page` or `folder_page` returns. Bokeh and Panel would draw every figure a second time,
since each of their sessions has a document of its own.
"""

import asyncio
import hmac
import os
import signal
import socket
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from pipeline.blocks.evaluate import total_by_kind
from pipeline.declare.source import StudySource
from pipeline.errors import BadInputError
from pipeline.redact import format_error
from pipeline.runs.resolve import study_of
from pipeline.store.result_store import ResultStore, open_complete
from pipeline.store.scan.states import count_by_status
from studies import MODULES
from studies.folders import is_folder, store_path
from studies.report.collection import folder_page
from studies.report.study import store_page

LOOPBACK = "127.0.0.1"
_HOST_NAMES = (LOOPBACK, "localhost")
_SECONDS = 2.0  # shortest pause between two reads of the statuses
_PAUSE = 3.0  # shortest pause, as a multiple of the time that the last read and page took
_SCRIPT = (Path(__file__).parent / "templates" / "live.js").read_text()
_WAITING = (
    b"<!doctype html><html lang='en'><meta charset='utf-8'><title>dpstudies</title>"
    b"<body><p>The page is being written.</p></body></html>"
)
_HEADERS = {
    "Cache-Control": "no-store",
    # the page is self-contained: it may neither fetch from nor be shown by another site
    "Content-Security-Policy": "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # links to papers do not reveal the token
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Progress:
    """Progress of a store or a folder, as sent to the browser."""

    page: int = 0  # pages written so far
    ok: int = 0  # evaluations, at every array position
    failed: int = 0
    pending: int = 0
    problem: str = ""  # reason why the last read or page failed


class LivePage:
    """Page about a store or a folder of stores, and their state when it was last compared with them; see `update`."""

    def __init__(self, location: str | os.PathLike[str], study: StudySource | None = None) -> None:
        self._location, self._study = os.fspath(location), study
        self._is_folder = is_folder(location)
        if not self._is_folder:
            study_of(open_complete(location), study, only_reads=True)  # nothing is computed
        self._shown: Any = None
        self.content, self.progress = _WAITING, Progress()
        self._requested = threading.Event()

    def request_update(self) -> None:
        """Request an update from the thread of `follow`."""
        self._requested.set()

    def follow(self) -> None:
        """Update the page on request, with pauses; never return."""
        while self._requested.wait():
            self._requested.clear()
            started = time.monotonic()
            self.update()
            time.sleep(max(_SECONDS, _PAUSE * (time.monotonic() - started)))

    def update(self) -> None:
        """Read the statuses of the stores, and write the page if they or the sessions have changed."""
        last = self.progress
        try:
            stores = self._stores()
            counts = [count_by_status(store, panel) for store in stores for panel in store.spec["panels"]]
            self.progress = Progress(last.page, *total_by_kind(counts))
            state = counts, [store.sessions for store in stores]
            if state != self._shown:
                self.content = self._write()
                self._shown, self.progress = state, replace(self.progress, page=last.page + 1)
        except Exception as error:  # the next update tries again
            text = str(error) if isinstance(error, BadInputError | RuntimeError) else format_error(error)
            self.progress = replace(last, problem=" ".join(text.split()))

    def _stores(self) -> list[ResultStore]:
        if not self._is_folder:
            return [open_complete(self._location)]
        paths = [store_path(self._location, name) for name in MODULES]
        stores = [ResultStore.open(path) for path in paths if ResultStore.exists(path)]
        return [store for store in stores if store.complete]

    def _write(self) -> bytes:
        if self._is_folder:
            return folder_page(self._location).encode()
        store = open_complete(self._location)
        return store_page(store, study_of(store, self._study, only_reads=True)[1]).encode()


class _Handler(RequestHandler):
    """Handler of all requests: only GET, with the token as first part of the path."""

    def initialize(self, page: LivePage, token: str) -> None:
        """Set the page and the token."""
        self._page, self._token = page, token

    def set_default_headers(self) -> None:
        """Set the headers of every response."""
        self.clear_header("Server")
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        """Refuse requests without the token, and those for another host name, as after DNS rebinding."""
        folder, _, self._name = self.request.path.rpartition("/")
        known = hmac.compare_digest(folder.encode(), f"/{self._token}".encode())  # in constant time
        if not known or self.request.host_name not in _HOST_NAMES:
            self.send_error(403)

    def get(self) -> None:
        """Send the page or the progress."""
        self._page.request_update()
        if self._name == "":
            page, progress = self._page.content, self._page.progress
            before, end, after = page.rpartition(b"</body>")
            script = f"<script>const shownPage = {progress.page};\n{_SCRIPT}</script>\n".encode()
            self.finish(before + script + end + after)
        elif self._name == "progress":
            self.finish(asdict(self._page.progress))
        else:
            self.send_error(404)


def make_application(page: LivePage, token: str) -> Application:
    """Return the Tornado application that serves a page below ``/TOKEN/``."""
    return Application(
        default_handler_class=_Handler,
        default_handler_args={"page": page, "token": token},
        log_function=lambda handler: None,  # logs would contain the token
    )


def listen(port: int | None) -> socket.socket:
    """Return a socket that listens on the loopback interface, at a free port by default."""
    if port is not None and not 1 <= port <= 65_535:
        raise BadInputError(f"--port must be in 1 ... 65535, got {port}")
    try:
        listening = socket.create_server((LOOPBACK, port or 0))
    except OSError as error:
        raise BadInputError(
            f"cannot listen on port {port}: {os.strerror(error.errno or 0)}; choose another --port"
        ) from error
    listening.setblocking(False)
    return listening


async def serve(page: LivePage, token: str, listening: socket.socket) -> None:
    """Serve a page until SIGINT or SIGTERM, from the main thread."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    threading.Thread(target=page.follow, name="dpstudies-page", daemon=True).start()
    server = HTTPServer(make_application(page, token))
    server.add_socket(listening)
    page.request_update()
    await stopped.wait()
    server.stop()
    await server.close_all_connections()

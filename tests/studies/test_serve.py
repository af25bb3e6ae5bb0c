"""Tests of the live page: access, updates, and the command while a study runs in another process."""

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress

import pytest
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer

import pipeline
from studies import STUDIES
from studies.folders import store_path
from studies.report import live
from studies.report.live import LivePage
from tests.pipeline.helpers import file_stamps
from tests.studies.test_page import browser, visit  # noqa: F401, fixtures

TOKEN = "a-token"
SECONDS = 120
CALIBRATED = {"panels": ["k2"], "values": {"n": [10, 20], "mechanism": ["smooth", "laplace"]}}
HELD = """
import time
from pathlib import Path
from pipeline import Factor, Measure, Method, Panel, Study

def simulate(cell, streams):
    for _ in range(1000 * (cell["n"] == 1)):
        if Path("go").exists() or not Path("s.zarr").exists():  # first trials are evaluated before the store exists
            break
        time.sleep(0.1)
    return streams.uniforms(1)[:, 0]

STUDY = Study("held", "A study that waits for a file", "To be watched.", (Panel(
    "p", "a panel", simulate, (Method("mean", lambda data, setting, streams: {"x": data}),),
    (Measure("x", "a number"),), (Factor("n", (1, 2), "size", "int"),),
    trials=200, block_trials=10),), seed=1)
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Run a small part of a study; return its store, which must not be changed."""
    path = tmp_path_factory.mktemp("served") / "hellinger-accuracy.zarr"
    return pipeline.run(STUDIES["hellinger-accuracy"], path, trials=20, **CALIBRATED).url


@pytest.fixture
def store(stored, tmp_path):
    """Return the path of a copy of the store, which a test may change."""
    return shutil.copytree(stored, tmp_path / "s.zarr")


@pytest.fixture(scope="module")
def page(stored):
    page = LivePage(stored)
    page.update()
    return page


@asynccontextmanager
async def serving(page):
    """Serve a page in this event loop; yield its port."""
    listening = live.listen(None)
    server = HTTPServer(live.make_application(page, TOKEN))
    server.add_socket(listening)
    try:
        yield listening.getsockname()[1]
    finally:
        server.stop()
        await server.close_all_connections()


def fetch(page, path, **how):
    """Serve a page, and return the response to one request."""

    async def work():
        async with serving(page) as port:
            url = f"http://127.0.0.1:{port}{path}"
            return await AsyncHTTPClient(force_instance=True).fetch(url, raise_error=False, **how)

    return asyncio.run(asyncio.wait_for(work(), SECONDS))


@pytest.mark.slow
def test_page_and_progress_are_sent_with_the_token(page):
    response = fetch(page, f"/{TOKEN}/")
    assert (response.code, response.headers["Content-Type"][:9]) == (200, "text/html")
    html = response.body.decode()
    assert "All evaluations done." in html
    assert "const shownPage = 1;" in html
    assert html.endswith("</script>\n</body>\n</html>")
    progress = json.loads(fetch(page, f"/{TOKEN}/progress").body)
    assert progress == {"page": 1, "ok": 80, "failed": 0, "pending": 0, "problem": ""}


@pytest.mark.parametrize(
    "path", ["/", "", "/progress", f"/{TOKEN}", f"/{TOKEN}x/", "/x/", f"//{TOKEN}/", f"/{TOKEN}/../", "/%ff/", "/é/"]
)
def test_requests_without_the_token_are_refused(page, path):
    response = fetch(page, path.encode().decode("latin-1"))
    assert (response.code, b"Hellinger" in response.body) == (403, False)


@pytest.mark.parametrize(("host", "code"), [("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost", 200)])
def test_requests_for_another_host_are_refused(page, host, code):
    """A site whose name resolves to the loopback address after DNS rebinding sends its own host name."""
    assert fetch(page, f"/{TOKEN}/", headers={"Host": f"{host}:80"}).code == code


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_server_only_reads(page, stored, method):
    before = file_stamps(stored)
    response = fetch(page, f"/{TOKEN}/", method=method, allow_nonstandard_methods=True)
    assert (response.code, file_stamps(stored) == before) == (405, True)


def test_other_names_are_not_found_and_the_token_does_not_leave_the_page(page):
    assert fetch(page, f"/{TOKEN}/zarr.json").code == 404  # nothing else is served
    headers = fetch(page, f"/{TOKEN}/").headers
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Server" not in headers


def test_server_listens_on_the_loopback_interface_only():
    with live.listen(None) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


@pytest.mark.slow
def test_page_is_written_again_only_if_the_store_has_changed(store):
    page, before = LivePage(store), file_stamps(store)
    assert page.progress.page == 0
    for _ in range(2):
        page.update()
        assert (page.progress.page, page.progress.ok) == (1, 80)
    assert file_stamps(store) == before
    pipeline.extend(store, trials=30)
    page.update()
    assert (page.progress.page, page.progress.ok) == (2, 120)
    assert "120 of 120 evaluations" in page.content.decode()


@pytest.mark.slow
def test_read_error_is_shown_and_the_last_page_is_kept(store, tmp_path):
    page = LivePage(store)
    page.update()
    content = page.content
    store.rename(tmp_path / "moved.zarr")
    page.update()
    assert (page.content, page.progress.page, page.progress.ok) == (content, 1, 80)
    assert "s.zarr" in page.progress.problem
    assert "\n" not in page.progress.problem
    (tmp_path / "moved.zarr").rename(store)
    page.update()
    assert (page.progress.page, page.progress.problem) == (1, "")


@pytest.mark.slow
def test_folder_is_served_while_its_studies_begin(tmp_path):
    pipeline.run(STUDIES["renyi-curves"], store_path(tmp_path, "renyi-curves"), values={"coefficient": [0.5]})
    page = LivePage(tmp_path)
    page.update()
    assert "1 study" in page.content.decode()
    pipeline.run(STUDIES["gibbs-traces"], store_path(tmp_path, "gibbs-traces"), values={"iteration": [0, 1]})
    page.update()
    assert "2 studies" in page.content.decode()
    assert page.progress.page == 2


@pytest.mark.parametrize("words", [("absent.zarr",), (".",), ("--port", "0")])
def test_wrong_input_is_refused_in_one_line(refused, stored, words):
    refused("serve", *words, *([stored] if "--port" in words else []))


def test_occupied_port_is_refused(refused, stored):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = f"cannot listen on port {port}: Address already in use; choose another --port\n"
        refused("serve", stored, "--port", port, message=message)


def start(folder, *words):
    code = f"import sys; from studies.cli import main; sys.argv = ['dpstudies', *{words!r}]; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_until(is_true):
    deadline = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def get(url):
    async def work():
        return (await AsyncHTTPClient(force_instance=True).fetch(url)).body

    return asyncio.run(asyncio.wait_for(work(), SECONDS))


@pytest.fixture
def processes():
    """Return a list of processes that are killed at the end of the test."""
    started = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def url_of(server, name):
    """Return the URL that a server prints when it listens."""
    line = server.stdout.readline()
    return re.fullmatch(rf"serving {re.escape(name)} at (http://127\.0\.0\.1:\d+/[\w-]{{43}}/) until Ctrl-C\n", line)[1]


def end(server, number):
    """Send a signal to a server, and return its exit code and what it printed since its URL."""
    server.send_signal(number)
    out, err = server.communicate(timeout=SECONDS)
    return server.returncode, out, err


@pytest.mark.slow
def test_termination_ends_the_server_without_an_error(stored, tmp_path, processes):
    server = start(tmp_path, "serve", stored)
    processes.append(server)
    url = url_of(server, stored)
    wait_until(lambda: json.loads(get(f"{url}progress"))["page"])
    assert end(server, signal.SIGTERM) == (0, "", "")


@pytest.mark.slow
def test_page_follows_a_run_in_another_process(tmp_path, processes):
    """The page shows the committed part of a run and then all of it, and the run is not disturbed."""
    (tmp_path / "held.py").write_text(HELD)
    running = start(tmp_path, "run", "held.py", "--store", "s.zarr")
    processes.append(running)
    wait_until((tmp_path / "s.zarr/zarr.json").exists)
    server = start(tmp_path, "serve", "s.zarr")
    processes.append(server)
    url = url_of(server, "s.zarr")
    seen = []

    def shows_a_part():
        seen.append(json.loads(get(f"{url}progress")))
        return (
            seen[-1]["page"] and seen[-1]["ok"] and f"{seen[-1]['ok']} of 400 evaluations are ok" in get(url).decode()
        )

    wait_until(shows_a_part)
    assert 0 < seen[-1]["ok"] < 400
    assert running.poll() is None
    (tmp_path / "go").touch()
    assert running.communicate(timeout=SECONDS)[0].splitlines()[-1].startswith("complete")
    assert running.returncode == 0
    wait_until(lambda: b"400 of 400 evaluations are ok" in get(url))
    progress = json.loads(get(f"{url}progress"))
    assert progress.pop("page") >= 2
    assert progress == {"ok": 400, "failed": 0, "pending": 0, "problem": ""}
    assert end(server, signal.SIGINT) == (0, "", "")


@pytest.mark.slow
def test_browser_shows_new_results(browser, store, tmp_path):  # noqa: F811
    """The page in a browser reloads itself when trials are added, keeps open details, and logs no error."""
    page = LivePage(store)
    page.update()
    (tmp_path / "start.html").write_text("<!doctype html><title>start</title>")

    async def act(tab):
        async def until(script):
            for _ in range(SECONDS * 10):
                with suppress(AssertionError):
                    if await tab.evaluate(script):
                        return
                await asyncio.sleep(0.1)
            raise AssertionError(script)

        async with serving(page) as port:
            await tab.send("Page.navigate", url=f"http://127.0.0.1:{port}/{TOKEN}/")
            await until("document.querySelector('#live')?.innerText.includes('80 of 80')")
            await tab.evaluate("document.querySelector('details:not([open])').open = true")
            n_open = await tab.evaluate("document.querySelectorAll('details[open]').length")
            await asyncio.to_thread(pipeline.extend, store, trials=30)
            await asyncio.to_thread(page.update)
            await until("document.body.innerText.includes('120 of 120 evaluations are ok')")
            await until("document.querySelector('#live')?.innerText.includes('120 of 120')")  # the details are open
            await until(f"document.querySelectorAll('details[open]').length === {n_open}")  # figures add theirs later
        await until("document.querySelector('#live').innerText.includes('server has ended')")
        return [one for one in tab.complaints if "ERR_CONNECTION_REFUSED" not in json.dumps(one)]

    assert visit(browser, tmp_path / "start.html", act) == []

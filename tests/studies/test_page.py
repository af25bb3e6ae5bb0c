"""The pages in a browser: phone width, dark mode, contrast, keyboard, image texts; checks have negative controls."""

import asyncio
import base64
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from matplotlib import image
from tornado.websocket import websocket_connect

import pipeline
from studies import STUDIES
from studies.laboratory.page import write_laboratory
from studies.report import write_report

pytestmark = pytest.mark.slow  # about 15 s in all

PHONE, DESK = (375, 800), (1200, 900)
_SECONDS = 60
TINY = {
    "hellinger-accuracy": {
        "trials": 20,
        "panels": ["k2"],
        "values": {"n": [10, 20], "mechanism": ["smooth", "laplace"]},
    },
    "privacy-audit": {"panels": ["binomial"], "values": {"n": [2], "epsilon": [1.0], "mechanism": ["smooth", "local"]}},
    "renyi-curves": {"values": {"coefficient": [0.5], "order": [1.5, 2.0]}},
}

CONTRASTS = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data; };
  const luminance = (c) => { const [r, g, b] = [c[0], c[1], c[2]].map((v) => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126*r + 0.7152*g + 0.0722*b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c[3] === 255) return c; } return rgb('white'); };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) { const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
    if (!text || !e.checkVisibility()) continue;
    const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(behind(e))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text.slice(0, 40)]); }
  return found.sort((a, b) => a[0] - b[0])[0]; })()"""
HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((e) => Number(e.tagName[1]))"
FOCUSABLE = (
    "[...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')].filter((e) => e.checkVisibility()).length"
)
FOCUSED = """(() => { const e = document.activeElement, s = getComputedStyle(e);
  return {tag: e.tagName, skip: e.classList.contains('skip'), top: e.getBoundingClientRect().top + scrollY,
    left: e.getBoundingClientRect().left, outline: parseFloat(s.outlineWidth) * (s.outlineStyle !== 'none'),
    order: [...document.querySelectorAll('*')].indexOf(e)}; })()"""
UNNAMED = """[...document.querySelectorAll('img, svg')].filter((e) =>
  !(e.getAttribute('alt') || e.getAttribute('aria-label') || '').trim()).length"""
BROKEN_IMAGES = "[...document.images].filter((e) => !(e.complete && e.naturalWidth)).length"
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
DEAD_LINKS = """[...document.querySelectorAll('a[href^="#"]')].filter((e) =>
  !document.getElementById(e.getAttribute('href').slice(1))).length"""
LOCKED_TABLES = """[...document.querySelectorAll('table')].filter((e) => {
  const box = e.closest('[tabindex="0"][role="region"][aria-label]');
  return !box || getComputedStyle(box).overflowX !== 'auto'; }).length"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Start a browser that listens on loopback only."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium here")
    folder = tmp_path_factory.mktemp("browser")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    quiet = ("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0")
    process = subprocess.Popen(
        [program, *options, *quiet, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = folder / "DevToolsActivePort"
        for _ in range(_SECONDS * 10):
            if port.exists() and port.read_text().count("\n"):
                break
            assert process.poll() is None, "the browser ended"
            time.sleep(0.1)
        number, path = port.read_text().splitlines()
        yield f"ws://127.0.0.1:{number}{path}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the session of this process: it and its renderers
        process.wait(_SECONDS)


class Tab:
    """A page in the browser, controlled by the DevTools protocol."""

    def __init__(self, socket):
        self._socket, self._numbers, self._session = socket, itertools.count(1), None
        self.complaints, self.requests = [], []

    async def send(self, method, **params):
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": params, **session}))
        while True:
            message = json.loads(await self._socket.read_message())
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message):
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Network.requestWillBeSent" and not params["request"]["url"].startswith("data:"):
            self.requests.append(params["request"]["url"])
        if kind == "Runtime.exceptionThrown" or (
            kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning")
        ):
            self.complaints.append(params)
        if kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(params)

    async def open(self, page, size, dark):
        target = await self.send("Target.createTarget", url="about:blank")
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")
        width, height = size
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == PHONE
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])
        await self.send("Page.navigate", url=Path(page).resolve().as_uri())
        while await self.evaluate("document.readyState") != "complete" or "about:" in await self.evaluate(
            "location.href"
        ):
            await asyncio.sleep(0.05)
        await self.evaluate("Promise.allSettled([...document.images].map((e) => e.decode()))")  # codespell:ignore

    async def evaluate(self, script):
        done = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def press_tab(self):
        for kind in ("rawKeyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)

    async def screenshot(self, x, y, width, height):
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        taken = await self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(taken["data"])


def visit(address, page, act, size=DESK, dark=False):
    """Open a page and return ``act(tab)``, with a time limit."""

    async def work():
        socket = await websocket_connect(address, max_message_size=1 << 28)
        try:
            tab = Tab(socket)
            await tab.open(page, size, dark)
            return await act(tab)
        finally:
            socket.close()
            while await socket.read_message() is not None:  # until the other side has closed as well
                pass

    return asyncio.run(asyncio.wait_for(work(), _SECONDS))


def look(address, page, script, **how):
    return visit(address, page, lambda tab: tab.evaluate(script), **how)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write a page of three small stores, a page of one of them, and one that violates every check."""
    folder = tmp_path_factory.mktemp("laboratory")
    for name, values in TINY.items():
        store = pipeline.run(STUDIES[name], folder / f"{name}.zarr", **values)
    write_laboratory(folder, folder / "laboratory.html")
    configured = STUDIES["renyi-curves"].configure(**TINY["renyi-curves"])
    write_report(store, configured, folder / "store.html")
    html = (folder / "laboratory.html").read_text()
    spoilt = (
        html.replace("</main>", "<p><img src='absent.png'><span style='padding-left: 3000px'>wide</span></p></main>")
        .replace("<h3>", "<h5>")
        .replace("--soft: #9aa4af", "--soft: #30363d")
        .replace("--soft: #59636e", "--soft: #b0b6bc")
        .replace("</style>", ":focus-visible { outline: none !important }</style>")
        .replace('tabindex="0" role="region"', 'role="region"', 1)
        .replace("</body>", "<script>console.error('no'); missing()</script><a href='#nowhere'>x</a></body>")
    )
    (folder / "spoilt.html").write_text(spoilt)
    return {path.stem: path for path in folder.glob("*.html")}


GOOD = ("laboratory", "store")


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_page_is_no_wider_than_the_screen(address, pages, name, size):
    assert look(address, pages[name], OVERFLOW, size=size) <= 0


def test_wide_page_is_detected(address, pages):
    assert look(address, pages["spoilt"], OVERFLOW, size=PHONE) > 1000


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_has_sufficient_contrast(address, pages, name, dark):
    """Every text has a contrast of at least 4.5 to its background (WCAG AA)."""
    contrast, text = look(address, pages[name], CONTRASTS, dark=dark)
    assert contrast >= 4.5, text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_faint_text_is_detected(address, pages, dark):
    assert look(address, pages["spoilt"], CONTRASTS, dark=dark)[0] < 4.5


@pytest.mark.parametrize("name", GOOD)
def test_dark_mode_changes_page_and_figures(address, pages, name):
    async def act(tab):
        place = await tab.evaluate(
            "(() => { const r = document.images[0].getBoundingClientRect(); "
            "return [r.left, r.top + scrollY, r.width, r.height]; })()"
        )
        return await tab.evaluate("getComputedStyle(document.body).backgroundColor"), await tab.screenshot(*place)

    light, dark = (visit(address, pages[name], act, dark=dark) for dark in (False, True))
    assert light[0] != dark[0]
    assert [_extremes(png) for png in (light[1], dark[1])] == [("light", "dark ink"), ("dark", "light ink")]


def _extremes(png):
    """Return the brightness of an image's background, and that of its ink."""
    grey = image.imread(io.BytesIO(png))[..., :3].mean(axis=-1)
    ground = float(grey[0, 0])
    ink = float(grey.min() if ground > 0.5 else grey.max())
    assert abs(ink - ground) > 0.6
    return ("light" if ground > 0.5 else "dark"), ("dark ink" if ink < ground else "light ink")


@pytest.mark.parametrize("name", GOOD)
def test_page_is_complete(address, pages, name):
    """Figures have a text and decode, headings descend by single levels, links have targets, and nothing is fetched."""
    wrong, headings, complaints, n_images = visit(address, pages[name], _inspect)
    assert (wrong, complaints) == ([0, 0, 0, 0, 1], [])  # one request: the page itself
    assert n_images >= 1
    assert headings.count(1) == 1
    assert _descends(headings)


def test_defects_of_a_page_are_detected(address, pages):
    wrong, headings, complaints, _ = visit(address, pages["spoilt"], _inspect)
    assert wrong == [1, 1, 1, 1, 2]
    assert not _descends(headings)
    assert len(complaints) == 3  # an absent file, a message, an exception


async def _inspect(tab):
    wrong = [await tab.evaluate(s) for s in (UNNAMED, BROKEN_IMAGES, DEAD_LINKS, LOCKED_TABLES)]
    wrong.append(len(tab.requests))
    return wrong, await tab.evaluate(HEADINGS), tab.complaints, await tab.evaluate("document.images.length")


def _descends(headings):
    return headings[0] == 1 and all(after <= before + 1 for before, after in itertools.pairwise(headings))


@pytest.mark.parametrize("name", GOOD)
def test_tab_moves_through_all_focusable_elements(address, pages, name):
    """The order is that of the page, outlines are visible, and the first element is the link to the content."""

    async def act(tab):
        stops = []
        for _ in range(await tab.evaluate(FOCUSABLE)):
            await tab.press_tab()
            stops.append(await tab.evaluate(FOCUSED))
        return stops

    stops = visit(address, pages[name], act)
    assert len(stops) > 10
    assert [stop["order"] for stop in stops] == sorted({stop["order"] for stop in stops})
    assert all(stop["outline"] >= 2 and stop["left"] >= 0 for stop in stops)
    assert stops[0]["skip"]
    assert {stop["tag"] for stop in stops} >= {"A", "DIV", "SUMMARY"}


def test_invisible_focus_is_detected(address, pages):
    async def act(tab):
        await tab.press_tab()
        return await tab.evaluate(FOCUSED)

    assert visit(address, pages["spoilt"], act)["outline"] == 0

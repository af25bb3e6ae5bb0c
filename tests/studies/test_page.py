"""Tests of the pages in a browser: phone width, dark mode, contrast, keyboard and image texts."""

import asyncio
import base64
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib import image
from tornado.websocket import websocket_connect

import pipeline
from pipeline import Claim, Erratum, Finding
from studies import STUDIES
from studies.report import write_collection, write_report
from studies.report.collection import _explain_methods
from studies.report.page import Judged, RenderedFigure, correction, fold, lead_with
from studies.styles import DARK_COLORS

pytestmark = pytest.mark.slow  # this file takes about 15 s

PHONE, DESK = (375, 800), (1200, 900)
PAPER = (720, 1000)
_SECONDS = 120
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
    "[...document.querySelectorAll('a[href], summary, select, input, button, [tabindex=\"0\"]')]"
    ".filter((e) => e.checkVisibility()).length"
)
FOCUSED = """(() => { const e = document.activeElement, s = getComputedStyle(e);
  return {tag: e.tagName, skip: e.classList.contains('skip'), top: e.getBoundingClientRect().top + scrollY,
    left: e.getBoundingClientRect().left, outline: parseFloat(s.outlineWidth) * (s.outlineStyle !== 'none'),
    order: [...document.querySelectorAll('*')].indexOf(e)}; })()"""
UNNAMED = """[...document.querySelectorAll('img, svg:not([aria-hidden])')].filter((e) =>
  !(e.getAttribute('alt') || e.getAttribute('aria-label') || '').trim()).length"""
BROKEN_IMAGES = "[...document.images].filter((e) => !(e.complete && e.naturalWidth)).length"
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
DEAD_LINKS = """[...document.querySelectorAll('a[href^="#"]')].filter((e) =>
  !document.getElementById(e.getAttribute('href').slice(1))).length"""
LOCKED_TABLES = """[...document.querySelectorAll('table')].filter((e) => {
  const box = e.closest('[tabindex="0"][role="region"][aria-label]');
  return !box || getComputedStyle(box).overflowX !== 'auto'; }).length"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start a browser that listens on loopback only; yield its address."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program is not None, "these tests need Chromium: .ci/run --system installs it"
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
    """Page in the browser, controlled by the DevTools protocol."""

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
        await self.resize(size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])
        await self.send("Page.navigate", url=Path(page).resolve().as_uri())
        while await self.evaluate("document.readyState") != "complete" or "about:" in await self.evaluate(
            "location.href"
        ):
            await asyncio.sleep(0.05)
        await self.evaluate("Promise.allSettled([...document.images].map((e) => e.decode()))")  # codespell:ignore
        await self.evaluate("document.querySelector('figure')?.scrollIntoView()")
        while await self.evaluate("document.querySelector('figure > img') && !document.querySelector('img[hidden]')"):
            await asyncio.sleep(0.05)  # until the first figure, if there is one, is interactive
        await self.evaluate("scrollTo(0, 0)")

    async def resize(self, size):
        width, height = size
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == PHONE
        )

    async def evaluate(self, script):
        done = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def press(self, key, **code):
        for kind in ("rawKeyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **code)

    async def screenshot(self, x, y, width, height):
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        taken = await self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(taken["data"])


def visit(browser, page, act, size=DESK, dark=False):
    """Open a page, and return the result of ``act(tab)``; a time limit applies."""

    async def work():
        socket = await websocket_connect(browser, max_message_size=1 << 28)
        try:
            tab = Tab(socket)
            await tab.open(page, size, dark)
            return await act(tab)
        finally:
            socket.close()
            while await socket.read_message() is not None:  # wait until the browser closes the connection
                pass

    return asyncio.run(asyncio.wait_for(work(), _SECONDS))


def look(browser, page, script, **how):
    return visit(browser, page, lambda tab: tab.evaluate(script), **how)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write a page about three small stores, one about a single store, and one that violates all checks."""
    folder = tmp_path_factory.mktemp("laboratory")
    for name, values in TINY.items():
        store = pipeline.run(STUDIES[name], folder / f"{name}.zarr", **values)
    write_collection(folder, folder / "laboratory.html")
    configured = STUDIES["renyi-curves"].configure(**TINY["renyi-curves"])
    write_report(store, configured, folder / "store.html")
    html = (folder / "laboratory.html").read_text()
    top, bottom = html.rsplit("</body>", 1)
    spoilt = (
        top.replace("Content-Security-Policy", "absent")
        .replace("</main>", "<p><img src='absent.png'><span style='padding-left: 3000px'>wide</span></p></main>")
        .replace("<h3>", "<h5>")
        .replace("--soft: #9aa4af", "--soft: #30363d")
        .replace("--soft: #59636e", "--soft: #b0b6bc")
        .replace("</style>", ":focus-visible { outline: none !important }</style>", 1)
        .replace('tabindex="0" role="region"', 'role="region"', 1)
    )
    script = "<script>console.error('no'); missing()</script>"
    (folder / "spoilt.html").write_text(f"{spoilt}{script}<a href='#nowhere'>x</a></body>{bottom}")
    (folder / "injected.html").write_text(f"{top}{script}</body>{bottom}")
    return {path.stem: path for path in folder.glob("*.html")}


GOOD = ("laboratory", "store")


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_page_is_no_wider_than_the_screen(browser, pages, name, size):
    assert look(browser, pages[name], OVERFLOW, size=size) <= 0


FIGURES = """(async () => {
  const found = [];
  for (const figure of document.querySelectorAll('figure')) {
    figure.scrollIntoView();
    while (!figure.querySelector('img[hidden]')) {
      await new Promise((done) => setTimeout(done, 20)); // codespell:ignore
    }
    const svg = figure.querySelector('.chart svg'), frame = svg.getBoundingClientRect();
    const scale = frame.width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll('text')].filter((e) => e.textContent.trim() && e.checkVisibility({
      opacityProperty: true, visibilityProperty: true }) && e.getAttribute('opacity') !== '0');
    const boxes = texts.map((e) => [e.textContent, e.getBoundingClientRect()]);
    const sizes = texts.map((e) => parseFloat(getComputedStyle(e).fontSize) * scale);
    const meet = (p, q) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1
      && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3;
    const clash = boxes.flatMap(([a, p], i) =>
      boxes.slice(i + 1).filter(([, q]) => meet(p, q)).map(([b]) => `${a} / ${b}`));
    const cut = boxes.filter(([, p]) => p.right > frame.right + 1).map(([a]) => `cut ${a}`);
    found.push([figure.id, Math.min(...sizes), [...clash, ...cut], figure.scrollWidth - figure.clientWidth,
      svg.viewBox.baseVal.width / figure.clientWidth]);
  }
  return found; })()"""
"""Each figure, when it is drawn: its name, the size of its smallest text, texts that overlap or are cut, the pixels
that it scrolls sideways, and the drawn width by that of the page."""


def test_figures_are_drawn_again_if_the_width_changes(browser, pages):
    async def act(tab):
        await tab.evaluate(FIGURES)
        await tab.resize(PHONE)
        await asyncio.sleep(1)
        return await tab.evaluate(FIGURES)

    assert max(share for *_, share in visit(browser, pages["store"], act)) < 1.15


LINES = """[...document.querySelectorAll('.chart svg path[stroke], .lines svg path[stroke]')].map((e) =>
  [e.getAttribute('stroke').toLowerCase(), getComputedStyle(e).stroke])"""


def test_lines_are_lighter_in_dark_mode(browser, pages):
    """Each colour that is too dark for dark pages is replaced, in figures and in the samples of their lines."""

    def painted(colour):
        return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"

    lighter = {colour.lower(): painted(dark) for colour, dark in DARK_COLORS.items()}
    for dark in (False, True):
        lines = [pair for pair in look(browser, pages["laboratory"], LINES, dark=dark) if pair[0] in lighter]
        assert lines
        assert all((lighter[colour] == shown) is dark for colour, shown in lines)


def test_verdicts_fit_a_phone(browser, pages):
    boxes = "[...document.querySelectorAll('#verdicts .scroll, .scroll:has(.verdicts)')]"
    found = look(browser, pages["laboratory"], f"{boxes}.map((e) => e.scrollWidth - e.clientWidth)", size=PHONE)
    assert len(found) > 1
    assert max(found) <= 0


def test_wide_page_is_detected(browser, pages):
    assert look(browser, pages["spoilt"], OVERFLOW, size=PHONE) > 1000


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_has_sufficient_contrast(browser, pages, name, dark):
    """All text has a contrast ratio of at least 4.5:1 against its background (WCAG AA)."""
    contrast, text = look(browser, pages[name], CONTRASTS, dark=dark)
    assert contrast >= 4.5, text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_faint_text_is_detected(browser, pages, dark):
    assert look(browser, pages["spoilt"], CONTRASTS, dark=dark)[0] < 4.5


@pytest.mark.parametrize("name", GOOD)
def test_dark_mode_changes_page_and_figures(browser, pages, name):
    async def act(tab):
        place = await tab.evaluate(
            "(() => { const r = document.querySelector('.chart svg').getBoundingClientRect(); "
            "return [r.left, r.top + scrollY, r.width, r.height]; })()"
        )
        return await tab.evaluate("getComputedStyle(document.body).backgroundColor"), await tab.screenshot(*place)

    light, dark = (visit(browser, pages[name], act, dark=dark) for dark in (False, True))
    assert light[0] != dark[0]
    assert [_extremes(png) for png in (light[1], dark[1])] == [("light", "dark ink"), ("dark", "light ink")]


def _extremes(png):
    """Return whether the background of an image is light or dark, and whether its ink is darker or lighter."""
    grey = image.imread(io.BytesIO(png))[..., :3].mean(axis=-1)
    ground = float(grey[0, 0])
    ink = float(grey.min() if ground > 0.5 else grey.max())
    assert abs(ink - ground) > 0.6
    return ("light" if ground > 0.5 else "dark"), ("dark ink" if ink < ground else "light ink")


@pytest.mark.parametrize("name", GOOD)
def test_page_is_complete(browser, pages, name):
    """Figures load and have a text, headings skip no level, links have targets, and the page makes no request."""
    wrong, headings, complaints, n_images = visit(browser, pages[name], _inspect)
    assert (wrong, complaints) == ([0, 0, 0, 0, 1], [])  # the only request is for the page itself
    assert n_images >= 1
    assert headings.count(1) == 1
    assert _descends(headings)


def test_defects_of_a_page_are_detected(browser, pages):
    wrong, headings, complaints, _ = visit(browser, pages["spoilt"], _inspect)
    assert wrong == [1, 1, 1, 1, 2]
    assert not _descends(headings)
    assert len(complaints) == 3  # the absent file, the message and the exception of the page


async def _inspect(tab):
    wrong = [await tab.evaluate(s) for s in (UNNAMED, BROKEN_IMAGES, DEAD_LINKS, LOCKED_TABLES)]
    wrong.append(len(tab.requests))
    return wrong, await tab.evaluate(HEADINGS), tab.complaints, await tab.evaluate("document.images.length")


def _descends(headings):
    return headings[0] == 1 and all(after <= before + 1 for before, after in itertools.pairwise(headings))


@pytest.mark.parametrize("name", GOOD)
def test_tab_moves_through_all_focusable_elements(browser, pages, name):
    """The tab key moves a visible focus in the order of the page, starting at the link to the content."""

    async def act(tab):
        stops = []
        for _ in range(await tab.evaluate(FOCUSABLE)):
            await tab.press("Tab", windowsVirtualKeyCode=9)
            stops.append(await tab.evaluate(FOCUSED))
        return stops

    stops = visit(browser, pages[name], act)
    assert len(stops) > 10
    assert [stop["order"] for stop in stops] == sorted({stop["order"] for stop in stops})
    assert all(stop["outline"] >= 2 and stop["left"] >= 0 for stop in stops)
    assert stops[0]["skip"]
    assert {stop["tag"] for stop in stops} >= {"A", "DIV", "SUMMARY"}


def test_invisible_focus_is_detected(browser, pages):
    async def act(tab):
        await tab.press("Tab", windowsVirtualKeyCode=9)
        return await tab.evaluate(FOCUSED)

    assert visit(browser, pages["spoilt"], act)["outline"] == 0


POINT = """(() => { const [e] = [...document.querySelectorAll('.chart svg path[aria-label], .chart svg path')]
  .filter((e) => e.getAttribute('opacity') === '0'); e.scrollIntoView({block: 'center'});
  const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()"""
NAME = """(() => { const e = [...document.querySelectorAll('.chart svg text')].find((e) => e.textContent === 'smooth');
  e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();
  return [r.left + r.width / 2, r.top + r.height / 2]; })()"""
CHOSEN = "[...document.querySelectorAll('figure details input:checked')].map((e) => e.value)"
MARKS = "document.querySelectorAll('figure:has(.chart) .chart svg .mark-symbol path').length"


async def move(tab, place, *kinds):
    for kind in kinds:
        await tab.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
    await asyncio.sleep(0.3)


def test_hover_shows_value_error_and_number_of_trials(browser, pages):
    async def act(tab):
        await move(tab, await tab.evaluate(POINT), "mouseMoved")
        return await tab.evaluate("document.querySelector('.vg-tooltip')?.textContent")

    text = visit(browser, pages["laboratory"], act)
    assert " ± " in text
    assert "trials" in text


async def settled(tab):
    """Return the number of marks and the chosen lines once all figures near the window have been drawn."""
    shown = []
    while len(shown) < 4 or any(state != shown[-1] for state in shown[-4:]):
        shown.append([await tab.evaluate(MARKS), set(await tab.evaluate(CHOSEN))])
        await asyncio.sleep(0.3)
    return shown[-1]


def test_click_on_a_name_hides_its_line_and_shows_it_again(browser, pages):
    async def act(tab):
        await tab.evaluate(NAME)  # scrolls to the name, so that figures near it are drawn, which may move it
        shown = [await settled(tab)]
        place = await tab.evaluate(NAME)
        for _ in range(2):
            await move(tab, place, "mousePressed", "mouseReleased")
            shown.append(await settled(tab))
        return shown

    before, hidden, after = visit(browser, pages["laboratory"], act)
    assert before == after
    assert hidden[0] < before[0]
    assert hidden[1] == before[1] - {"smooth"}


def test_several_lines_are_chosen_by_boxes(browser, pages):
    async def act(tab):
        found = []
        for button in ("all", "as at first"):
            found.append(set(await tab.evaluate(CHOSEN)))
            buttons = "[...document.querySelectorAll('figure details button')]"
            await tab.evaluate(f"{buttons}.find((e) => e.textContent === '{button}').click()")
            await asyncio.sleep(0.3)
        return [*found, set(await tab.evaluate(CHOSEN))], tab.complaints

    (first, everything, again), complaints = visit(browser, pages["laboratory"], act)
    assert first == again
    assert first <= everything
    assert complaints == []


def test_switch_of_the_scale_draws_the_figure_again(browser, pages):
    async def act(tab):
        texts = "[...document.querySelectorAll('.chart svg text')].map((e) => e.textContent).join(' ')"
        before = await tab.evaluate(texts)
        await tab.evaluate(
            "(() => { const e = document.querySelector('figure select'); e.value = 'linear'; "
            "e.dispatchEvent(new Event('change')); })()"
        )
        await asyncio.sleep(0.5)
        return before, await tab.evaluate(texts), tab.complaints

    before, after, complaints = visit(browser, pages["laboratory"], act)
    assert before != after
    assert complaints == []


def test_arrow_keys_read_the_values(browser, pages):
    async def act(tab):
        await tab.evaluate("document.querySelector('.chart').focus()")
        await tab.press("ArrowRight")
        return await tab.evaluate("document.querySelector('figure output').textContent")

    text = visit(browser, pages["laboratory"], act)
    assert text.startswith("smooth, at ")
    assert text.endswith("20 trials")


def test_every_figure_has_a_static_image(pages):
    """Without JavaScript, a page shows the images, which only its script hides."""
    for name in GOOD:
        html = pages[name].read_text()
        static = re.findall(r'<figure id="[^"]+">\n<img src="data:image/svg\+xml,', html)
        assert html.count("<figure") == len(static) >= 1


def test_charts_have_names_for_screen_readers(browser, pages):
    """The name of an interactive figure is its title and caption, not that of the drawing library."""
    names = "[...document.querySelectorAll('.chart, .chart [aria-label]')].map((e) => e.getAttribute('aria-label'))"
    found = look(browser, pages["store"], names)
    assert found
    assert not [name for name in found if "Vega" in name]


CUT = """(() => { document.querySelectorAll('details').forEach((e) => { e.open = true; });
  return [...document.querySelectorAll('.scroll, figure, .findings p, .card p, pre')].filter((e) =>
  getComputedStyle(e).overflowY !== 'visible' && e.scrollHeight > e.clientHeight + 1 ||
  e.scrollWidth > document.documentElement.clientWidth).length; })()"""


@pytest.mark.parametrize("name", GOOD)
def test_print_cuts_nothing(browser, pages, name):
    async def act(tab):
        await tab.send("Emulation.setEmulatedMedia", media="print")
        return await tab.evaluate(CUT)

    assert visit(browser, pages[name], act, size=PAPER) == 0


@pytest.mark.parametrize("name", GOOD)
def test_folded_parts_are_printed_on_request(browser, pages, name):
    """Parts that a reader has not opened stay folded on paper; a button opens all of them."""

    async def act(tab):
        lengths = []
        for script in ("0", "document.getElementById('unfold').click()"):
            await tab.evaluate(script)
            pdf = await tab.send("Page.printToPDF")
            lengths.append(len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(pdf["data"]))))
        return lengths, await tab.evaluate("document.querySelectorAll('main details:not(.lines, [open])').length")

    (folded, whole), n_folded = visit(browser, pages[name], act)
    assert 1 <= folded < whole
    assert n_folded == 0


def test_index_has_an_image_of_each_study(browser, pages):
    entries = (
        "[...document.querySelectorAll('.index li')].map((e) => "
        "[e.querySelector('a').textContent.trim(), e.querySelectorAll('img').length])"
    )
    assert look(browser, pages["laboratory"], entries) == [[name, 1] for name in TINY]


def test_cut_text_is_detected(browser, pages):
    assert look(browser, pages["laboratory"], CUT, size=PHONE) > 0


@pytest.mark.parametrize(
    ("size", "smallest"), [(PHONE, 10), (DESK, 11), ((1280, 900), 11)], ids=["phone", "desk", "wide"]
)
def test_figures_fit_the_page_and_their_texts_are_legible_and_do_not_overlap(browser, pages, size, smallest):
    for name in GOOD:
        figures = look(browser, pages[name], FIGURES, size=size)
        assert figures
        assert [(figure, wrong) for figure, pixels, wrong, *_ in figures if pixels < smallest or wrong] == []
        assert [
            (figure, share) for figure, _, _, scrolled, share in figures if scrolled > 0 or abs(share - 1) > 0.15
        ] == []


def test_small_and_overlapping_texts_of_figures_are_detected(browser, pages):
    async def act(tab):
        await tab.evaluate(
            "document.head.append(Object.assign(document.createElement('style'), {textContent: "
            "'.chart svg { min-width: 0 !important; width: 20rem !important } .chart text { font-size: 30px }'}))"
        )
        return await tab.evaluate(FIGURES)

    assert all(wrong for _, _, wrong, *_ in visit(browser, pages["store"], act, size=(1280, 900)))
    small = FIGURES.replace("* scale)", "* scale / 2)")
    assert all(size < 11 for _, size, *_ in look(browser, pages["store"], small, size=(1280, 900)))


DECIDED = re.compile(
    r"<b>(0 of \d+ claims have a verdict|[1-9]\d* of \d+ claims ha(s|ve) a verdict: [a-z0-9][^.]*); "
    r"the others need more trials, panels or values than these stores have\.</b>"
)


def test_first_screen_counts_claims_with_a_verdict(pages):
    assert DECIDED.search(pages["laboratory"].read_text())


def test_undecided_claims_are_in_one_folded_list(pages):
    page = pages["laboratory"].read_text()
    assert page.count('<details id="undecided">') == page.count("that these stores cannot decide</summary>") == 1
    listed = page.partition('<details id="undecided">')[2].partition("</details>\n</section>")[0]
    studies = re.findall(r"<h3>(.*)</h3>", listed)
    assert "hellinger-accuracy" in studies
    assert len(set(studies)) == len(studies) == listed.count("<tbody")
    for study, rows in zip(studies, listed.split("<h3>")[1:], strict=True):
        assert set(re.findall(r"; ([a-z-]+)(?:; <a|\))", rows)) == {study}


def test_corrected_statements_have_their_numbers(pages):
    page = pages["laboratory"].read_text()
    rows = page.partition("and its correction.</p>")[2].partition("</table>")[0].split("<tr")[2:]
    assert rows
    assert all(re.search(r'<div class="numbers">[^/]*\d', row) for row in rows)


def test_methods_that_a_finding_names_are_explained():
    claim = Claim("size", "smooth-exact is best.", "P0", "", "conclusion", {"k2": {"mechanism": ("laplace",)}}, len)
    finding = Finding("holds", "nearest rival varying-exact with 1.2; smoothness is no name.")
    explained = _explain_methods(Judged("", claim, finding), SimpleNamespace(study=STUDIES["hellinger-accuracy"]))
    assert sorted(name for name, _ in explained) == ["laplace", "smooth-exact", "varying-exact"]


def test_evidence_is_folded_at_the_end_of_a_clause():
    """No word is cut off, and the folded rest continues; short evidence is shown whole."""
    clause = "Ratio 0.5 at n = 10 (k3); "
    assert fold("Mean 1.5. Error 0.1.") == ("Mean 1.5. Error 0.1.", "")
    shown, rest = fold(9 * clause + "end.")
    assert shown == (6 * clause).rstrip("; ") + "."
    assert rest == 3 * clause + "end."
    assert fold(100 * "ab") == ("", 100 * "ab")


def test_first_screen_names_papers_and_the_scale_that_decides(pages):
    top = pages["laboratory"].read_text().partition('<section id="verdicts">')[0]
    for paper in ("P0: Bun et al., poster", "P1: anonymous draft", "P3: Geumlek et al. 2017"):
        assert f">{paper}</a>" in top
    assert "published scale has more trials, which may decide it: dpstudies run hellinger-accuracy" in re.sub(
        r"</?span[^>]*>", "", top
    )


def test_a_part_of_a_study_is_not_called_its_quick_scale(command, tmp_path):
    """The page of one panel names its panels and trials; the command counts the claims without a panel in one line."""
    values = {"n": [20], "mechanism": ["laplace", "k-norm"]}
    pipeline.run(STUDIES["hellinger-accuracy"], tmp_path / "s.zarr", panels=["k3"], trials=10, values=values)
    code, out, _ = command("report", str(tmp_path / "s.zarr"))
    page = (tmp_path / "s.html").read_text()
    assert DECIDED.search(page)
    assert (code, out.count("has no panel")) == (0, 0)
    assert re.search(r"^undecided: \d+ claims, because the store lacks panels that they need$", out, re.MULTILINE)


def test_report_prints_one_line_per_verdict_and_the_evidence_on_request(command, tmp_path):
    values = {"n": [20], "mechanism": ["laplace", "smooth-exact"]}
    pipeline.run(STUDIES["hellinger-accuracy"], tmp_path / "s.zarr", panels=["k2"], trials=10, values=values)
    store = str(tmp_path / "s.zarr")
    statement = "The audited privacy loss of every calibrated mechanism is at most epsilon."
    _, brief, _ = command("report", store)
    lines = [line.rstrip() for line in brief.splitlines()]
    assert lines[0].split() == ["verdict", "claim"]
    assert [line.split(maxsplit=1) for line in lines if statement in line] == [["undecided", statement]]
    short = "For n > 400, smooth beats Laplace noise scaled to the dimension (panel k2)."
    assert f"undecided  {short}" in lines
    assert max(map(len, lines[:-2])) <= len("not reproduced  ") + 80
    assert lines[-2:] == [
        f"report: {tmp_path}/s.html",
        f"statements and evidence: on the page, or with: dpstudies report {store} --verbose",
    ]
    _, whole, _ = command("report", store, "--verbose")
    assert f"undecided: {statement} " in whole
    assert "evidence:" not in whole
    assert len(whole) > len(brief)


def test_refuted_claims_are_followed_by_their_correction():
    """The correction of a claim is its erratum, or else the evidence on a paper; other claims have none."""
    erratum = Erratum("It is large.", "It is small.")
    for declared, kind, paper, verdict, correct in (
        (erratum, "conclusion", "P0", "not reproduced", "It is small."),
        (erratum, "addition", "P0", "does not hold", "It is small."),
        (erratum, "conclusion", "P0", "corrected", "It is small."),
        (None, "conclusion", "P0", "not reproduced", "2 > 1."),
        (None, "conclusion", "", "not reproduced", ""),
        (None, "addition", "P0", "does not hold", ""),
        (None, "self-check", "", "failed", ""),
        (erratum, "conclusion", "P0", "reproduced", ""),
        (erratum, "conclusion", "P0", "undecided", ""),
    ):
        stated = Claim("size", "It is large.", paper, "Table 1", kind, {}, len, declared)
        assert correction(stated, Finding(verdict, "2 > 1.")) == correct


def test_findings_that_lead_come_first_with_their_figure():
    figures = {name: RenderedFigure(name, "", "", None, "", "", None) for name in ("first", "second")}
    first, second, open_ = (
        Judged(
            "",
            Claim(name, name, "P0", "", "addition", {}, len, leads=name != "first"),
            Finding(verdict, ""),
            figures.get(name),
        )
        for name, verdict in (("first", "holds"), ("second", "does not hold"), ("open", "undecided"))
    )
    assert lead_with([*figures.values()], [first, open_, second]) == (figures["second"], [second, first])
    assert lead_with([], [open_]) == (None, [])


def test_injected_scripts_do_not_run(browser, pages):
    async def act(tab):
        return [one["entry"]["text"] for one in tab.complaints if "entry" in one], len(tab.complaints)

    texts, n_complaints = visit(browser, pages["injected"], act)
    assert n_complaints == len(texts) == 1
    assert "Content Security Policy" in texts[0]

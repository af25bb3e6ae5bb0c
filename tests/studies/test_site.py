"""Test of the site: it is written without warnings, its links resolve, and its search knows guides and modules."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import pipeline
from studies import STUDIES
from studies.folders import configure

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """Links and their targets on a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.targets = [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.targets |= {value for name, value in attrs if name == "id"}


def broken_links(site):
    """Return the relative links of all pages that lead to no file or to no element."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            url, anchor = urldefrag(unquote(link))
            target = Path(os.path.normpath(path.parent / url)) if url else path
            if ":" in url or (target.is_file() and (target not in pages or anchor in pages[target].targets)):
                continue
            broken.append((str(path.relative_to(site)), link))
    return broken


def write_site(*arguments):
    words = [sys.executable, "-W", "error", ROOT / ".github/site.py", *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_site_of_guides_modules_and_results(tmp_path):
    study = STUDIES["hellinger-sensitivity"]
    pipeline.run(study, f"{tmp_path}/lab/{study.name}.zarr", progress=False, **configure(study, "quick"))
    site = tmp_path / "site"
    done = write_site(site, tmp_path / "lab")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"wrote {site / 'index.html'}\n")
    assert broken_links(site) == []
    written = (site / "search.js").read_text()
    entries = json.JSONDecoder().raw_decode(written, written.index("[{"))[0]
    assert {"index", "guides.studies", "mechanisms.counts.k_norm.KNormNoise"} <= {one["fullname"] for one in entries}
    assert "mechanisms.regression.sparse_vector" in {
        one["fullname"] for one in entries if "sparse vector" in one["doc"]
    }
    gallery = (site / "gallery.html").read_text()
    assert all(f"report.html#{study.name}-{figure.name}" in gallery for figure in study.figures)
    (site / "guides/pipeline.html").unlink()
    assert ("index.html", "guides/pipeline.html") in broken_links(site)


@pytest.mark.slow  # requires the extra `lint`, like the site
def test_site_refuses_a_folder_without_stores_before_it_writes_pages(tmp_path):
    done = write_site(tmp_path / "site", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"site.py: {tmp_path} contains no store of a study")
    assert list(tmp_path.rglob("*.html")) == []

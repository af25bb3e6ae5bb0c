"""Tests of the site: it is written without warnings, its links resolve, and its search knows guides and modules."""

import json
import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import pipeline
from studies import STUDIES
from studies.folders import configure
from studies.report import checkout, site
from tests.pipeline.helpers import run_python


class Page(HTMLParser):
    """Links and their targets on a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.targets = [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.targets |= {value for name, value in attrs if name == "id"}


def broken_links(folder):
    """Return the relative links of all pages that lead to no file or to no element."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            url, anchor = urldefrag(unquote(link))
            target = Path(os.path.normpath(path.parent / url)) if url else path
            if ":" in url or (target.is_file() and (target not in pages or anchor in pages[target].targets)):
                continue
            broken.append((str(path.relative_to(folder)), link))
    return broken


def write_in_a_process(*words):
    """Write a site in another process, in which every warning is an error: pdoc warns of what it cannot document.

    Garbage collection among its many syntax trees would take a quarter of the time.
    """
    arguments = ["dpstudies", *map(str, words)]
    code = f"import gc, sys; gc.disable(); from studies.cli import main; sys.argv = {arguments!r}; main()"
    return run_python("-W", "error", "-c", code, cwd=checkout.find_checkout(), seconds=600)


@pytest.mark.slow
def test_site_of_guides_modules_and_results(tmp_path):
    study = STUDIES["renyi-curves"]
    pipeline.run(study, f"{tmp_path}/lab/{study.name}.zarr", progress=False, **configure(study, "quick"))
    folder = tmp_path / "new/site"
    done = write_in_a_process("site", tmp_path / "lab", "--output", folder)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"wrote {folder / 'index.html'}\n")
    assert broken_links(folder) == []
    written = (folder / "search.js").read_text()
    entries = json.JSONDecoder().raw_decode(written, written.index("[{"))[0]
    assert {"index", "guides.studies", "mechanisms.counts.k_norm.KNormNoise"} <= {
        entry["fullname"] for entry in entries
    }
    assert "mechanisms.regression.sparse_vector" in {
        entry["fullname"] for entry in entries if "sparse vector" in entry["doc"]
    }
    gallery = (folder / "gallery.html").read_text()
    assert all(f"report.html#{study.name}-{figure.name}" in gallery for figure in study.figures)
    (folder / "guides/pipeline.html").unlink()
    assert ("index.html", "guides/pipeline.html") in broken_links(folder)


def test_other_folders_are_refused_and_sites_are_not(refused, tmp_path):
    """The next check refuses results that do not exist, so that no site is written."""
    pages = [tmp_path / f"old/{module.replace('.', '/')}.html" for module, _ in site.GUIDES.values()]
    (tmp_path / "old/guides").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for page in (tmp_path / "old/search.js", *pages):
        page.touch()
    for folder in ("old", "empty", "new"):
        refused("site", "gone", "--output", folder, message="the results must be a folder")
    pages[-1].unlink()
    for folder in ("old", "old/search.js"):
        message = f"dpstudies: {folder} exists and is not a site; choose another folder with --output\n"
        refused("site", "gone", "--output", folder, message=message)


def test_site_requires_pdoc(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "pdoc", None)
    refused("site", message="dpstudies: the site requires pdoc; install it with: pip install 'dpstudies[site]'\n")


@pytest.mark.parametrize("words", [("site",), ("findings", "lab")], ids=" ".join)
def test_documents_require_a_checkout(refused, monkeypatch, tmp_path, words):
    installed = tmp_path / "packages/studies/report/checkout.py"
    monkeypatch.setattr(checkout, "__file__", str(installed))
    message = "must be imported from a checkout, which contains the documents, got the package in "
    refused(*words, message=f"{message}{installed.parents[2]}")

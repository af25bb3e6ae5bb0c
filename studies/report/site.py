"""Site of static files, which a browser reads from disk: guides, API reference, and gallery and results of a folder.

pdoc makes all pages and searches them: the text of a guide is the docstring of a module that is made for this purpose.
"""

import ast
import html
import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pdoc
from pdoc.doc import Class, Module
from pdoc.render_helpers import to_html, to_markdown

from pipeline.errors import BadInputError, command
from studies.figures import Converter
from studies.folders import is_folder
from studies.report.checkout import find_checkout
from studies.report.collection import write_collection
from studies.report.page import TEMPLATES, render_figures
from studies.report.results import Results, load_results

PACKAGES = ("mechanisms", "pipeline", "studies")
GUIDES = {
    "README.md": ("index", "dpstudies"),
    "studies/FINDINGS.md": ("guides.findings", "Findings"),
    "studies/tutorial.ipynb": ("guides.tutorial", "Tutorial"),
    "mechanisms/README.md": ("guides.mechanisms", "Mechanisms"),
    "pipeline/README.md": ("guides.pipeline", "Pipeline"),
    "studies/README.md": ("guides.studies", "Studies"),
    "tests/README.md": ("guides.tests", "Tests"),
    ".github/CONTRIBUTING.md": ("guides.contributing", "Contributing"),
    "CHANGELOG.md": ("guides.changelog", "Changelog"),
}
"""File of the checkout -> module whose page contains it, and its title."""


def write_site(folder: Path, lab: str | None = None) -> None:
    """Write the site to a folder, which is created if it is missing; `lab` is a folder of all studies.

    Raises
    ------
    BadInputError
        If the package is not imported from a checkout, the folder contains other files than a site, or `lab` contains
        no store of a study.
    """
    checkout = find_checkout()
    _require_site(folder)
    results = None if lab is None else _read_lab(lab)
    folder.mkdir(parents=True, exist_ok=True)
    gallery = {}
    if lab is not None and results is not None:
        write_collection(lab, folder / "report.html")
        gallery = {"gallery": ("Gallery", _write_gallery(results, folder))}
    modules = {name: _document_module(name) for name in _list_names()}
    modules |= {name: _document_package(name, modules) for name in modules if hasattr(sys.modules[name], "__path__")}
    texts = {name: (title, _convert_guide(checkout, path, folder)) for path, (name, title) in GUIDES.items()}
    texts |= {"api": ("API reference", _tabulate_modules(modules))} | gallery
    pages = {name: _make_page(name, text) for name, (_, text) in texts.items()} | modules
    titles = {name: title for name, (title, _) in texts.items()}
    _write_pages(pages, folder, guides=titles, has_results=bool(gallery), show_source=False)


def _require_site(folder: Path) -> None:
    """Raise BadInputError if a path is neither free nor an empty folder nor a site."""
    pages = [folder / "search.js", *(folder / _page_path(module) for module, _ in GUIDES.values())]
    is_free = not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free and not all(page.is_file() for page in pages):
        raise BadInputError(f"{folder} exists and is not a site; choose another folder with --output")


def _read_lab(lab: str) -> Results:
    """Return the results of a folder of all studies."""
    if not is_folder(lab):
        example = command("run", "all", "--store", "lab")
        raise BadInputError(
            f"the results must be a folder with the store of a study, got {lab}; compute one with: {example}"
        )
    return load_results(lab)[0]


def _page_path(module: str) -> str:
    """Return the path of a module's page in the site."""
    return f"{module.replace('.', '/')}.html"


def _write_pages(pages: Mapping[str, Module], folder: Path, **shown: Any) -> None:
    """Write all pages and their search, with values that the templates read."""
    pdoc.render.configure(docformat="numpy", include_undocumented=False, template_directory=TEMPLATES / "site")
    pdoc.render.env.globals.update(shown)
    entries = [entry for page in pages.values() for entry in _search_entries(page)]
    search = pdoc.render.env.get_template("search.js.jinja2").render(search_index=json.dumps(entries))
    (folder / "search.js").write_text(search, encoding="utf-8")
    for name, page in pages.items():
        path = folder / _page_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r'<a href="[^"]*#_[^"]*">(.*?)</a>', r"\1", pdoc.render.html_module(page, pages))  # private bases
        path.write_text(text, encoding="utf-8")


def _make_page(name: str, text: str) -> Module:
    """Return the page of a module that is made for a text in Markdown."""
    module = ModuleType(name, text)
    vars(module).update(__docformat__="markdown", __all__=[])
    return Module(module)


def _list_names() -> list[str]:
    """Return the names of all public modules."""
    packages = map(importlib.import_module, PACKAGES)
    infos = [info for package in packages for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return sorted((*PACKAGES, *(info.name for info in infos if "._" not in info.name)))


def _document_module(name: str) -> Module:
    """Return the page of a module, without names of other distributions."""
    module = importlib.import_module(name)
    for member in vars(module).values():
        if isinstance(member, type) and issubclass(member, tuple) and hasattr(member, "_fields"):
            member.__new__.__module__ = member.__module__  # pdoc resolves the annotations of a NamedTuple there
    page = Module(module)
    if not hasattr(module, "__path__"):
        for member_name, documented in list(page.members.items()):
            if documented.taken_from[0].partition(".")[0] not in PACKAGES:
                del page.members[member_name]
    return page


def _document_package(name: str, modules: Mapping[str, Module]) -> Module:
    """Return the page of a package: its docstring, and a table of the names that it exports from its modules."""
    package = sys.modules[name]
    stub = Path(inspect.getfile(package)).with_suffix(".pyi")
    source = stub.read_text(encoding="utf-8") if stub.exists() else inspect.getsource(package)
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    homes = {
        alias.asname or alias.name: (f"{name}.{node.module}" if node.level else node.module, alias.name)
        for node in imports
        for alias in node.names
    }
    rows = []
    for exported in getattr(package, "__all__", ()):
        module, original = homes.get(exported, (name, exported))
        described = modules[module].get(original) if module in modules else None
        rows.append(f"| `{module}.{original}` | {_first_line(described.docstring if described else '')} |")
    table = "\n".join(("", "| exported name | |", "| --- | --- |", *rows)) if rows else ""
    documented = ModuleType(name, f"{inspect.getdoc(package) or name}\n{table}")
    documented.__path__ = package.__path__
    return Module(documented)


def _search_entries(page: Module) -> Iterator[dict[str, str]]:
    """Yield the searched texts of a page: its text, and the documented names of a module, without signatures."""
    members = [member for member in page.flattened_own_members if not member.name.startswith("_")]
    classes = [member for member in members if isinstance(member, Class)]
    methods = [method for kind in classes for method in kind.own_members if method.name[0] != "_"]
    for documented in (page, *members, *methods):
        if documented.docstring:
            yield {
                "fullname": documented.fullname,
                "modulename": documented.modulename,
                "qualname": documented.qualname,
                "kind": documented.kind,
                "funcdef": "def",
                "signature": "",
                "doc": to_html(to_markdown(documented.docstring, page, "numpy")),
            }


def _tabulate_modules(modules: Mapping[str, Module]) -> str:
    """Return the entry page of the API reference in Markdown: one table of modules per package."""
    lines = [
        "# API reference\n\nMost tasks need the names that the three packages export; pages of packages list them."
    ]
    for name, module in modules.items():
        if "." not in name:
            lines.append(f"\n## {name}\n\n| module | |\n| --- | --- |")
        lines.append(f"| `{name}` | {_first_line(module.docstring)} |")
    return "\n".join(lines)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].replace("|", "\\|")


def _convert_guide(checkout: Path, path: str, folder: Path) -> str:
    """Return a guide in Markdown, with links between pages of the site; files to which it links are copied."""
    text = (checkout / path).read_text(encoding="utf-8").replace("<details>", '<details markdown="1">')
    if path.endswith(".ipynb"):
        text = "\n\n".join(_convert_cell(cell) for cell in json.loads(text)["cells"])
    base, up = os.path.dirname(path), "../" * GUIDES[path][0].count(".")

    def replace(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        file = os.path.normpath(os.path.join(base, target))
        if file in GUIDES:
            url = _page_path(GUIDES[file][0]) + (f"#{anchor}" if anchor else "")
        else:
            url = f"files/{file}"
            (folder / url).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / file, folder / url)
        return f"{match[1]}{up}{url}{match[3]}"

    blocks = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)  # every second one is code
    link = re.compile(r"(\]\(|src=\")(?!data:|[a-z]+://|#)([^)\"\s]+)([)\"])")
    return "".join(block if number % 2 else link.sub(replace, block) for number, block in enumerate(blocks))


def _convert_cell(cell: Mapping[str, Any]) -> str:
    """Return a cell of a notebook with its stored outputs in Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    blocks = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in data:
            blocks.append(f'<img src="data:image/png;base64,{"".join(data["image/png"]).strip()}" alt="figure">')
        else:
            blocks.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(blocks)


def _write_gallery(results: Results, folder: Path) -> str:
    """Write the figures of all studies; return the gallery in Markdown."""
    (folder / "figures").mkdir(exist_ok=True)
    blocks = ["# Gallery\n\nFigures of all studies; each links to its place among the results."]
    with Converter() as converter:
        for name, result in results.items():
            blocks.append(f"## {result.study.title}")
            figures, _ = render_figures(result.study, result.summaries, converter, result.claims, prefix=f"{name}-")
            for figure in figures:
                (folder / f"figures/{figure.id}.svg").write_bytes(figure.svg.result())
                title, caption = map(html.escape, (figure.title, figure.caption))
                image = f'<img src="figures/{figure.id}.svg" alt="{title}" loading="lazy">'
                blocks.append(f'<figure><a href="report.html#{figure.id}">{image}</a>')
                blocks.append(f"<figcaption><b>{title}.</b> {caption}</figcaption></figure>")
    return "\n\n".join(blocks)

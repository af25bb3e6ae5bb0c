"""Site of static files, which a browser reads from disk: ``python -W error .github/site.py FOLDER [LAB]`` writes it.

It has guides and API reference, and gallery and results of LAB, a folder of ``dpstudies run all``. pdoc makes all pages
and searches them: the text of a guide is the docstring of a module that is made for this purpose.
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

import pdoc
from pdoc.doc import Class, Module
from pdoc.render_helpers import to_html, to_markdown

from pipeline.errors import BadInputError
from studies.figures import Converter
from studies.report import write_collection
from studies.report.page import render_figures
from studies.report.results import load_results

ROOT = Path(__file__).resolve().parents[1]
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
"""File -> module whose page contains it, and its title."""


def write_site(folder: Path, lab: str | None = None) -> None:
    """Write the site to a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    gallery = {} if lab is None else {"gallery": ("Gallery", _gallery(lab, folder))}
    modules = {name: _module(name) for name in _module_names()}
    modules |= {name: _package(name, modules) for name in modules if hasattr(sys.modules[name], "__path__")}
    texts = {name: (title, _guide(path, folder)) for path, (name, title) in GUIDES.items()}
    texts |= {"api": ("API reference", _list_modules(modules))} | gallery
    pages = {name: _page(name, text) for name, (_, text) in texts.items()} | modules
    pdoc.render.configure(docformat="numpy", include_undocumented=False, template_directory=ROOT / ".github/templates")
    titles = {name: title for name, (title, _) in texts.items()}
    pdoc.render.env.globals.update(guides=titles, has_results=bool(gallery), show_source=False)
    entries = [entry for page in pages.values() for entry in _search_entries(page)]
    search = pdoc.render.env.get_template("search.js.jinja2").render(search_index=json.dumps(entries))
    (folder / "search.js").write_text(search, encoding="utf-8")
    for name, page in pages.items():
        path = folder / f"{name.replace('.', '/')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r'<a href="[^"]*#_[^"]*">(.*?)</a>', r"\1", pdoc.render.html_module(page, pages))  # private bases
        path.write_text(text, encoding="utf-8")


def _page(module: str, text: str) -> Module:
    """Return a page with a text in Markdown."""
    made = ModuleType(module, text)
    vars(made).update(__docformat__="markdown", __all__=[])
    return Module(made)


def _module_names() -> list[str]:
    """Return the names of all public modules."""
    packages = map(importlib.import_module, PACKAGES)
    walked = [one.name for each in packages for one in pkgutil.walk_packages(each.__path__, f"{each.__name__}.")]
    return sorted((*PACKAGES, *(name for name in walked if "._" not in name)))


def _module(name: str) -> Module:
    """Return the page of a module, without names of other distributions."""
    found = importlib.import_module(name)
    for value in vars(found).values():
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            value.__new__.__module__ = value.__module__  # pdoc resolves the annotations of a NamedTuple there
    page = Module(found)
    if not hasattr(found, "__path__"):
        for member in [one for one in page.members.values() if one.taken_from[0].partition(".")[0] not in PACKAGES]:
            del page.members[member.name]
    return page


def _package(name: str, modules: Mapping[str, Module]) -> Module:
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
    made = ModuleType(name, f"{inspect.getdoc(package) or name}\n{table}")
    made.__path__ = package.__path__
    return Module(made)


def _search_entries(page: Module) -> Iterator[dict[str, str]]:
    """Yield what the search knows of a page: its text, and the documented names of a module, without signatures."""
    public = [one for one in page.flattened_own_members if not one.name.startswith("_")]
    methods = [one for kind in public if isinstance(kind, Class) for one in kind.own_members if one.name[0] != "_"]
    for one in (page, *public, *methods):
        if one.docstring:
            text = to_html(to_markdown(one.docstring, page, "numpy"))
            names = {"fullname": one.fullname, "modulename": one.modulename, "qualname": one.qualname}
            yield names | {"kind": one.kind, "funcdef": "def", "signature": "", "doc": text}


def _list_modules(modules: Mapping[str, Module]) -> str:
    """Return the entry page of the API reference in Markdown: one table of modules per package."""
    parts = [
        "# API reference\n\nMost tasks need the names that the three packages export; pages of packages list them."
    ]
    for name, module in modules.items():
        if "." not in name:
            parts.append(f"\n## {name}\n\n| module | |\n| --- | --- |")
        parts.append(f"| `{name}` | {_first_line(module.docstring)} |")
    return "\n".join(parts)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].replace("|", "\\|")


def _guide(path: str, folder: Path) -> str:
    """Return a guide in Markdown, with links between pages of the site; files to which it links are copied."""
    text = (ROOT / path).read_text(encoding="utf-8").replace("<details>", '<details markdown="1">')
    if path.endswith(".ipynb"):
        text = "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"])
    base, up = os.path.dirname(path), "../" * GUIDES[path][0].count(".")

    def replace(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        file = os.path.normpath(os.path.join(base, target))
        if file in GUIDES:
            url = f"{GUIDES[file][0].replace('.', '/')}.html" + (f"#{anchor}" if anchor else "")
        else:
            url = f"files/{file}"
            (folder / url).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, folder / url)
        return f"{match[1]}{up}{url}{match[3]}"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    link = re.compile(r"(\]\(|src=\")(?!data:|[a-z]+://|#)([^)\"\s]+)([)\"])")
    return "".join(part if number % 2 else link.sub(replace, part) for number, part in enumerate(parts))


def _cell(cell: Mapping) -> str:
    """Return a cell of a notebook with its stored outputs in Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in data:
            parts.append(f'<img src="data:image/png;base64,{"".join(data["image/png"]).strip()}" alt="figure">')
        else:
            parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts)


def _gallery(lab: str, folder: Path) -> str:
    """Write the page of a collection and its figures; return the gallery in Markdown."""
    write_collection(lab, folder / "report.html")
    (folder / "figures").mkdir(exist_ok=True)
    parts = ["# Gallery\n\nFigures of all studies; each links to its place among the results."]
    with Converter() as converter:
        for name, one in load_results(lab)[0].items():
            parts.append(f"## {one.study.title}")
            for figure in render_figures(one.study, one.summaries, converter, one.claims, prefix=f"{name}-")[0]:
                (folder / f"figures/{figure.id}.svg").write_bytes(figure.svg.result())
                title, caption = map(html.escape, (figure.title, figure.caption))
                image = f'<img src="figures/{figure.id}.svg" alt="{title}" loading="lazy">'
                parts.append(f'<figure><a href="report.html#{figure.id}">{image}</a>')
                parts.append(f"<figcaption><b>{title}.</b> {caption}</figcaption></figure>")
    return "\n\n".join(parts)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -W error .github/site.py FOLDER [LAB]")
    try:
        write_site(Path(sys.argv[1]), *sys.argv[2:])
    except (OSError, BadInputError) as error:
        sys.exit(f"site.py: {error}")
    print(f"wrote {sys.argv[1]}/index.html")

"""Self-contained HTML page about one store: figures, claims with their verdicts, tables, provenance."""

import base64
import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import xarray as xr

from pipeline import BadInputError, Claim, Figure, Finding, Status, Study, open_results, summarise
from pipeline.aggregate import count_status
from pipeline.blocks.evaluate import FAILURES
from pipeline.declare.factors import format_value
from pipeline.errors import unknown
from pipeline.stores.store import ResultStore
from studies.styles import INK

Summaries = Mapping[str, xr.Dataset]

_READ_AT_ONCE = 1 << 27  # bytes
_INK_ON_DARK = "#e8e8e8"


def load_summaries(
    store: str | os.PathLike[str], panels: Sequence[str] = (), study: Study | None = None
) -> dict[str, xr.Dataset]:
    """Return the summaries of a store.

    Parameters
    ----------
    store : path
        A store.
    panels : sequence of str
        Panels to summarise; all if empty.
    study : Study, optional
        Study of the store, whose own statistics are computed in addition.

    Returns
    -------
    dict of str to xarray.Dataset
        See `pipeline.summarise`.
    """
    tree = open_results(store)
    for name in panels:
        if name not in tree.children:
            raise BadInputError(unknown("panel", name, tree.children))
    own = {} if study is None else {panel.name: panel.statistics for panel in study.panels}
    names = panels or [str(name) for name in tree.children]
    return {name: summarise(_in_memory(store, name, tree[name].to_dataset()), own.get(name, ())) for name in names}


def _in_memory(store: str | os.PathLike[str], panel: str, lazy: xr.Dataset) -> xr.Dataset:
    """Load a small panel at once, ten times faster than with one Dask task per block."""
    if lazy.nbytes > _READ_AT_ONCE:
        return lazy
    whole = xr.open_zarr(store, group=panel, chunks=None).load()
    return whole.sel({name: index.values for name, index in lazy.indexes.items()})  # in the order of `lazy`


def judge(study: Study, summaries: Summaries) -> list[tuple[Claim, Finding]]:
    """Check every claim of a study.

    A claim is undecided if the store lacks required values, or if required trials are pending or too few for a normal
    approximation to the distribution of a mean. A panel without trials requires its single evaluation.
    """
    return [(claim, _undecided(study, claim, summaries) or claim.judge(summaries)) for claim in study.claims]


def _undecided(study: Study, claim: Claim, summaries: Summaries) -> Finding | None:
    for panel in claim.needs or summaries:
        if panel not in summaries:
            return Finding("undecided", f"The store has no panel {panel}.")
        summary = summaries[panel]
        for dim, values in claim.needs.get(panel, {}).items():
            absent = [value for value in values if value not in np.atleast_1d(summary[dim].values)]
            if absent:
                named = ", ".join(map(format_value, absent[:5])) + (", ..." if len(absent) > 5 else "")
                return Finding("undecided", f"Panel {panel} has no {dim} = {named}.")
            if dim in summary.dims:
                summary = summary.sel({dim: list(values)})
        n_pending = int(summary["n_pending"].sum())
        n_all = summary["n_ok"] + summary["n_failed"] + summary["n_pending"]
        n_ok = int(summary["n_ok"].where(n_all > 0).fillna(n_all.max()).min())  # 0 of 0: a setting that does not apply
        needed = 1 if study.panel(panel).trials is None else claim.min_trials
        if n_pending:
            return Finding("undecided", f"{n_pending:,} trials of panel {panel} are pending.")
        if n_ok < needed:
            return Finding("undecided", f"A method of panel {panel} has {n_ok} ok trials, needed: {needed}.")
    return None


def drawable(study: Study, summaries: Summaries) -> list[Figure]:
    """Return the figures with at least one panel in the store."""
    return [figure for figure in study.figures if any(panel in summaries for panel in figure.panels)]


def tabulate(summary: xr.Dataset) -> tuple[list[str], list[list[str]], int]:
    """Return a summary as rows of text.

    Parameters
    ----------
    summary : xarray.Dataset
        From `pipeline.summarise`.

    Returns
    -------
    heads : list of str
    rows : list of list of str
    n_names : int
        Number of leading columns that name the row.

    Examples
    --------
    >>> ds = xr.Dataset({"x_mean": ("n", [0.5]), "x_mcse": ("n", [0.01]), "n_ok": ("n", [7])}, {"n": [3]})
    >>> tabulate(ds)
    (['n', 'x_mean', 'x_mcse', 'n_ok'], [['3', '0.5', '0.01', '7']], 1)
    """
    names = [str(dim) for dim in summary["n_ok"].dims]
    shown = [
        str(name)
        for name, variable in summary.data_vars.items()
        if not str(name).endswith("_mcse") or (str(name).count("_mcse") and not _of_quantile(str(name)))
        if set(variable.dims) <= set(names)
    ]
    counts = [name for name in shown if name.startswith("n_")]
    columns = [name for name in shown if name not in counts] + counts
    rows = []
    for place in np.ndindex(*(summary.sizes[dim] for dim in names)):
        one = summary.isel(dict(zip(names, place, strict=True)))
        rows.append(
            [format_value(one[name].item()) for name in names] + [_number(one[name].item()) for name in columns]
        )
    return [*names, *columns], rows, len(names)


def _of_quantile(name: str) -> bool:
    return any(name.endswith(f"_{quantile}_mcse") for quantile in ("q05", "q25", "median", "q75", "q95"))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


@dataclass(frozen=True)
class RenderedFigure:
    """Figure of a page: an image as a data URI, with colours for light and dark mode."""

    name: str
    title: str
    caption: str
    uri: str


@dataclass(frozen=True)
class State:
    """Completeness of a store: a headline, a sentence, and counts by status."""

    headline: str
    detail: str
    n_ok: int
    n_failed: int
    n_pending: int


def render_figures(
    study: Study, summaries: Summaries, figures_folder: str | os.PathLike[str] | None = None
) -> list[RenderedFigure]:
    """Draw the figures with at least one panel in the store.

    Parameters
    ----------
    study : Study
        Study that declares the figures.
    summaries : mapping
        Summaries by panel.
    figures_folder : path, optional
        Folder for copies of the figures as SVG and PNG files.
    """
    from studies.figures import render

    rendered = []
    for figure in drawable(study, summaries):
        shown = {panel: summaries[panel] for panel in figure.panels if panel in summaries}
        kinds = ("svg",) if figures_folder is None else ("svg", "png")
        drawn = dict(zip(kinds, render(figure.draw, shown, kinds), strict=True))
        if figures_folder is not None:
            Path(figures_folder).mkdir(parents=True, exist_ok=True)
            for kind, content in drawn.items():
                write_whole(Path(figures_folder, f"{figure.name}.{kind}"), content)
        rendered.append(RenderedFigure(figure.name, figure.title, figure.caption, _uri(drawn["svg"])))
    return rendered


def write_report(
    store: ResultStore,
    study: Study,
    output: str | os.PathLike[str],
    figures_folder: str | os.PathLike[str] | None = None,
) -> list[tuple[Claim, Finding]]:
    """Write the page of one store.

    Parameters
    ----------
    store : ResultStore
        The store, which may be incomplete; the page states its completeness.
    study : Study
        Study configured by the stored spec.
    output : path
        HTML file to write.
    figures_folder : path, optional
        Folder for copies of the figures as SVG and PNG files.

    Returns
    -------
    list of (Claim, Finding)
        Verdicts shown on the page.
    """
    summaries = load_summaries(store.url, study=study)
    claims = judge(study, summaries)
    tables = []
    for name, summary in summaries.items():
        heads, rows, n_names = tabulate(summary)
        tables.append(
            {"name": name, "meaning": summary.attrs["title"], "heads": heads, "rows": rows, "n_names": n_names}
        )
    render_page(
        "report.html",
        output,
        title=study.title,
        study=study,
        state=state_of(store),
        figures=render_figures(study, summaries, figures_folder),
        claims=claims,
        notes={method.name: method.note for panel in study.panels for method in panel.methods},
        tables=tables,
        provenance=_provenance(store),
        spec=json.dumps(store.spec, indent=2),
        store_name=repr(os.path.basename(store.url)),
        first_panel=repr(study.panels[0].name),
    )
    return claims


def render_page(template: str, output: str | os.PathLike[str], **shown: Any) -> None:
    """Write a page from a template, with all values escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    write_whole(output, environment.get_template(template).render(**shown).encode())


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically; after a failure, such as a full disk, the file is unchanged.

    Raises
    ------
    OSError
        If the file cannot be written; the error names `path`.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        Path(path).write_bytes(content)  # a pipe or a device, such as /dev/stdout
        return
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(content)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def _uri(svg: bytes) -> str:
    """Return an SVG image as a data URI, with dark ink in light mode and light ink in dark mode."""
    style, inks = b'<style type="text/css">', (INK, _INK_ON_DARK)
    rule, on_dark = (f"svg{{color:{ink}}}".encode() for ink in inks)
    inked = svg.replace(INK.encode(), b"currentColor")
    inked = inked.replace(style, style + rule + b"@media(prefers-color-scheme:dark){" + on_dark + b"}", 1)
    return "data:image/svg+xml;base64," + base64.b64encode(inked).decode()


def state_of(store: ResultStore) -> State:
    """Count the evaluations of a store by status."""
    counts = dict.fromkeys(Status, 0)
    for panel in open_results(store.url).children.values():
        for status, count in count_status(panel.to_dataset()).items():
            counts[status] += count
    return _state(counts[Status.OK], sum(counts[kind] for kind in FAILURES), counts[Status.PENDING])


def summarised_state(summaries: Summaries) -> State:
    """Return the state of a store from its summaries."""
    ok, failed, pending = (
        sum(int(summary[name].sum()) for summary in summaries.values()) for name in ("n_ok", "n_failed", "n_pending")
    )
    return _state(ok, failed, pending)


def _state(ok: int, failed: int, pending: int) -> State:
    finished = "Complete, with failed trials." if failed else "Complete."
    return State(
        "Incomplete." if pending else finished,
        f"{ok:,} of {ok + failed + pending:,} evaluations are ok, {failed:,} failed, {pending:,} pending.",
        ok,
        failed,
        pending,
    )


def _provenance(store: ResultStore) -> list[tuple[str, str]]:
    attributes, sessions = store.attributes, store.sessions
    last: dict[str, Any] = next((session for session in reversed(sessions) if "damaged" not in session), {})
    rows = [
        ("Store", store.url),
        ("Study", attributes["study_reference"]),
        ("Seed", str(attributes["seed"])),
        ("Spec (SHA-256)", attributes["spec_sha256"]),
        ("Created", attributes["created"]),
        ("Sessions", "; ".join(map(_describe_session, sessions)) or "their records were lost"),
        ("Command", last.get("command", "")),
        ("Versions", ", ".join(f"{name} {version}" for name, version in last.get("versions", {}).items())),
        ("Machine", f"{last.get('platform', '')}, {last.get('cpu_count', '')} cores, host {last.get('host', '')}"),
        ("Linear algebra", ", ".join(last.get("blas", []))),
    ]
    if "git_commit" in last:
        rows.append(("Source revision", last["git_commit"] + (" with changes" if last["git_dirty"] else "")))
    return rows


def _describe_session(session: Mapping[str, Any]) -> str:
    if "damaged" in session:
        return f"the record {session['damaged']} is damaged"
    return f"{session['started']} to {session.get('finished', 'interrupted')} ({session['profile']})"

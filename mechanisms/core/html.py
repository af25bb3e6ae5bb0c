"""Tables in HTML, which notebooks show for posteriors and audits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from mechanisms.core.arguments import Floats

_MOST_ROWS = 12
_LEFT = ' style="text-align: left"'


def html_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Return a table as HTML, with escaped texts; the page that shows it chooses all colours, light or dark."""
    caption = f'<caption style="caption-side: top; text-align: left"><b>{escape(title)}</b></caption>'
    columns = "".join(f"<th{_LEFT}>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td{_LEFT}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = f"<thead><tr>{columns}</tr></thead>" if heads else ""
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>{f'<p>{escape(note)}</p>' if note else ''}"


def posterior_table(title: str, names: Sequence[str], statistics: Mapping[str, Floats | float], note: str) -> str:
    """Return a table with a row for each of the first components, and a column for each statistic of all of them."""
    columns = [np.atleast_1d(values)[:_MOST_ROWS] for values in statistics.values()]
    rows = [(name, *(f"{value:.4g}" for value in values)) for name, *values in zip(names, *columns, strict=False)]
    n_more = len(names) - len(rows)
    return html_table(title, ("", *statistics), rows, f"{n_more:,} more. {note}" if n_more else note)

"""Tables in HTML, which notebooks show for studies and stores."""

from collections.abc import Sequence
from html import escape
from typing import Any


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as HTML, with escaped texts; the page that shows it chooses all colours, light or dark."""
    import pandas as pd  # slow import

    table = pd.DataFrame(rows, columns=list(heads)).to_html(index=False, border=0, justify="left")
    return f"<p><b>{escape(title)}</b></p>{table}"

"""Tables of text, and formats of their numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes
    ----------
    title, caption : str
        Heading and explanation.
    heads : tuple of str
        Column headings.
    rows : sequence of sequence of str
        Cells.
    prose : tuple of int
        Indices of the columns whose text may wrap.
    """

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    prose: tuple[int, ...] = ()


def plus_minus(value: float, error: float) -> str:
    """Format a number with two digits of its standard error, or alone if the error is negligible.

    Examples
    --------
    >>> plus_minus(0.061383, 0.000314), plus_minus(12.3, 0.0), plus_minus(math.nan, 1.0), plus_minus(4.18, 0.2)
    ('0.06138 ± 0.00031', '12.3', '', '4.18 ± 0.20')
    """
    if math.isnan(value):
        return ""
    if not (math.isfinite(value) and math.isfinite(error) and error > 1e-12 * abs(value)):
        return f"{value:.4g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def duration(seconds: float) -> str:
    """Format a time in minutes and seconds.

    Examples
    --------
    >>> duration(7.0), duration(840.0)
    ('7 s', '14 min 0 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

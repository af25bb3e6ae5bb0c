"""Tests of the looks of methods in figures."""

import re
from pathlib import Path

import pytest

from studies import report
from studies.figures.first_lines import MAX_LINES
from studies.styles import _ADDED, _COLORS, DARK_COLORS, SERIES

STYLE_SHEET = (Path(report.__file__).parent / "templates" / "base.html").read_text()
PAGES = re.findall(r"--page: (#[0-9a-f]{6})", STYLE_SHEET)


def test_values_of_a_factor_and_added_methods_have_looks_of_their_own():
    """As many lines as a figure shows at first, and more, differ in each of colour, marker and dash."""
    assert len(SERIES) >= MAX_LINES
    assert len({look.color for look in SERIES}) == len({look.marker for look in SERIES}) == len(SERIES)
    assert len({look.dash for look in SERIES}) == len(SERIES)
    assert len({color for color, _ in _ADDED}) == len({marker for _, marker in _ADDED}) == len(_ADDED)


def luminance(color):
    """Return the relative luminance of a colour (WCAG 2.1)."""
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_known_colours():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#E69F00", "#ffffff") < 3  # orange of Okabe & Ito


@pytest.mark.parametrize("name", _COLORS)
def test_lines_have_sufficient_contrast_in_light_and_dark_mode(name):
    """Graphics need a contrast ratio of at least 3:1 to their background (WCAG 2.1, 1.4.11), in dark mode 4.5:1."""
    light, dark = PAGES
    assert contrast(_COLORS[name], light) >= 3
    assert contrast(DARK_COLORS.get(_COLORS[name], _COLORS[name]), dark) >= 4.5

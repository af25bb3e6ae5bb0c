"""Text of SVG images: positions, sizes and colours."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from xml.etree import ElementTree

_TRANSLATE = re.compile(r"translate\(([-\d.e]+)[, ]*([-\d.e]*)\)")
_ROTATE = re.compile(r"rotate\((-?[\d.]+)")
_WIDTHS = {**dict.fromkeys("iljtfr.,:;|'I()[] ", 0.3), **dict.fromkeys("mwMW%@", 0.85)}


@dataclass(frozen=True)
class Text:
    """Text of an image with its box in pixels; the width is estimated from its characters."""

    words: str
    size: float
    color: str
    opacity: float
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Text") -> bool:
        """Return True if the boxes have more than a pixel in common."""
        return (
            min(self.right, other.right) - max(self.left, other.left) > 1
            and min(self.bottom, other.bottom) - max(self.top, other.top) > 1
        )


def texts(svg: str) -> list[Text]:
    """Return the visible texts of an image."""
    root = ElementTree.fromstring(svg)
    return list(_texts(root, 0.0, 0.0, 1.0))


def overlapping(found: list[Text]) -> list[tuple[str, str]]:
    """Return the pairs of texts that overlap."""
    return [(one.words, other.words) for one, other in combinations(found, 2) if one.overlaps(other)]


def _texts(element: ElementTree.Element, x: float, y: float, opacity: float) -> Iterator[Text]:
    transform = element.get("transform", "")
    if moved := _TRANSLATE.search(transform):
        x, y = x + float(moved[1]), y + float(moved[2] or 0)
    opacity *= float(element.get("opacity", 1)) * float(element.get("fill-opacity", 1))
    if element.tag.endswith("}text") and opacity > 0:
        spans = [child for child in element if child.tag.endswith("}tspan")] or [element]
        size = float(re.sub(r"[^\d.]", "", element.get("font-size", "11")))
        for span in spans:
            words = "".join(span.itertext())
            top = y + float(span.get("dy", 0) or 0)
            yield _box(words, size, element, x + float(span.get("x", 0) or 0), top, opacity, transform)
        return
    for child in element:
        yield from _texts(child, x, y, opacity)


def _box(
    words: str, size: float, element: ElementTree.Element, x: float, y: float, opacity: float, transform: str
) -> Text:
    is_bold = element.get("font-weight") in ("bold", "600")
    width = size * sum(_WIDTHS.get(letter, 0.53) for letter in words) * (1.05 if is_bold else 1.0)
    left = x - width * {"middle": 0.5, "end": 1.0}.get(element.get("text-anchor", "start"), 0.0)
    box = (left, y - 0.75 * size, left + width, y + 0.2 * size)
    if (turned := _ROTATE.search(transform)) and float(turned[1]) % 180 == 90:
        box = (x - size, y - width / 2, x, y + width / 2)
    return Text(words, size, element.get("fill", "black"), opacity, *box)

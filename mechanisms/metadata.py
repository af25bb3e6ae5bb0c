"""Metadata of the entries of all registries: description, origin, and style in figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

__all__ = ["Entry", "Style", "find_entry"]

Origin = Literal["paper", "baseline", "reference", "ours"]


@dataclass(frozen=True)
class Style:
    """Style of a method in figures, in words; members of one family share the colour.

    Attributes
    ----------
    color : str
        "blue", "vermilion", "green", "purple", "orange", "sky", "grey", "olive" or "brown".
    marker : str
        Marker in the notation of matplotlib.
    dash : str
        "solid", "dashed", "dotted", "dash-dotted" or "long-dashed".
    """

    color: str
    marker: str
    dash: str = "solid"


@dataclass(frozen=True)
class Entry:
    """Entry of a registry.

    Attributes
    ----------
    name : str
        Key in the registry.
    note : str
        Description in one sentence; the reason if the method is not private.
    origin : {"paper", "baseline", "reference", "ours"}
        "paper" for a proposal of a paper, "baseline" for a method that it is compared with, "reference" for a
        posterior that no private method attains, "ours" for a method of this project.
    paper : str
        Key of the paper that proposes the method or compares with it, such as "P0"; empty if there is none.
    variant : str
        Difference from the method as published, in a few words.
    style : Style or None
        Style in figures; for None, each figure chooses a style.

    Examples
    --------
    >>> Entry("laplace-dimension", origin="baseline", paper="P0").origin_text
    "P0's baseline"
    """

    name: str
    note: str = ""
    origin: Origin = field(default="ours", kw_only=True)
    paper: str = field(default="", kw_only=True)
    variant: str = field(default="", kw_only=True)
    style: Style | None = field(default=None, kw_only=True, repr=False)

    @property
    def origin_text(self) -> str:
        """Origin in a few words, such as "P0, N = n + 1", "P0's baseline", "reference" or "ours"."""
        owner = f"{self.paper}'s baseline" if self.origin == "baseline" and self.paper else self.origin
        text = self.paper if self.origin == "paper" else owner
        return f"{text}, {self.variant}" if self.variant else text


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def find_entry(registry: Mapping[str, N], entry: N | str, what: str = "name", advice: str = "choose one of them") -> N:
    """Return an entry of a registry that is given by its name or as an object.

    Raises
    ------
    ValueError
        If the registry has no such name.

    Examples
    --------
    >>> laplace = Entry("laplace")
    >>> find_entry({"laplace": laplace}, "laplace") is find_entry({"laplace": laplace}, laplace)
    True
    """
    if not isinstance(entry, str):
        return entry
    if entry not in registry:
        raise ValueError(f"{what} must be one of {', '.join(registry)}, got {entry!r}; {advice}")
    return registry[entry]

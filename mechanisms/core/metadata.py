"""Metadata of the entries of all registries: description, origin, and style in figures."""

from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol, TypeVar

Origin = Literal["paper", "baseline", "reference", "ours"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=_Named)


@dataclass(frozen=True)
class Style:
    """Style of a method in figures; methods of one family share a colour."""

    color: str  # "blue", "vermilion", "green", "purple", "orange", "sky", "grey", "olive", "brown", "crimson" or "teal"
    marker: str  # as in matplotlib: "o" is a circle, "s" a square


_REGISTERED: dict[tuple[str, str, str], Any] = {}
"""Module, class and name -> entry of a registry of this package.

Only `register` changes it, at import. Entries are pickled by these names, so that copies in other processes are the
entries themselves.
"""


class Registered:
    """Base class of the entries of registries, which are pickled by name, since functions without a name are not."""

    name: str

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return the module, class and name of an entry of this package, and the fields of another one."""
        for place, entry in _REGISTERED.items():
            if entry is self:
                return _find_registered, place
        return super().__reduce_ex__(protocol)


def _find_registered(module: str, kind: str, name: str) -> Any:
    import_module(module)
    return _REGISTERED[module, kind, name]


@dataclass(frozen=True)
class Entry(Registered):
    """Entry of a registry."""

    name: str  # key in the registry
    note: str = ""  # description in one sentence; if not private, the reason
    _: KW_ONLY
    # "paper" proposed by a paper, "baseline" compared with in it, "reference" a non-private posterior, or "ours"
    origin: Origin = "ours"
    paper: str = ""  # paper that proposes it or uses it as a baseline, such as "P0"
    variant: str = ""  # difference from the method as published, in a few words
    style: Style | None = field(default=None, repr=False)  # None: each figure chooses

    @property
    def origin_text(self) -> str:
        """Origin in a few words, such as "P0, N = n + 1", "P0's baseline", "reference" or "ours"."""
        owner = f"{self.paper}'s baseline" if self.origin == "baseline" and self.paper else self.origin
        text = self.paper if self.origin == "paper" else owner
        return f"{text}, {self.variant}" if self.variant else text


def register(module: str, *entries: E) -> dict[str, E]:
    """Return a registry of entries by name, which belong to a module of this package."""
    _REGISTERED.update({(module, type(entry).__name__, entry.name): entry for entry in entries})
    return {entry.name: entry for entry in entries}

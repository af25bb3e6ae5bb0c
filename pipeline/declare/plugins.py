"""Names registered by installed packages as entry points, found without importing the packages."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import metadata

from pipeline.errors import BadInputError

STUDIES_GROUP = "dpstudies.studies"
"""Group of the entry points that register studies."""

_OURS = "dpstudies"


def is_registered(reference: str) -> bool:
    """Return True if ``module:object`` is registered as a study by this or another installed package."""
    if reference in (point.value for point in _own_points(STUDIES_GROUP)):
        return True
    module, _, name = reference.partition(":")
    return (module, name) in {(point.module, point.attr) for point in metadata.entry_points(group=STUDIES_GROUP)}


def _own_points(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of this package in a group, ordered by folder and file."""
    points = metadata.distribution(_OURS).entry_points.select(group=group)
    return sorted(points, key=lambda point: point.value)


class Plugins(Mapping[str, str]):
    """Mapping of names to ``module:object``: names of this package, then entry points of others, without any import.

    The names of this package are its entry points of the group, and `reserved` ones.
    """

    def __init__(self, group: str, reserved: Mapping[str, str] | None = None) -> None:
        self.group = group
        self._reserved = reserved or {}

    @cached_property
    def built_in(self) -> Mapping[str, str]:
        """Names of this package; BadInputError if its metadata are older than its code."""
        targets = {**self._reserved, **{point.name: point.value for point in _own_points(self.group)}}
        if not targets:
            raise BadInputError(
                f"dpstudies must register names in {self.group}, got none, because it was installed from older code; "
                "install it again, such as with: pip install -e ."
            )
        return targets

    def __getitem__(self, name: str) -> str:
        """Return ``module:object``; raise KeyError for an unknown name, BadInputError for an ambiguous one."""
        if name in self.built_in:
            return self.built_in[name]
        points = self._registered()[name]
        if len(points) > 1:
            raise BadInputError(self._refuse(name, points))
        return f"{points[0].module}:{points[0].attr}"

    def __iter__(self) -> Iterator[str]:
        yield from self.built_in
        yield from self.added()

    def __len__(self) -> int:
        return len(self.built_in) + len(self.added())

    def added(self) -> list[str]:
        """Return the accepted names of packages, in alphabetical order."""
        return [name for name, points in self._registered().items() if not self._refuse(name, points)]

    def refused(self) -> list[str]:
        """Return one line per rejected name, with the reason."""
        lines = [self._refuse(name, points) for name, points in self._registered().items()]
        return [line for line in lines if line]

    def _refuse(self, name: str, points: list[metadata.EntryPoint]) -> str:
        packages = " and ".join(sorted(point.dist.name if point.dist else "an unnamed package" for point in points))
        if name in self.built_in:
            return (
                f"{name} is built in and cannot be registered in {self.group}, as {packages} does; choose another name"
            )
        if len(points) > 1:
            return f"{name} is registered in {self.group} by {packages}; uninstall one of them"
        return ""

    def _registered(self) -> dict[str, list[metadata.EntryPoint]]:
        """Return the entry points of other packages in the group, by name in alphabetical order."""
        points: dict[str, list[metadata.EntryPoint]] = {}
        for point in sorted(metadata.entry_points(group=self.group), key=lambda point: point.name):
            if point.dist is None or point.dist.name != _OURS:
                points.setdefault(point.name, []).append(point)
        return points


STUDIES = Plugins(STUDIES_GROUP)
"""Name -> ``module:object`` of built-in and registered studies."""

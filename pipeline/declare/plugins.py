"""Names registered by installed packages as entry points, found without importing the packages."""

from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from pipeline.declare.importing import module_file
from pipeline.errors import BadInputError

STUDIES_GROUP = "dpstudies.studies"
"""Group of the entry points that register studies."""

_BUILT_IN = "studies"  # a string: this package must not import it


def is_registered(reference: str) -> bool:
    """Return True if ``module:object`` is a built-in study or is registered by an installed package."""
    module, _, name = reference.partition(":")
    if module.split(".")[0] == _BUILT_IN:
        file, folder = module_file(module), Path(__file__).parents[2] / _BUILT_IN
        return file is not None and Path(file).is_relative_to(folder)
    return (module, name) in {(point.module, point.attr) for point in metadata.entry_points(group=STUDIES_GROUP)}


class Plugins(Mapping[str, str]):
    """Mapping of names to ``module:object``: built-in names, then entry points of a group, without any import."""

    def __init__(self, group: str, built_in: Mapping[str, str]) -> None:
        self.group = group
        self.built_in = built_in

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
        """Return the entry points of the group, by name in alphabetical order."""
        points: dict[str, list[metadata.EntryPoint]] = {}
        for point in sorted(metadata.entry_points(group=self.group), key=lambda point: point.name):
            points.setdefault(point.name, []).append(point)
        return points

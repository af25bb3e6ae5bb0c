"""Names of studies: those of this package, and those that installed packages register."""

import warnings
from collections.abc import Iterator, Mapping

from pipeline.declare.plugins import STUDIES as MODULES
from pipeline.declare.source import StudySource
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.notebooks import html_table


class _Studies(Mapping[str, Study]):
    """Studies by name, imported on access."""

    def __getitem__(self, name: str) -> Study:
        """Return a study; raise KeyError if it is not registered, BadInputError if it cannot be loaded."""
        study = StudySource(MODULES[name]).load()
        if study.name != name:
            raise BadInputError(
                f"{MODULES[name]} is registered as {name}, but its study is named {study.name}; "
                f"register it as {study.name}"
            )
        return study

    def __contains__(self, name: object) -> bool:
        return name in MODULES

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all built-in studies and of the registered studies that load; warn about the others."""
        yield from MODULES.built_in
        for line in MODULES.refused():
            warnings.warn(line, stacklevel=2)
        for name in MODULES.added():
            try:
                self[name]
            except BadInputError as error:
                warnings.warn(f"the study {name} is omitted: {error}", stacklevel=2)
            else:
                yield name

    def __repr__(self) -> str:
        """Return a table of names and titles."""
        width = max(map(len, self))
        return "\n".join(f"{name:{width}}  {study.title}" for name, study in self.items())

    def _repr_html_(self) -> str:
        """Return a table of the studies, for notebooks."""
        rows = [
            (name, study.title, ", ".join(study.papers), len(study.panels), len(study.claims))
            for name, study in self.items()
        ]
        return html_table("Studies", ("study", "title", "papers", "panels", "claims"), rows)

    def __len__(self) -> int:
        return sum(1 for _ in self)


STUDIES: Mapping[str, Study] = _Studies()
"""Name -> study, including registered studies."""

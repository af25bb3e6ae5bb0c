"""Studies of five papers, with their claims and figures, and the command that runs them.

`STUDIES` maps a name to its `pipeline.Study`. A study is one file that declares ``STUDY``; listing it here gives it a
name on the command line. Other packages register their studies as entry points of the group ``dpstudies.studies``, each
under the study's name. `MODULES` maps all names to their code.
"""

import warnings
from collections.abc import Iterator, Mapping

from pipeline import Study
from pipeline.declare.plugins import STUDIES_GROUP, Plugins
from pipeline.declare.source import StudySource
from pipeline.errors import BadInputError
from studies.counts import (
    hellinger_accuracy,
    hellinger_distribution,
    hellinger_limits,
    hellinger_sensitivity,
    privacy_audit,
)
from studies.inference import calibration, gibbs_traces
from studies.regression import partition_probability, partition_quantile
from studies.renyi import renyi_audit, renyi_curves, renyi_logistic, renyi_utility

_LISTED = (
    hellinger_sensitivity,
    hellinger_accuracy,
    hellinger_distribution,
    hellinger_limits,
    privacy_audit,
    calibration,
    gibbs_traces,
    renyi_curves,
    renyi_utility,
    renyi_logistic,
    renyi_audit,
    partition_probability,
    partition_quantile,
)

_BUILT_IN = {module.STUDY.name: module.STUDY for module in _LISTED}

MODULES = Plugins(STUDIES_GROUP, {module.STUDY.name: f"{module.__name__}:STUDY" for module in _LISTED})
"""Name -> ``module:object`` of built-in and registered studies; registered ones are not imported."""


class _Studies(Mapping[str, Study]):
    """Studies by name; a registered study is imported on access.

    Examples
    --------
    >>> STUDIES["gibbs-traces"].panel("binomial").name
    'binomial'
    """

    def __getitem__(self, name: str) -> Study:
        """Return a study; raise KeyError if it is not registered, BadInputError if it cannot be loaded."""
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        study = StudySource(MODULES[name]).load()
        if study.name != name:
            raise BadInputError(
                f"{MODULES[name]} is registered as {name}, but its study is named {study.name}; register that name"
            )
        return study

    def __contains__(self, name: object) -> bool:
        return name in MODULES

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the studies that load, and warn about the others."""
        yield from _BUILT_IN
        for line in MODULES.refused():
            warnings.warn(line, stacklevel=2)
        for name in MODULES.added():
            try:
                self[name]
            except BadInputError as error:
                warnings.warn(f"the study {name} is omitted: {error}", stacklevel=2)
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


STUDIES: Mapping[str, Study] = _Studies()
"""Name -> study, including registered studies."""

__all__ = ["MODULES", "STUDIES"]

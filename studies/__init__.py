"""Studies of papers and of the pipeline's stopping rules, with claims and figures, and the command that runs them.

A study is one file that declares ``STUDY``; its entry in `MODULES` gives it a name on the command line. Other packages
register their studies as entry points of the group ``dpstudies.studies``, each under the study's name. `STUDIES` maps
all names to studies, which are imported on access.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

try:
    from pipeline import Study
    from pipeline.declare.plugins import STUDIES_GROUP, Plugins
    from pipeline.declare.source import StudySource
    from pipeline.errors import BadInputError
except ImportError as error:
    _found = getattr(sys.modules.get("pipeline"), "__file__", None)
    if _found is None or Path(_found).with_name("py.typed").is_file():
        raise
    raise ImportError(f"{_found} hides the package pipeline of dpstudies; rename it, or run elsewhere") from error

MODULES = Plugins(
    STUDIES_GROUP,
    {
        "hellinger-sensitivity": "studies.counts.hellinger_sensitivity:STUDY",
        "hellinger-accuracy": "studies.counts.hellinger_accuracy:STUDY",
        "hellinger-distribution": "studies.counts.hellinger_distribution:STUDY",
        "hellinger-limits": "studies.counts.hellinger_limits:STUDY",
        "privacy-audit": "studies.counts.privacy_audit:STUDY",
        "calibration": "studies.inference.calibration:STUDY",
        "gibbs-traces": "studies.inference.gibbs_traces:STUDY",
        "exact-inference": "studies.inference.exact_inference:STUDY",
        "renyi-curves": "studies.renyi.renyi_curves:STUDY",
        "renyi-utility": "studies.renyi.renyi_utility:STUDY",
        "renyi-logistic": "studies.renyi.renyi_logistic:STUDY",
        "renyi-audit": "studies.renyi.renyi_audit:STUDY",
        "private-mcmc": "studies.renyi.private_mcmc:STUDY",
        "partition-probability": "studies.regression.partition_probability:STUDY",
        "partition-quantile": "studies.regression.partition_quantile:STUDY",
        "regression-inference": "studies.regression.regression_inference:STUDY",
        "noisy-tables": "studies.noisy_tables.noisy_tables:STUDY",
        "fixed-width-stopping": "studies.stopping.fixed_width_stopping:STUDY",
    },
)
"""Name -> ``module:object`` of built-in and registered studies."""


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

    def __len__(self) -> int:
        return sum(1 for _ in self)


STUDIES: Mapping[str, Study] = _Studies()
"""Name -> study, including registered studies."""

__version__ = version("dpstudies")
__all__ = ["MODULES", "STUDIES"]

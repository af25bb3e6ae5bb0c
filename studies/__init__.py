"""The studies: each paper's experiments, with their claims and figures, and the command that runs them.

`STUDIES` maps a name to its `pipeline.Study`. A study is one file that declares ``STUDY``; list it here to give it a
name on the command line.
"""

from studies import (
    calibration,
    gibbs_traces,
    hellinger_accuracy,
    hellinger_distribution,
    hellinger_limits,
    hellinger_sensitivity,
    partition_probability,
    partition_quantile,
    privacy_audit,
    renyi_audit,
    renyi_curves,
    renyi_logistic,
    renyi_utility,
)

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

MODULES = {module.STUDY.name: f"{module.__name__}:STUDY" for module in _LISTED}
STUDIES = {module.STUDY.name: module.STUDY for module in _LISTED}

__all__ = ["MODULES", "STUDIES"]

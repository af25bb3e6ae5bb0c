"""The studies: each paper's experiments, with their claims and figures, and the command that runs them.

`STUDIES` maps a name to its `pipeline.Study`. A study is one file that declares ``STUDY``; list it here to give it a
name on the command line.
"""

from studies import hellinger_accuracy
from studies.hellinger_accuracy import STUDY as _HELLINGER_ACCURACY

MODULES = {_HELLINGER_ACCURACY.name: f"{hellinger_accuracy.__name__}:STUDY"}
STUDIES = {_HELLINGER_ACCURACY.name: _HELLINGER_ACCURACY}

__all__ = ["MODULES", "STUDIES"]

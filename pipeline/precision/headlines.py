"""Further trials where the claims that lead need them, such as for the headlines of a study at a small scale."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.declare.claims import Claim
from pipeline.declare.factors import format_value, require_integer
from pipeline.declare.panel import MAX_TRIALS, Panel
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.precision.goals import whole_blocks
from pipeline.store.scan.requested import RequestedTrials, Stop


def with_headline_trials(study: Study, trials: Mapping[str, int]) -> tuple[Study, dict[str, RequestedTrials]]:
    """Return a study with longer trial axes, by panel, and the trials that its panels ask for along these axes.

    All of them are asked for in the cells and by the methods that a claim which leads needs. The other cells and
    methods ask for the trials of `study`, in whole blocks. Raise BadInputError for a panel that no such claim needs,
    and for fewer trials than those of `study`.
    """
    numbers = {
        study.panel(name).name: require_integer("headline_trials", n, 1, MAX_TRIALS) for name, n in trials.items()
    }
    longer, requested = study.with_trials(numbers), {}
    for name, n_trials in numbers.items():
        panel = longer.panel(name)
        leading = [claim for claim in study.claims if claim.leads and name in claim.needs]
        if not leading or panel.trials is None or n_trials < study.panel(name).n_trials:
            raise BadInputError(
                f"headline_trials must name panels that a leading claim needs, with at least their "
                f"{study.panel(name).n_trials:,} trials, got {n_trials:,} for panel {name}; change or omit it"
            )
        is_needed = np.any([_needed(claim, panel) for claim in leading], axis=0)
        fewer = min(whole_blocks(panel, study.panel(name).n_trials), panel.n_trials)
        asked = np.where(is_needed, panel.n_trials, fewer)
        requested[name] = RequestedTrials.of_settings(panel, asked, np.full(asked.shape, int(Stop.NO_TARGET)))
    return longer, requested


def _needed(claim: Claim, panel: Panel) -> np.ndarray:
    """Return a mask of what a claim needs in a panel, shape (cell, setting)."""
    values = claim.needs[panel.name]

    def is_needed(coordinates: Mapping[str, Any]) -> bool:
        texts = {dim: format_value(value) if isinstance(value, tuple) else value for dim, value in coordinates.items()}
        return all(texts[dim] in needed for dim, needed in values.items() if needed and dim in texts)

    cells = [is_needed(cell) for cell in panel.cells()]
    return np.outer(cells, [is_needed(setting.coordinates(panel.method_dim)) for setting in panel.settings()])

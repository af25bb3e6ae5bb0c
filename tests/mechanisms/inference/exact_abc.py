"""Independent draws from the exact posterior by rejection sampling, a reference for every release model.

The sampler draws θ from the prior and s from p(s | θ), and accepts θ with probability p(y | s)/max p(y | s). Accepted
values are exact posterior draws. The maximum is taken over the range of sums of n contributions. The acceptance rate is
the marginal likelihood of y divided by this maximum, so that many records with little noise need many proposals.

References
----------
Gong, "Exact inference with approximate computation for differentially private data via perturbations", Journal of
Privacy and Confidentiality 12(2), 2022.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats
from mechanisms.inference.release_model import ReleaseModel

__all__ = ["sample_abc"]

_PROPOSALS = 10_000  # per batch


def sample_abc(
    rng: np.random.Generator,
    model: ReleaseModel,
    prior: ArrayLike,
    noisy_statistics: ArrayLike,
    size: int,
    *,
    max_proposals: int = 10_000_000,
) -> Floats:
    """Draw independent values of θ, shape (size,) or (size, p), from the exact posterior given one release."""
    hyperparameters, y = model.validate_release(prior, noisy_statistics)
    least, most = model.statistic_range()
    log_bound = model.noise.log_weight(y - np.clip(y, least, most)).sum()
    accepted: list[Floats] = []
    n_accepted = 0
    for _ in range(0, max_proposals, _PROPOSALS):
        theta = model.draw_parameters(rng, hyperparameters, _PROPOSALS)
        log_ratio = model.noise.log_weight(y - model.draw_sums(rng, theta)[1]).sum(axis=1) - log_bound
        accepted.append(theta[rng.standard_exponential(_PROPOSALS) >= -log_ratio])
        n_accepted += len(accepted[-1])
        if n_accepted >= size:
            draws = np.concatenate(accepted)[:size]
            return draws if draws.shape[1] > 1 else draws[:, 0]
    raise ValueError(
        f"max_proposals must allow {size} acceptances, got {n_accepted} of {max_proposals:,} proposals with {model}; "
        "use another method"
    )

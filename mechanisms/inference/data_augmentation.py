"""Sampler for the exact posterior of θ given a noisy statistic, by Metropolis-within-Gibbs updates of the records.

The sampler keeps all n records x and alternates between

    step 1, θ | x        the conjugate posterior,
    step 2, xᵢ | θ, y    a proposal xᵢ' ~ p(· | θ), accepted with probability min(1, p(y | x')/p(y | x)).

The statistic is a sum of contributions, so a proposal takes O(1) operations. There is no normal approximation, and
records outside the bounds may be dropped or clamped. If the release is ε-DP, p(y | x') ≥ exp(−ε)·p(y | x) for all
records, so that every proposal is accepted with probability at least exp(−ε). Kernels are compiled and release the GIL.

If records outside the bounds are dropped, E[s | θ] first rises and then falls with θ, so the posterior may have two
modes, between which updates of single records hardly move a chain. For unbounded records there is therefore a further
step,

    step 3, (θ, x) | y   a proposal θ' ~ q with records xᵢ' ~ p(· | θ'), accepted with probability
                         min(1, w(θ')·p(y | x')/(w(θ)·p(y | x))), w = p/q.

The density q approximates the posterior (`mechanisms.inference.joint_proposals`), so that steps of this kind are
accepted with a probability of order 1/√n. They need less time than step 2, which is done in every other iteration.

If the prior is restricted to a range, a draw of θ outside it is rejected, and θ is kept.

Binary records are not stored. The posterior is invariant under permutations of the records, so that each iteration may
visit them in a new random order. In such an order, the numbers of zeros that are proposed to become one, and of ones
that are proposed to become zero, are binomial, and their sequence is a random permutation. Only these proposals are
drawn, with one uniform variable each; all other proposals leave a record unchanged.

References
----------
Ju, Awan, Gong & Rao, "Data augmentation MCMC for Bayesian inference from privatized data", NeurIPS 2022, Algorithm 1.
Tierney, "Markov chains for exploring posterior distributions", Annals of Statistics 22(4), 1994: independence chains,
of which step 3 is one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.inference.augmentation_kernels import augment_binary_records, augment_categories, augment_records
from mechanisms.inference.gibbs import validate_run
from mechanisms.inference.joint_proposals import joint_proposal
from mechanisms.inference.records import Floats
from mechanisms.inference.release_model import ReleaseModel

__all__ = ["sample_data_augmentation"]


def sample_data_augmentation(
    rng: np.random.Generator,
    model: ReleaseModel,
    prior: ArrayLike,
    noisy_statistics: ArrayLike,
    *,
    n_chains: int = 4,
    n_burn_in: int = 2000,
    n_draws: int = 5000,
) -> Floats:
    """Draw θ from the exact posterior, shape (n_chains, n_draws) or (n_chains, n_draws, p), by data augmentation.

    The time per iteration is proportional to n. For bounded records, the autocorrelation of successive θ is at least
    that of the conjugate updates, n/(n + alpha + beta) for a Beta prior, if the release carries no information. The
    model may have any family, noise and treatment of records outside the bounds. Each chain starts from a draw of the
    prior.
    """
    hyperparameters, y = model.validate_release(prior, noisy_statistics)
    validate_run(rng, n_chains, n_burn_in, n_draws)
    location, scale = model.units()
    model, hyperparameters, y = model.standardised(hyperparameters, y)
    starts = model.draw_parameters(rng, hyperparameters, n_chains)
    noise = (model.noise.power, 1.0 / model.noise.scale)
    if model.entry.is_vector:
        draws = np.empty((n_chains, n_draws, hyperparameters.size))
        augment_categories(rng, starts, hyperparameters, model.n, y, *noise, n_burn_in, draws)
        return draws
    if model.bounds is None:
        draws = np.empty((n_chains, n_draws))
        ratios = np.diff(model.noise.log_weight(y[0] - np.arange(model.n + 1)))
        to_one = np.append(np.exp(np.minimum(ratios, 0.0)), 0.0)
        to_zero = np.append(0.0, np.exp(np.minimum(-ratios, 0.0)))
        augment_binary_records(rng, starts[:, 0], *hyperparameters, model.n, to_one, to_zero, n_burn_in, draws)
        return draws
    low, high = map(float, model.bounds)  # the kernel is compiled for floats only
    bounds = (low, high, model.outside == "clamp")
    proposal = joint_proposal(model, hyperparameters, y)
    limits = model.parameter_limits()
    draws = np.empty((n_chains, n_draws, starts.shape[1]))
    code, n = model.entry.code, model.n
    augment_records(rng, code, starts, hyperparameters, n, y, *noise, bounds, limits, proposal, n_burn_in, draws)
    draws[..., 0] = location + scale * draws[..., 0]
    draws[..., 1:] *= scale**2
    return draws if model.entry.has_square else draws[..., 0]

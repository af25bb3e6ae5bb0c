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

As q approximates the posterior, the probability of acceptance is of order 1/√n. This takes less time than step 2, which
is done in every other iteration. A draw of θ outside the range to which the prior is restricted is rejected. If the
prior of mean and variance is not conjugate, step 1 proposes a draw from the posterior under the density 1/σ², and
accepts it with the probability of a Metropolis-Hastings step.

**Proposals.** The density q is constant on the cells of a grid in φ, which is θ for the normal family and log θ for the
exponential and Poisson families; if the variance is unknown, in φ = log σ² and z = (μ − mean)/σ, or μ − mean if the
prior is not conjugate. The probability of a
cell is proportional to its prior probability times the density of y at its centre, where the statistic and its noise
are taken as jointly normal. A share of the prior is mixed in. The sampler is exact for every q > 0. Cells cover the
prior but for 3e-7 in each tail; from θ outside all cells no joint update is accepted.

Binary records are not stored. The posterior is invariant under permutations of the records, so that each iteration may
visit them in a new random order, in which the numbers of zeros that are proposed to become one, and of ones that are
proposed to become zero, are binomial, and their sequence is a random permutation. Only these proposals are drawn, with
one uniform variable each; all others leave a record unchanged.

References
----------
Ju, Awan, Gong & Rao, "Data augmentation MCMC for Bayesian inference from privatized data", NeurIPS 2022, Algorithm 1.
Tierney, "Markov chains for exploring posterior distributions", Annals of Statistics 22(4), 1994: independence chains,
of which step 3 is one.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import kernel
from mechanisms.inference.drawn_posterior import Chain, sampler
from mechanisms.inference.families import (
    EXPONENTIAL,
    MODELS,
    N_CONJUGATE,
    NORMAL,
    POISSON,
    UNKNOWN_VARIANCE,
    Bounds,
    mean_cdf,
    variance_prior,
)
from mechanisms.inference.release_model import ReleaseModel

_REACH = 5.0  # standard deviations of a normal variable within which cells are spaced evenly
_CELLS, _CELLS_EACH = 256, 64  # numbers of cells in one dimension, and in each of two
_FINEST = 0.25  # largest unit of cells near a released mean, in half-widths of the prior of the mean
_SHARE = 0.05  # share of the prior in the proposal distribution
_SMALLEST, _LARGEST = 1e-300, 1e300
_LARGEST_RECORD, _LARGEST_COUNT = 1e150, 1e15
_LARGEST_TABULATED, _TABLE, _NEGLIGIBLE = 20.0, 100, 1e-18  # largest Poisson mean, size and last term of its table
_GUIDE = 64  # number of uniform variates for which the draw is tabulated


@sampler
def sample_data_augmentation(model: ReleaseModel, prior: Floats, y: Floats, starts: Floats) -> Chain:
    """Draw θ from the exact posterior by data augmentation.

    The time per iteration is proportional to n. For bounded records, the autocorrelation of successive θ is at least
    that of the conjugate updates, n/(n + alpha + beta) for a Beta prior, if the release carries no information. The
    model may have any family, noise and treatment of records outside the bounds.
    """
    n, noise = model.n, (model.noise.power, 1.0 / model.noise.scale)
    if model.entry.is_vector:
        return augment_categories, (prior, n, y, *noise)
    if model.bounds is None:
        ratios = np.diff(model.noise.log_weight(y[0] - np.arange(n + 1)))
        to_one = np.append(np.exp(np.minimum(ratios, 0.0)), 0.0)
        to_zero = np.append(0.0, np.exp(np.minimum(-ratios, 0.0)))
        return augment_binary_records, (prior, n, to_one, to_zero)
    bounds, limits = (*model.bounds, model.outside == "clamp"), model.parameter_limits()
    return augment_records, (model.entry.code, prior, n, y, *noise, bounds, limits, joint_proposal(model, prior, y))


def joint_proposal(
    model: ReleaseModel, prior: Floats, noisy_statistics: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the proposal distribution for one release of a model with bounds."""
    # Return the ascending edges of m cells in φ, and of k cells in z (one, from 0 to 1, in models with one parameter);
    # the sums of the probabilities of the m·k cells, in which z varies fastest; and the log densities in the cells.
    lower, upper = (float(limit[-1]) for limit in model.parameter_limits())
    assert model.bounds is not None
    near = None
    if not model.entry.is_conjugate(prior):
        near = float(noisy_statistics[0]) / model.n, math.sqrt(model.noise.density_variance) / model.n
    edges, z_edges, probability, mean, covariance = _cells(
        model.family, tuple(prior.tolist()), (lower, upper), model.bounds, model.outside == "clamp", near
    )
    total = model.n * covariance + model.noise.density_variance * np.eye(len(noisy_statistics))
    with np.errstate(all="ignore"):
        log_likelihood = _log_normal_density(noisy_statistics - model.n * mean, total)
        weight = probability * np.exp(log_likelihood - np.nanmax(log_likelihood))
        weight /= np.nansum(weight)
    mass = (1.0 - _SHARE) * np.nan_to_num(weight) + _SHARE * probability
    cumulative = np.cumsum(mass)
    with np.errstate(divide="ignore"):  # cells of negligible prior probability are never proposed
        log_density = np.log(mass / np.outer(np.diff(edges), np.diff(z_edges)).ravel())
    return edges, z_edges, np.append(cumulative[:-1] / cumulative[-1], 1.0), log_density


def _log_normal_density(apart: Floats, covariance: Floats) -> Floats:
    """Return the log density of N(0, covariance) up to a constant, for deviations of shape (m, d), d ≤ 2."""
    if apart.shape[1] == 1:
        variance = covariance[:, 0, 0]
        return -0.5 * (apart[:, 0] ** 2 / variance + np.log(variance))
    (x, y), ((xx, xy), (_, yy)) = apart.T, covariance.transpose(1, 2, 0)
    determinant = xx * yy - xy**2
    return -0.5 * ((x * x * yy - 2.0 * x * y * xy + y * y * xx) / determinant + np.log(determinant))


@lru_cache(maxsize=64)  # chains of one study share prior and bounds
def _cells(
    family: str,
    prior: tuple[float, ...],
    limits: tuple[float, float],
    bounds: Bounds,
    clamps: bool,
    near: tuple[float, float] | None,
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return edges in φ and z, prior probabilities of the cells, and moments of a contribution at their centres.

    If `near` is a released mean and the standard deviation of its noise, the cells of z are smallest there.
    """
    entry, hyperparameters = MODELS[family], np.array(prior)
    if entry.has_square:
        n_cells, distribution = _CELLS_EACH, variance_prior(hyperparameters)
    else:
        n_cells, distribution = _CELLS, entry.marginal.frozen(*prior)
    least, most = special.ndtri(distribution.cdf(limits)).clip(-_REACH, _REACH)
    levels = np.linspace(least, most, n_cells + 1)
    with np.errstate(divide="ignore"):
        edges = distribution.ppf(special.ndtr(levels))
    if entry.code != NORMAL:
        edges = np.log(edges.clip(_SMALLEST, _LARGEST))
    edges, kept = np.unique(edges, return_index=True)  # quantiles of vague priors may underflow
    if edges.size == 1:
        edges, kept = np.append(edges, edges + 1.0), np.array([0, n_cells])
    centres = 0.5 * (edges[1:] + edges[:-1])
    if near is not None:
        reach = prior[1] + _REACH * prior[2] * math.exp(0.5 * centres[-1])
        centre = min(max(near[0] - prior[0], -prior[1]), prior[1])  # of large noise, the released mean may be far away
        z_edges = _edges_near(centre, min(near[1], _FINEST * prior[1]), reach, n_cells)
        z_probability = np.diff(mean_cdf(hyperparameters, prior[0] + z_edges, np.exp(centres)[:, None])).clip(0.0)
    elif entry.has_square:
        z_edges = np.linspace(-_REACH, _REACH, n_cells + 1) / np.sqrt(prior[1])
        z_probability = np.diff(special.ndtr(z_edges * np.sqrt(prior[1])))
    else:
        z_edges, z_probability = np.array([0.0, 1.0]), np.ones(1)
    probability = (np.diff(special.ndtr(levels)[kept])[:, None] * z_probability).ravel()
    if entry.has_square:
        variance = np.repeat(np.exp(centres), n_cells)
        z = np.tile(0.5 * (z_edges[1:] + z_edges[:-1]), centres.size)
        theta = np.column_stack([prior[0] + (np.sqrt(variance) if near is None else 1.0) * z, variance])
    else:
        theta = (centres if entry.code == NORMAL else np.exp(centres))[:, None]
    with np.errstate(all="ignore"):
        return edges, z_edges, probability / probability.sum(), *entry.contribution_moments(theta, bounds, clamps)


def _edges_near(centre: float, unit: float, reach: float, n_cells: int) -> Floats:
    """Return ascending edges of cells between −reach and reach, of widths that grow with the distance from a centre.

    They are `unit` times hyperbolic sines, so that widths are a fraction of the larger of `unit` and the distance.
    """
    ends = np.arcsinh((np.array([-reach, reach]) - centre) / unit)
    return np.unique(centre + unit * np.sinh(np.linspace(ends[0], ends[1], n_cells + 1)))


@kernel
def _log_noise(residual, power, rate):
    """Return the log density of the noise at `residual`, up to a constant."""
    z = abs(residual) * rate
    return -z if power == 1 else -0.5 * z * z


@kernel
def _invert(rng, table, records):
    """Fill `records` with independent draws of 0, 1, … whose distribution function is `table`, up to its first 1.

    A search starts from the draw for the next lower multiple of 1/_GUIDE (Chen & Asau, "On generating random variates
    from an empirical distribution", AIIE Transactions 6(2), 1974).
    """
    guide = np.empty(_GUIDE, dtype=np.int64)
    x = 0
    for i in range(_GUIDE):
        while i >= table[x] * _GUIDE:
            x += 1
        guide[i] = x
    for i in range(records.size):
        u = rng.random()
        x = guide[int(u * _GUIDE)]
        while u >= table[x]:
            x += 1
        records[i] = x


@kernel
def draw_poisson(rng, mean, records):
    """Fill `records` with independent Poisson draws, by inversion of a tabulated distribution if the mean is small."""
    if mean > _LARGEST_TABULATED:
        for i in range(records.size):
            records[i] = rng.poisson(min(mean, _LARGEST_COUNT))
        return
    table = np.empty(_TABLE)
    term = table[0] = math.exp(-mean)
    last = 0
    while term > _NEGLIGIBLE and last < _TABLE - 1:
        last += 1
        term *= mean / last
        table[last] = table[last - 1] + term
    table[last] = 1.0
    _invert(rng, table, records)


@kernel
def _draw_records(rng, kind, theta, records):
    """Fill `records` with independent draws given θ, clipped so that sums do not overflow even under a vague prior."""
    if kind == EXPONENTIAL:
        for i in range(records.size):
            records[i] = min(rng.standard_exponential() / theta[0], _LARGEST_RECORD)
    elif kind == POISSON:
        draw_poisson(rng, theta[0], records)
    else:
        std = math.sqrt(theta[1]) if kind == UNKNOWN_VARIANCE else 1.0
        for i in range(records.size):
            records[i] = theta[0] + std * rng.standard_normal()


@kernel
def _draw_parameters(rng, kind, prior, n, total, squares, theta):
    """Fill `theta` with a draw from the conjugate posterior, given the sum and the sum of squares of n ≥ 0 records."""
    if kind == EXPONENTIAL:
        theta[0] = rng.standard_gamma(prior[0] + n) / (prior[1] + total)
    elif kind == POISSON:
        theta[0] = rng.standard_gamma(prior[0] + total) / (prior[1] + n)
    elif kind == NORMAL:
        precision = 1.0 / prior[1] + n
        theta[0] = (prior[0] / prior[1] + total) / precision + rng.standard_normal() / math.sqrt(precision)
    else:
        weight, shape, scale = 0.0, -0.5, 0.0  # of the density 1/σ², which replaces a prior that is not conjugate
        if prior.size == N_CONJUGATE:
            weight, shape, scale = prior[1], prior[2], prior[3]
        average = total / max(n, 1)
        strength = weight + n
        away = average - prior[0]  # Python's powers and Numba's may differ in the last bit
        spread = max(squares - n * average * average, 0.0) + weight * n / strength * (away * away)
        theta[1] = (scale + 0.5 * spread) / rng.standard_gamma(shape + 0.5 * n)
        mean = (weight * prior[0] + total) / strength
        theta[0] = mean + math.sqrt(theta[1] / strength) * rng.standard_normal()


@kernel
def _log_prior(prior, theta):
    """Return the log density of (μ, ln σ²), up to a constant, for the prior that is not conjugate."""
    z = (0.5 * math.log(theta[1]) - math.log(prior[3])) / prior[4]
    away, unit = abs(theta[0] - prior[0]), prior[2] * math.sqrt(2.0 * theta[1])
    tails = math.erfc((away - prior[1]) / unit) - math.erfc((away + prior[1]) / unit)
    return math.log(tails) - 0.5 * z * z


@kernel
def _accepts(rng, kind, prior, candidate, theta):
    """Accept a draw of `_draw_parameters` with the probability of a Metropolis step; 1 for a conjugate prior."""
    if kind != UNKNOWN_VARIANCE or prior.size == N_CONJUGATE:
        return True
    log_ratio = _log_prior(prior, candidate) - _log_prior(prior, theta)
    return log_ratio >= 0.0 or rng.standard_exponential() >= -log_ratio


@kernel
def _is_within(theta, lower, upper):
    inside = True
    for j in range(theta.size):
        inside &= lower[j] <= theta[j] <= upper[j]
    return inside


@kernel
def _contribution(x, low, high, clamps):
    if clamps:
        return min(max(x, low), high)
    return x if low <= x <= high else 0.0


@kernel
def _log_likelihood(records, bounds, noisy, power, rate):
    """Return the sum and the sum of squares of the contributions, and ln p(y | x) up to a constant."""
    s = s_square = 0.0
    for i in range(records.size):
        c = _contribution(records[i], *bounds)
        s += c
        s_square += c * c
    log_density = _log_noise(noisy[0] - s, power, rate)
    if noisy.size > 1:
        log_density += _log_noise(noisy[1] - s_square, power, rate)
    return s, s_square, log_density


@kernel
def _propose_parameters(rng, kind, prior, proposal, theta):
    """Fill `theta` with a draw from the proposal distribution."""
    edges, z_edges, cumulative, _ = proposal
    cell = np.searchsorted(cumulative, rng.random(), side="right")
    i, j = cell // (z_edges.size - 1), cell % (z_edges.size - 1)
    phi = edges[i] + rng.random() * (edges[i + 1] - edges[i])
    if kind == NORMAL:
        theta[0] = phi
    elif kind == UNKNOWN_VARIANCE:
        theta[1] = math.exp(phi)
        unit = math.sqrt(theta[1]) if prior.size == N_CONJUGATE else 1.0
        theta[0] = prior[0] + unit * (z_edges[j] + rng.random() * (z_edges[j + 1] - z_edges[j]))
    else:
        theta[0] = math.exp(phi)


@kernel
def _log_weight(kind, prior, proposal, theta):
    """Return the log of the prior density over the proposal density, up to a constant; infinite outside all cells."""
    edges, z_edges, _, log_density = proposal
    j = 0
    if kind == NORMAL:
        phi = theta[0]
        log_prior = -0.5 * ((phi - prior[0]) * (phi - prior[0])) / prior[1]
    elif kind == UNKNOWN_VARIANCE and prior.size > N_CONJUGATE:
        phi = math.log(theta[1])
        j = np.searchsorted(z_edges, theta[0] - prior[0], side="right") - 1
        log_prior = _log_prior(prior, theta)
    elif kind == UNKNOWN_VARIANCE:
        phi, z = math.log(theta[1]), (theta[0] - prior[0]) / math.sqrt(theta[1])
        j = np.searchsorted(z_edges, z, side="right") - 1
        log_prior = -prior[2] * phi - prior[3] / theta[1] - 0.5 * prior[1] * z * z
    else:
        phi = math.log(theta[0])
        log_prior = prior[0] * phi - prior[1] * theta[0]
    i = np.searchsorted(edges, phi, side="right") - 1
    if not (0 <= i < edges.size - 1 and 0 <= j < z_edges.size - 1):
        return math.inf
    return log_prior - log_density[i * (z_edges.size - 1) + j]


@kernel
def augment_records(rng, theta, kind, prior, n, noisy, power, rate, bounds, limits, proposal, n_burn_in, draws):
    """Fill `draws` with values of θ, for records with bounds."""
    # `bounds` is (low, high, clamps). The prior is restricted to the box between `limits`, two arrays of shape (p,).
    has_square = kind == UNKNOWN_VARIANCE
    p, candidate = theta.size, np.empty_like(theta)
    records, proposals = np.empty((2, n))
    _draw_records(rng, kind, theta, records)
    for iteration in range(-n_burn_in, len(draws)):
        # Sums are computed anew in every iteration, so that rounding errors do not accumulate.
        s, s_square, log_density = _log_likelihood(records, bounds, noisy, power, rate)

        # Step 2: update each record in O(1) operations.
        if iteration % 2 == 0:
            _draw_records(rng, kind, theta, proposals)
            for i in range(n):
                old, c = _contribution(records[i], *bounds), _contribution(proposals[i], *bounds)
                if c == old:
                    records[i] = proposals[i]
                else:
                    new_s, new_square = s - old + c, s_square
                    new_density = _log_noise(noisy[0] - new_s, power, rate)
                    if has_square:
                        new_square += c * c - old * old
                        new_density += _log_noise(noisy[1] - new_square, power, rate)
                    if new_density >= log_density or rng.standard_exponential() >= log_density - new_density:
                        s, s_square, log_density = new_s, new_square, new_density
                        records[i] = proposals[i]

        # Step 3: replace θ and all records.
        _propose_parameters(rng, kind, prior, proposal, candidate)
        if _is_within(candidate, *limits):
            _draw_records(rng, kind, candidate, proposals)
            log_ratio = _log_likelihood(proposals, bounds, noisy, power, rate)[2] - log_density
            log_ratio += _log_weight(kind, prior, proposal, candidate)
            log_ratio -= _log_weight(kind, prior, proposal, theta)
            if log_ratio >= 0.0 or rng.standard_exponential() >= -log_ratio:
                theta, candidate = candidate, theta
                records, proposals = proposals, records

        # Step 1: draw θ given the records.
        total = squares = 0.0
        for i in range(n):
            total += records[i]
            squares += records[i] * records[i]
        _draw_parameters(rng, kind, prior, n, total, squares, candidate)
        if _is_within(candidate, *limits) and _accepts(rng, kind, prior, candidate, theta):
            theta, candidate = candidate, theta
        if iteration >= 0:
            for j in range(p):
                draws[iteration, j] = theta[j]


@kernel
def augment_binary_records(rng, start, prior, n, to_one, to_zero, n_burn_in, draws):
    """Fill `draws` with values of θ, for binary records; with s ones, changes are accepted with given probabilities."""
    theta = start[0]
    s = int(rng.binomial(n, theta))
    for iteration in range(-n_burn_in, len(draws)):
        # Step 2: update the records, for which the number of ones suffices.
        ups, downs = float(rng.binomial(n - s, theta)), float(rng.binomial(s, 1.0 - theta))
        while ups + downs > 0.0:
            u = rng.random() * (ups + downs)
            if u < ups:
                if u < ups * to_one[s]:
                    s += 1
                ups -= 1.0
            else:
                if u - ups < downs * to_zero[s]:
                    s -= 1
                downs -= 1.0
        # Step 1: draw θ given the records.
        theta = rng.beta(prior[0] + s, prior[1] + (n - s))
        if iteration >= 0:
            draws[iteration, 0] = theta


@kernel
def _draw_categories(rng, theta, categories):
    """Fill `categories` with independent draws given the probabilities θ."""
    table = np.cumsum(theta)
    table[-1] = 1.0
    _invert(rng, table, categories)


@kernel
def _set_gains(j, residual, power, rate, gains):
    """Fill `gains` with the changes of the log density if category j loses a record (row 0) or gains one (row 1)."""
    present = _log_noise(residual, power, rate)
    gains[0, j] = _log_noise(residual + 1.0, power, rate) - present
    gains[1, j] = _log_noise(residual - 1.0, power, rate) - present


@kernel
def augment_categories(rng, theta, prior, n, noisy, power, rate, n_burn_in, draws):
    """Fill `draws` with values of θ, for records of k categories."""
    k = theta.size
    counts, gains = np.zeros(k), np.empty((2, k))
    categories, proposals = np.empty((2, n), dtype=np.int64)
    _draw_categories(rng, theta, categories)
    for i in range(n):
        counts[categories[i]] += 1.0
    for j in range(k):
        _set_gains(j, noisy[j] - counts[j], power, rate, gains)
    for iteration in range(-n_burn_in, len(draws)):
        # Step 2: update each record.
        _draw_categories(rng, theta, proposals)
        for i in range(n):
            old, new = categories[i], proposals[i]
            if new == old:
                continue
            gain = gains[0, old] + gains[1, new]
            if gain >= 0.0 or rng.standard_exponential() >= -gain:
                counts[old] -= 1.0
                counts[new] += 1.0
                categories[i] = new
                _set_gains(old, noisy[old] - counts[old], power, rate, gains)
                _set_gains(new, noisy[new] - counts[new], power, rate, gains)
        # Step 1: draw θ given the records.
        mass = 0.0
        for j in range(k):
            theta[j] = rng.standard_gamma(prior[j] + counts[j])
            mass += theta[j]
        for j in range(k):
            theta[j] /= mass
            if iteration >= 0:
                draws[iteration, j] = theta[j]

"""Compiled samplers of `mechanisms.inference.data_augmentation`, which explains their steps."""

import math

import numpy as np

from mechanisms.inference.family import EXPONENTIAL, NORMAL, POISSON, UNKNOWN_VARIANCE
from mechanisms.jit import kernel

__all__ = ["augment_binary_records", "augment_categories", "augment_records", "draw_poisson"]

_LARGEST_RECORD, _LARGEST_COUNT = 1e150, 1e15
_LARGEST_TABULATED, _TABLE, _NEGLIGIBLE = 20.0, 100, 1e-18  # largest Poisson mean, size and last term of its table
_GUIDE = 64  # number of uniform variates for which the draw is tabulated


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
        average = total / max(n, 1)
        strength = prior[1] + n
        away = average - prior[0]  # Python's powers and Numba's may differ in the last bit
        spread = max(squares - n * average * average, 0.0) + prior[1] * n / strength * (away * away)
        theta[1] = (prior[3] + 0.5 * spread) / rng.standard_gamma(prior[2] + 0.5 * n)
        mean = (prior[1] * prior[0] + total) / strength
        theta[0] = mean + math.sqrt(theta[1] / strength) * rng.standard_normal()


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
def _log_likelihood(contributions, noisy, power, rate):
    """Return the sum and the sum of squares of the contributions, and ln p(y | x) up to a constant."""
    s = s_square = 0.0
    for i in range(contributions.size):
        s += contributions[i]
        s_square += contributions[i] * contributions[i]
    log_density = _log_noise(noisy[0] - s, power, rate)
    if noisy.size > 1:
        log_density += _log_noise(noisy[1] - s_square, power, rate)
    return s, s_square, log_density


@kernel
def _search(table, x):
    """Return the number of entries of an ascending table that are at most x."""
    low, high = 0, table.size
    while low < high:
        middle = (low + high) // 2
        if table[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _propose_parameters(rng, kind, prior, edges, z_edges, cumulative, theta):
    """Fill `theta` with a draw from the proposal distribution; see `mechanisms.inference.joint_proposals`."""
    cell = _search(cumulative, rng.random())
    i, j = cell // (z_edges.size - 1), cell % (z_edges.size - 1)
    phi = edges[i] + rng.random() * (edges[i + 1] - edges[i])
    if kind == NORMAL:
        theta[0] = phi
    elif kind == UNKNOWN_VARIANCE:
        theta[1] = math.exp(phi)
        theta[0] = prior[0] + math.sqrt(theta[1]) * (z_edges[j] + rng.random() * (z_edges[j + 1] - z_edges[j]))
    else:
        theta[0] = math.exp(phi)


@kernel
def _log_weight(kind, prior, edges, z_edges, log_density, theta):
    """Return the log of the prior density over the proposal density, up to a constant; infinite outside all cells."""
    j = 0
    if kind == NORMAL:
        phi = theta[0]
        log_prior = -0.5 * ((phi - prior[0]) * (phi - prior[0])) / prior[1]
    elif kind == UNKNOWN_VARIANCE:
        phi, z = math.log(theta[1]), (theta[0] - prior[0]) / math.sqrt(theta[1])
        j = _search(z_edges, z) - 1
        log_prior = -prior[2] * phi - prior[3] / theta[1] - 0.5 * prior[1] * z * z
    else:
        phi = math.log(theta[0])
        log_prior = prior[0] * phi - prior[1] * theta[0]
    i = _search(edges, phi) - 1
    if not (0 <= i < edges.size - 1 and 0 <= j < z_edges.size - 1):
        return math.inf
    return log_prior - log_density[i * (z_edges.size - 1) + j]


@kernel
def augment_records(rng, kind, starts, prior, n, noisy, power, rate, bounds, limits, proposal, n_burn_in, draws):
    """Fill `draws`, shape (n_chains, n_draws, p), with values of θ, starting from `starts`, shape (n_chains, p).

    `bounds` is (low, high, clamps). The prior is restricted to the box between `limits`, two arrays of shape (p,).
    `proposal` is (edges, z_edges, cumulative, log_density); see `mechanisms.inference.joint_proposals`.
    """
    n_chains, n_draws, p = draws.shape
    low, high, clamps = bounds
    edges, z_edges, cumulative, log_density_of_cell = proposal
    has_square = kind == UNKNOWN_VARIANCE
    theta, candidate = np.empty((2, p))
    records, proposals, contributions, proposed = np.empty((4, n))
    for chain in range(n_chains):
        for j in range(p):
            theta[j] = starts[chain, j]
        _draw_records(rng, kind, theta, records)
        for i in range(n):
            contributions[i] = _contribution(records[i], low, high, clamps)
        for iteration in range(-n_burn_in, n_draws):
            # Sums are computed anew in every iteration, so that rounding errors do not accumulate.
            s, s_square, log_density = _log_likelihood(contributions, noisy, power, rate)

            # Step 2: update each record in O(1) operations.
            if iteration % 2 == 0:
                _draw_records(rng, kind, theta, proposals)
                for i in range(n):
                    x = proposals[i]
                    c = _contribution(x, low, high, clamps)
                    if c == contributions[i]:
                        records[i] = x
                    else:
                        new_s, new_square = s - contributions[i] + c, s_square
                        new_density = _log_noise(noisy[0] - new_s, power, rate)
                        if has_square:
                            new_square += c * c - contributions[i] * contributions[i]
                            new_density += _log_noise(noisy[1] - new_square, power, rate)
                        if new_density >= log_density or rng.standard_exponential() >= log_density - new_density:
                            s, s_square, log_density = new_s, new_square, new_density
                            records[i], contributions[i] = x, c

            # Step 3: replace θ and all records.
            _propose_parameters(rng, kind, prior, edges, z_edges, cumulative, candidate)
            if _is_within(candidate, *limits):
                _draw_records(rng, kind, candidate, proposals)
                for i in range(n):
                    proposed[i] = _contribution(proposals[i], low, high, clamps)
                log_ratio = _log_likelihood(proposed, noisy, power, rate)[2] - log_density
                log_ratio += _log_weight(kind, prior, edges, z_edges, log_density_of_cell, candidate)
                log_ratio -= _log_weight(kind, prior, edges, z_edges, log_density_of_cell, theta)
                if log_ratio >= 0.0 or rng.standard_exponential() >= -log_ratio:
                    for j in range(p):
                        theta[j] = candidate[j]
                    for i in range(n):
                        records[i], contributions[i] = proposals[i], proposed[i]

            # Step 1: draw θ given the records.
            total = squares = 0.0
            for i in range(n):
                total += records[i]
                squares += records[i] * records[i]
            _draw_parameters(rng, kind, prior, n, total, squares, candidate)
            if _is_within(candidate, *limits):
                for j in range(p):
                    theta[j] = candidate[j]
            if iteration >= 0:
                for j in range(p):
                    draws[chain, iteration, j] = theta[j]


@kernel
def augment_binary_records(rng, starts, alpha, beta, n, to_one, to_zero, n_burn_in, draws):
    """Fill `draws` (n_chains, n_draws) with values of θ by the sampler for binary records.

    With s ones, a proposal to change a 0 is accepted with probability to_one[s], and one to change a 1 with to_zero[s].
    """
    n_chains, n_draws = draws.shape
    for chain in range(n_chains):
        theta = starts[chain]
        s = int(rng.binomial(n, theta))
        for iteration in range(-n_burn_in, n_draws):
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
            theta = rng.beta(alpha + s, beta + (n - s))
            if iteration >= 0:
                draws[chain, iteration] = theta


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
def augment_categories(rng, starts, prior, n, noisy, power, rate, n_burn_in, draws):
    """Fill `draws`, shape (n_chains, n_draws, k), with values of θ, starting from `starts`, shape (n_chains, k)."""
    n_chains, n_draws, k = draws.shape
    theta, counts, gains = np.empty(k), np.empty(k), np.empty((2, k))
    categories, proposals = np.empty((2, n), dtype=np.int64)
    for chain in range(n_chains):
        for j in range(k):
            theta[j], counts[j] = starts[chain, j], 0.0
        _draw_categories(rng, theta, categories)
        for i in range(n):
            counts[categories[i]] += 1.0
        for j in range(k):
            _set_gains(j, noisy[j] - counts[j], power, rate, gains)
        for iteration in range(-n_burn_in, n_draws):
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
                    draws[chain, iteration, j] = theta[j]

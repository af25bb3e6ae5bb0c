"""Kernels of the chains of `mechanisms.regression.gram_samplers`, which defines their models and notation.

Symmetric matrices are full (m, m) arrays, and `noise` is the number of the noise in
`mechanisms.regression.gram_release.NOISE_CODES`. Draws are rows of (θ₀, θ, σ²). A kernel returns the fraction of
accepted proposals, or −1 if it cannot start.
"""

import math

import numpy as np

from mechanisms.jit import kernel

__all__ = ["augment_records", "run_normal_covariates", "run_normal_statistics"]

_FINEST = 7.0  # smallest proposal scale is 2^−7 standard deviations of the noise


@kernel
def _factor(a, lower):
    """Fill `lower` with the Cholesky factor of `a`, and return its log determinant, or −∞ if `a` is not definite."""
    size = a.shape[0]
    log_det = 0.0
    for j in range(size):
        pivot = a[j, j]
        for k in range(j):
            pivot -= lower[j, k] * lower[j, k]
        if not pivot > 1e-13 * abs(a[j, j]):
            return -np.inf
        root = math.sqrt(pivot)
        lower[j, j] = root
        log_det += 2.0 * math.log(root)
        for i in range(j + 1, size):
            value = a[i, j]
            for k in range(j):
                value -= lower[i, k] * lower[j, k]
            lower[i, j] = value / root
    return log_det


@kernel
def _solve_lower(lower, b):
    """Replace `b` by the solution x of L·x = b."""
    for i in range(b.size):
        for k in range(i):
            b[i] -= lower[i, k] * b[k]
        b[i] /= lower[i, i]


@kernel
def _solve_upper(lower, b):
    """Replace `b` by the solution x of Lᵀ·x = b."""
    for i in range(b.size - 1, -1, -1):
        for k in range(i + 1, b.size):
            b[i] -= lower[k, i] * b[k]
        b[i] /= lower[i, i]


@kernel
def _log_noise(noise, scale, noisy, gram, residual):
    """Return the log density of the noise `noisy` − `gram`, up to a constant."""
    m = noisy.shape[0]
    total = 0.0
    if noise == 2:
        for i in range(m):
            for j in range(m):
                residual[i, j] = noisy[i, j] - gram[i, j]
        trace = 0.0
        for value in np.linalg.eigvalsh(residual):
            total += abs(value)
            trace += value
        return -(total + abs(trace)) / (2.0 * scale)
    for j in range(1, m):
        for i in range(j + 1):
            z = noisy[i, j] - gram[i, j]
            total += abs(z) if noise == 0 else (z * z if i == j else 2.0 * z * z)
    return -total / scale if noise == 0 else -total / (2.0 * scale * scale)


@kernel
def _fill_gram(n, mean, scatter, gram):
    """Fill `gram` with the statistic of n records of a given mean and scatter."""
    p = mean.size
    gram[0, 0] = n
    for i in range(p):
        gram[0, i + 1] = gram[i + 1, 0] = n * mean[i]
        for j in range(p):
            gram[i + 1, j + 1] = scatter[i, j] + n * mean[i] * mean[j]


@kernel
def _updated_scale(prior, n, mean, scatter, found):
    """Fill `found` with Λ₀ + S + κ₀n/(κ₀ + n)·ūūᵀ."""
    weight = prior[0] * n / (prior[0] + n)
    for i in range(mean.size):
        for j in range(mean.size):
            found[i, j] = scatter[i, j] + weight * mean[i] * mean[j]
        found[i, i] += prior[2]


@kernel
def _draw_parameters(rng, prior, n, mean, lower, mu, psi):
    """Draw (μ, Ψ) from the normal inverse-Wishart posterior, given the Cholesky factor of its scale matrix."""
    p = mean.size
    bartlett, root, row = np.zeros((p, p)), np.empty((p, p)), np.empty(p)
    for i in range(p):
        bartlett[i, i] = math.sqrt(rng.chisquare(prior[1] + n - i))
        for j in range(i):
            bartlett[i, j] = rng.standard_normal()
    for i in range(p):  # Ψ = F·Fᵀ with F = L·A⁻ᵀ: row i of F solves A·f = row i of L
        for j in range(p):
            row[j] = lower[i, j] if j <= i else 0.0
        _solve_lower(bartlett, row)
        for j in range(p):
            root[i, j] = row[j]
    for i in range(p):
        for j in range(p):
            value = 0.0
            for k in range(p):
                value += root[i, k] * root[j, k]
            psi[i, j] = value
        row[i] = rng.standard_normal()
    shrink, spread = n / (prior[0] + n), 1.0 / math.sqrt(prior[0] + n)
    for i in range(p):
        mu[i] = shrink * mean[i]
        for k in range(p):
            mu[i] += spread * root[i, k] * row[k]


@kernel
def _store(mu, psi, lower, out):
    """Fill `out` with (θ₀, θ, σ²) of the regression of the last column on the others."""
    d = mu.size - 1
    _factor(psi, lower)
    slopes = np.empty(d)
    for i in range(d):
        slopes[i] = lower[d, i]
    _solve_upper(lower[:d, :d], slopes)
    out[0] = mu[d]
    for i in range(d):
        out[i + 1] = slopes[i]
        out[0] -= slopes[i] * mu[i]
    out[d + 1] = lower[d, d] ** 2


@kernel
def _log_statistic(prior, n, mean, scatter, log_det, scale_matrix, lower):
    """Return ln p(ū, S), with the parameters integrated out."""
    p = mean.size
    _updated_scale(prior, n, mean, scatter, scale_matrix)
    return 0.5 * (n - p - 2) * log_det - 0.5 * (prior[1] + n) * _factor(scale_matrix, lower)


@kernel
def run_normal_covariates(rng, noise, scale, noisy, n, prior, burn_in, thinning, draws):
    """Fill `draws` by a Metropolis chain on the statistic (ū, S) of normal records.

    An iteration has an additive proposal for all entries of G, and one for a single entry; a shift of ū by a multiple
    of a column of the Cholesky factor L of S; and a change of a column of L, by a multiple of another column or by a
    factor e^g. As dS = 2^p·Π L_jj^{p−j} dL (j from 0), and column j has p − j entries, the last has the Jacobian
    e^{2g(p−j)}.
    """
    m = noisy.shape[0]
    p = m - 1
    mean, scatter, factor = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    new_mean, new_scatter, new_factor = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    gram, new_gram, work, lower = np.empty((m, m)), np.empty((m, m)), np.empty((m, m)), np.zeros((p, p))
    scale_matrix, mu, psi = np.empty((p, p)), np.empty(p), np.empty((p, p))
    for j in range(1, m):  # start near the release, or at the prior if the scatter of the release is not definite
        for i in range(j + 1):
            gram[i, j] = gram[j, i] = noisy[i, j] + scale * rng.standard_normal()
    for i in range(p):
        mean[i] = gram[0, i + 1] / n
    for i in range(p):
        for j in range(p):
            scatter[i, j] = gram[i + 1, j + 1] - n * mean[i] * mean[j]
    log_det = _factor(scatter, factor)
    if log_det == -np.inf:
        for i in range(p):
            mean[i] = 0.5 * rng.standard_normal()
            for j in range(p):
                scatter[i, j] = factor[i, j] = 0.0
            scatter[i, i] = n * prior[2] / (prior[1] + p) * math.exp(rng.standard_normal())
        log_det = _factor(scatter, factor)
    _fill_gram(n, mean, scatter, gram)
    log_p = _log_statistic(prior, n, mean, scatter, log_det, scale_matrix, lower)
    log_p += _log_noise(noise, scale, noisy, gram, work)
    accepted, tried = 0, 0
    for step in range(burn_in + thinning * draws.shape[0]):
        for kind in range(4):
            jacobian = 0.0
            width = 2.0 ** (1.0 - (_FINEST + 1.0) * rng.random())
            for i in range(p):
                new_mean[i] = mean[i]
            if kind < 2:
                only_i, only_j = -1, -1
                if kind == 1:
                    only_j = 1 + int(p * rng.random())
                    only_i = int((only_j + 1) * rng.random())
                for j in range(m):
                    for i in range(j + 1):
                        new_gram[i, j] = gram[i, j]
                        if j > 0 and (kind == 0 or (i == only_i and j == only_j)):
                            new_gram[i, j] += width * scale * rng.standard_normal()
                        new_gram[j, i] = new_gram[i, j]
                for i in range(p):
                    new_mean[i] = new_gram[0, i + 1] / n
                for i in range(p):
                    for j in range(p):
                        new_scatter[i, j] = new_gram[i + 1, j + 1] - n * new_mean[i] * new_mean[j]
                new_log_det = _factor(new_scatter, new_factor)
            else:
                for i in range(p):
                    for j in range(i + 1):
                        new_factor[i, j] = factor[i, j]
                i, j = int(p * rng.random()), int(p * rng.random())
                g = width * rng.standard_normal()
                new_log_det = log_det
                if kind == 2:
                    for k in range(p):
                        new_mean[k] += g * factor[k, j] / math.sqrt(n) if k >= j else 0.0
                elif i <= j:
                    for k in range(j, p):
                        new_factor[k, j] *= math.exp(g)
                    new_log_det += 2.0 * g
                    jacobian = 2.0 * g * (p - j)
                else:
                    for k in range(i, p):
                        new_factor[k, j] += g * factor[k, i]
                for i in range(p):
                    for j in range(i + 1):
                        value = 0.0
                        for k in range(j + 1):
                            value += new_factor[i, k] * new_factor[j, k]
                        new_scatter[i, j] = new_scatter[j, i] = value
                _fill_gram(n, new_mean, new_scatter, new_gram)
            tried += 1
            if new_log_det == -np.inf:
                continue
            proposed = _log_statistic(prior, n, new_mean, new_scatter, new_log_det, scale_matrix, lower)
            proposed += _log_noise(noise, scale, noisy, new_gram, work)
            if math.log(rng.random()) < proposed - log_p + jacobian:
                accepted += 1
                log_p, log_det = proposed, new_log_det
                for i in range(m):
                    for j in range(m):
                        gram[i, j] = new_gram[i, j]
                for i in range(p):
                    mean[i] = new_mean[i]
                    for j in range(p):
                        scatter[i, j] = new_scatter[i, j]
                        factor[i, j] = new_factor[i, j]
        kept = (step - burn_in) // thinning
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            _updated_scale(prior, n, mean, scatter, scale_matrix)
            _factor(scale_matrix, lower)
            _draw_parameters(rng, prior, n, mean, lower, mu, psi)
            _store(mu, psi, lower, draws[kept])
    return accepted / tried


@kernel
def augment_records(rng, noise, scale, noisy, n, prior, burn_in, thinning, draws):
    """Fill `draws` by a chain on all records, which are clamped to [−1, 1] in the statistic."""
    m = noisy.shape[0]
    p = m - 1
    mu, psi, root = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    records, z, old, g = np.zeros((n, p)), np.ones(m), np.ones(m), np.empty(p)
    gram, new_gram, work, lower = np.zeros((m, m)), np.empty((m, m)), np.empty((m, m)), np.zeros((p, p))
    mean, scatter, scale_matrix = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    for i in range(p):
        scale_matrix[i, i] = prior[2]
    _factor(scale_matrix, lower)
    _draw_parameters(rng, prior, 0, mean, lower, mu, psi)
    accepted, tried, log_p = 0, 0, -np.inf
    for step in range(burn_in + thinning * draws.shape[0] + 1):
        _factor(psi, root)
        first = step == 0
        for row in range(n):
            for i in range(p):
                g[i] = rng.standard_normal()
            for i in range(p):
                value = mu[i]
                for k in range(i + 1):
                    value += root[i, k] * g[k]
                z[i + 1] = value
            for i in range(p):
                old[i + 1] = min(max(records[row, i], -1.0), 1.0)
                g[i] = z[i + 1]
                z[i + 1] = min(max(z[i + 1], -1.0), 1.0)
            for i in range(m):
                for j in range(m):
                    new_gram[i, j] = gram[i, j] + z[i] * z[j] - (0.0 if first else old[i] * old[j])
            proposed = 0.0
            if not first:
                proposed = _log_noise(noise, scale, noisy, new_gram, work)
                tried += 1
            if first or math.log(rng.random()) < proposed - log_p:
                accepted += not first
                log_p = proposed
                for i in range(m):
                    for j in range(m):
                        gram[i, j] = new_gram[i, j]
                for i in range(p):
                    records[row, i] = g[i]
        if first:
            log_p = _log_noise(noise, scale, noisy, gram, work)
        for i in range(p):
            mean[i] = 0.0
        for row in range(n):
            for i in range(p):
                mean[i] += records[row, i] / n
        for i in range(p):
            for j in range(i + 1):
                scatter[i, j] = 0.0
        for row in range(n):
            for i in range(p):
                for j in range(i + 1):
                    scatter[i, j] += (records[row, i] - mean[i]) * (records[row, j] - mean[j])
        for i in range(p):
            for j in range(i):
                scatter[j, i] = scatter[i, j]
        _updated_scale(prior, n, mean, scatter, scale_matrix)
        _factor(scale_matrix, lower)
        _draw_parameters(rng, prior, n, mean, lower, mu, psi)
        kept = step - 1 - burn_in
        if kept >= 0 and kept % thinning == thinning - 1:
            _store(mu, psi, lower, draws[kept // thinning])
    return accepted / tried


@kernel
def _fill_moments(n, mu, psi, first, second, expected, covariance):
    """Fill the mean and the covariance of the statistics Σuᵢ (second index −1) and Σuᵢuⱼ of n normal records."""
    for a in range(first.size):
        i, j = first[a], second[a]
        expected[a] = n * mu[i] if j < 0 else n * (psi[i, j] + mu[i] * mu[j])
        for b in range(a + 1):
            k, q = first[b], second[b]
            if j < 0 and q < 0:
                value = psi[i, k]
            elif q < 0:
                value = mu[j] * psi[i, k] + mu[i] * psi[j, k]
            elif j < 0:
                value = mu[q] * psi[k, i] + mu[k] * psi[q, i]
            else:
                value = psi[i, k] * psi[j, q] + psi[i, q] * psi[j, k] + mu[i] * mu[k] * psi[j, q]
                value += mu[i] * mu[q] * psi[j, k] + mu[j] * mu[k] * psi[i, q] + mu[j] * mu[q] * psi[i, k]
            covariance[a, b] = covariance[b, a] = n * value


@kernel
def _log_normal(point, expected, covariance, lower, work):
    """Return the log density of a normal distribution, up to a constant."""
    log_det = _factor(covariance, lower)
    if log_det == -np.inf:
        return -np.inf
    total = 0.0
    for a in range(point.size):
        work[a] = point[a] - expected[a]
    _solve_lower(lower, work)
    for a in range(point.size):
        total += work[a] * work[a]
    return -0.5 * log_det - 0.5 * total


@kernel
def _log_prior(prior, mu, psi, lower, work):
    """Return the log density of the prior at (μ, Ψ), up to a constant."""
    p = mu.size
    log_det = _factor(psi, lower)
    if log_det == -np.inf:
        return -np.inf
    total = 0.0
    for i in range(p):
        for j in range(p):
            work[j] = math.sqrt(prior[2]) if i == j else 0.0
        _solve_lower(lower, work)
        for j in range(p):
            total += work[j] * work[j]
        work[i] = 0.0
    for j in range(p):
        work[j] = mu[j] * math.sqrt(prior[0])
    _solve_lower(lower, work)
    for j in range(p):
        total += work[j] * work[j]
    return -0.5 * (prior[1] + p + 2.0) * log_det - 0.5 * total


@kernel
def _log_wishart(n, mean, scatter, mu, psi, lower, work):
    """Return ln p(ū, S | μ, Ψ) of normal records, up to a function of the statistic."""
    p = mu.size
    log_det = _factor(psi, lower)
    if log_det == -np.inf:
        return -np.inf
    total = 0.0
    for j in range(p):
        work[j] = mean[j] - mu[j]
    _solve_lower(lower, work)
    for j in range(p):
        total += n * work[j] * work[j]
    inverse = np.empty(p)
    for i in range(p):  # tr(Ψ⁻¹S)
        for j in range(p):
            inverse[j] = 1.0 if j == i else 0.0
        _solve_lower(lower, inverse)
        _solve_upper(lower, inverse)
        for j in range(p):
            total += inverse[j] * scatter[j, i]
    return -0.5 * n * log_det - 0.5 * total


@kernel
def run_normal_statistics(rng, noise, scale, noisy, n, prior, corrected, moves, burn_in, thinning, draws):
    """Fill `draws` by a chain in which the statistic t given (μ, Ψ) is normal with the moments of n records.

    An iteration draws t given the parameters, which is a product of normal densities; parameters from their conjugate
    posterior given t, corrected by Metropolis if `corrected`; and variances ω of normal noise, whose mixture is Laplace
    noise. If `corrected`, it begins with `moves` proposals for (μ, Ψ) given the release, with t integrated out.
    Otherwise t is redrawn up to 100 times until its scatter is definite.
    """
    m = noisy.shape[0]
    p = m - 1
    size = p * (p + 3) // 2
    first, second, y = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    variance, base = np.empty(size), np.empty(size)
    a = 0
    for j in range(1, m):
        for i in range(j + 1):
            first[a], second[a] = (j - 1, -1) if i == 0 else (i - 1, j - 1)
            y[a] = noisy[i, j]
            base[a] = 2.0 * scale * scale if noise == 0 else (scale * scale if i == j else 0.5 * scale * scale)
            variance[a] = base[a]
            a += 1
    expected, covariance, total = np.empty(size), np.empty((size, size)), np.empty((size, size))
    big, chol, long, t, gap = (
        np.zeros((size, size)),
        np.zeros((size, size)),
        np.empty(size),
        np.empty(size),
        np.empty(size),
    )
    mu, psi, lower, work = np.zeros(p), np.zeros((p, p)), np.zeros((p, p)), np.empty(p)
    new_mu, new_psi, root = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    mean, scatter, scale_matrix = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    for i in range(p):
        scale_matrix[i, i] = prior[2]
    _factor(scale_matrix, lower)
    _draw_parameters(rng, prior, 0, mean, lower, mu, psi)
    accepted, tried = 0, 0
    for step in range(burn_in + thinning * draws.shape[0]):
        if corrected:
            _fill_moments(n, mu, psi, first, second, expected, total)
            for b in range(size):
                total[b, b] += variance[b]
            log_p = _log_normal(y, expected, total, big, long) + _log_prior(prior, mu, psi, lower, work)
            for move in range(moves):
                _factor(psi, root)
                width = 2.0 ** (1.0 - (_FINEST + 1.0) * rng.random())
                g = width * rng.standard_normal()
                i, j = int(p * rng.random()), int(p * rng.random())
                jacobian = 0.0
                for k in range(p):
                    new_mu[k] = mu[k]
                if move % 2 == 0:
                    for k in range(j, p):
                        new_mu[k] += g * root[k, j]
                elif i <= j:
                    for k in range(j, p):
                        root[k, j] *= math.exp(g)
                    jacobian = 2.0 * g * (p - j)
                else:
                    for k in range(i, p):
                        root[k, j] += g * root[k, i]
                for i in range(p):
                    for j in range(i + 1):
                        value = 0.0
                        for k in range(j + 1):
                            value += root[i, k] * root[j, k]
                        new_psi[i, j] = new_psi[j, i] = value
                _fill_moments(n, new_mu, new_psi, first, second, expected, total)
                for b in range(size):
                    total[b, b] += variance[b]
                proposed = _log_normal(y, expected, total, big, long) + _log_prior(prior, new_mu, new_psi, lower, work)
                if math.log(rng.random()) < proposed - log_p + jacobian:
                    log_p = proposed
                    for i in range(p):
                        mu[i] = new_mu[i]
                        for j in range(p):
                            psi[i, j] = new_psi[i, j]
        _fill_moments(n, mu, psi, first, second, expected, covariance)
        for b in range(size):
            for c in range(size):
                total[b, c] = covariance[b, c] + (variance[b] if b == c else 0.0)
        _factor(total, big)
        _factor(covariance, chol)
        for _ in range(1 if corrected else 100):
            for b in range(size):
                long[b] = rng.standard_normal()
            for b in range(size):
                t[b] = expected[b]
                for c in range(b + 1):
                    t[b] += chol[b, c] * long[c]
            for b in range(size):
                gap[b] = y[b] - t[b] - math.sqrt(variance[b]) * rng.standard_normal()
            _solve_lower(big, gap)
            _solve_upper(big, gap)
            for b in range(size):
                for c in range(size):
                    t[b] += covariance[b, c] * gap[c]
            for b in range(size):
                if second[b] < 0:
                    mean[first[b]] = t[b] / n
            for b in range(size):
                if second[b] >= 0:
                    i, j = first[b], second[b]
                    scatter[i, j] = scatter[j, i] = t[b] - n * mean[i] * mean[j]
            possible = _factor(scatter, lower) > -np.inf
            if possible:
                break
        if possible:
            _updated_scale(prior, n, mean, scatter, scale_matrix)
            _factor(scale_matrix, lower)
            _draw_parameters(rng, prior, n, mean, lower, new_mu, new_psi)
            ratio = 0.0
            tried += 1
            if corrected:
                ratio = _log_wishart(n, mean, scatter, mu, psi, lower, work)
                ratio -= _log_normal(t, expected, covariance, big, long)
                _fill_moments(n, new_mu, new_psi, first, second, expected, covariance)
                ratio += _log_normal(t, expected, covariance, big, long)
                ratio -= _log_wishart(n, mean, scatter, new_mu, new_psi, lower, work)
            if math.log(rng.random()) < ratio:
                accepted += 1
                for i in range(p):
                    mu[i] = new_mu[i]
                    for j in range(p):
                        psi[i, j] = new_psi[i, j]
        if noise == 0:
            for b in range(size):
                distance = max(abs(y[b] - t[b]), 1e-12 * scale)
                variance[b] = min(
                    max(1.0 / rng.wald(1.0 / (scale * distance), 1.0 / (scale * scale)), 1e-20 * base[b]),
                    1e20 * base[b],
                )
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            _store(mu, psi, lower, draws[(step - burn_in) // thinning])
    return accepted / max(tried, 1)

"""Kernels of the chains of `mechanisms.regression.gram_samplers`, which defines their models and notation.

Symmetric matrices are full (m, m) arrays, and `noise` is the number of the noise in
`mechanisms.regression.gram_release.NOISE_CODES`. Draws are rows of (θ₀, θ, σ²).
"""

import math

import numpy as np

from mechanisms.jit import inlined_kernel, kernel

_FINEST = 7.0  # smallest proposal scale is 2^−7 standard deviations of the noise


@inlined_kernel
def _factor(a, lower):
    """Fill `lower` with the Cholesky factor of `a`, and return its log determinant, or −∞ if `a` is not definite."""
    size = a.shape[0]
    log_det, det = 0.0, 1.0  # one logarithm for many pivots
    for j in range(size):
        pivot = a[j, j]
        for k in range(j):
            pivot -= lower[j, k] * lower[j, k]
        if not pivot > 1e-13 * abs(a[j, j]):
            return -np.inf
        root = math.sqrt(pivot)
        lower[j, j] = root
        det *= pivot
        if not 1e-200 < det < 1e200:
            log_det, det = log_det + math.log(det / pivot) + math.log(pivot), 1.0
        for i in range(j + 1, size):
            value = a[i, j]
            for k in range(j):
                value -= lower[i, k] * lower[j, k]
            lower[i, j] = value / root
    return log_det + math.log(det)


@inlined_kernel
def _solve_lower(lower, b):
    """Replace `b` by the solution x of L·x = b."""
    for i in range(b.size):
        for k in range(i):
            b[i] -= lower[i, k] * b[k]
        b[i] /= lower[i, i]


@inlined_kernel
def _solve_upper(lower, b):
    """Replace `b` by the solution x of Lᵀ·x = b."""
    for i in range(b.size - 1, -1, -1):
        for k in range(i + 1, b.size):
            b[i] -= lower[k, i] * b[k]
        b[i] /= lower[i, i]


@kernel
def _diagonalise(a):
    """Replace the diagonal of a symmetric matrix by its eigenvalues; small matrices take a third of LAPACK's time.

    Householder reflections make the lower triangle tridiagonal, and implicit QL steps diagonalise it (Wilkinson &
    Reinsch, "Handbook for Automatic Computation: Linear Algebra", 1971). The upper triangle is working memory.
    """
    size = a.shape[0]
    for i in range(size - 1, 1, -1):
        rest = 0.0
        for k in range(i - 1):
            rest += a[i, k] * a[i, k]
        if rest == 0.0:
            continue
        f = a[i, i - 1]
        side = -math.copysign(math.sqrt(rest + f * f), f)
        h = rest + f * f - f * side
        a[i, i - 1] = f - side
        f = 0.0
        for j in range(i):
            g = 0.0
            for k in range(j + 1):
                g += a[j, k] * a[i, k]
            for k in range(j + 1, i):
                g += a[k, j] * a[i, k]
            a[j, i] = g / h
            f += a[j, i] * a[i, j]
        f /= 2.0 * h
        for j in range(i):
            a[j, i] -= f * a[i, j]
            for k in range(j + 1):
                a[j, k] -= a[i, j] * a[k, i] + a[j, i] * a[i, k]
        a[i, i - 1] = side
    for first in range(size - 1):
        for _ in range(100):
            last = first
            while last < size - 1 and abs(a[last + 1, last]) > 1e-15 * (
                abs(a[last, last]) + abs(a[last + 1, last + 1])
            ):
                last += 1
            if last == first:
                break
            g = (a[first + 1, first + 1] - a[first, first]) / (2.0 * a[first + 1, first])
            g = a[first + 1, first] / (g + math.copysign(math.sqrt(g * g + 1.0), g))
            g += a[last, last] - a[first, first]
            sine, cosine, shift = 1.0, 1.0, 0.0
            for i in range(last - 1, first - 1, -1):
                f, b = sine * a[i + 1, i], cosine * a[i + 1, i]
                r = math.sqrt(f * f + g * g)
                if i < last - 1:
                    a[i + 2, i + 1] = r
                if r == 0.0:
                    a[i + 1, i + 1] -= shift
                    break
                sine, cosine = f / r, g / r
                g = a[i + 1, i + 1] - shift
                r = (a[i, i] - g) * sine + 2.0 * cosine * b
                shift = sine * r
                a[i + 1, i + 1] = g + shift
                g = cosine * r - b
            else:
                a[first, first] -= shift
                a[first + 1, first] = g


@inlined_kernel
def _log_noise(noise, scale, noisy, gram, residual):
    """Return the log density of the noise `noisy` − `gram`, up to a constant."""
    m = noisy.shape[0]
    total = 0.0
    if noise == 2:
        for i in range(m):
            for j in range(m):
                residual[i, j] = noisy[i, j] - gram[i, j]
        _diagonalise(residual)
        trace = 0.0
        for i in range(m):
            total += abs(residual[i, i])
            trace += residual[i, i]
        return -(total + abs(trace)) / (2.0 * scale)
    for j in range(1, m):
        for i in range(j + 1):
            z = noisy[i, j] - gram[i, j]
            total += abs(z) if noise == 0 else (z * z if i == j else 2.0 * z * z)
    return -total / scale if noise == 0 else -total / (2.0 * scale * scale)


@inlined_kernel
def _square(lower, b):
    """Replace `b` by L⁻¹b, and return its squared norm."""
    _solve_lower(lower, b)
    total = 0.0
    for value in b:
        total += value * value
    return total


@inlined_kernel
def _multiply(root, product):
    """Fill `product` with F·Fᵀ."""
    size = root.shape[0]
    for i in range(size):
        for j in range(i + 1):
            value = 0.0
            for k in range(size):
                value += root[i, k] * root[j, k]
            product[i, j] = product[j, i] = value


@inlined_kernel
def _fill_gram(n, mean, scatter, gram):
    """Fill `gram` with the statistic of n records of a given mean and scatter."""
    p = mean.size
    gram[0, 0] = n
    for i in range(p):
        gram[0, i + 1] = gram[i + 1, 0] = n * mean[i]
        for j in range(p):
            gram[i + 1, j + 1] = scatter[i, j] + n * mean[i] * mean[j]


@inlined_kernel
def _fill_scatter(n, gram, mean, scatter):
    """Fill the mean and scatter of n records with the statistic `gram`."""
    p = mean.size
    for i in range(p):
        mean[i] = gram[0, i + 1] / n
    for i in range(p):
        for j in range(p):
            scatter[i, j] = gram[i + 1, j + 1] - n * mean[i] * mean[j]


@inlined_kernel
def _propose(rng, width, shift, mean, root, new_mean, new_root, matrix):
    """Propose another mean, or another lower triangular factor L of `matrix` = L·Lᵀ.

    If `shift` > 0, a multiple of a column of L is added to the mean. Otherwise a column of L has a multiple of another
    column added, or is multiplied by e^g, which is returned with its Jacobian: dS = 2^p·Π L_jj^{p−j} dL (j from 0), and
    column j has p − j entries, so ln of it is 2g(p−j), and ln|S| grows by 2g.
    """
    p = mean.size
    i, j = int(p * rng.random()), int(p * rng.random())
    g = width * rng.standard_normal()
    for k in range(p):
        new_mean[k] = mean[k] + (shift * g * root[k, j] if shift > 0.0 else 0.0)
        for q in range(p):
            new_root[k, q] = root[k, q]
    log_det, log_jacobian = 0.0, 0.0
    if shift <= 0.0 and i <= j:
        for k in range(j, p):
            new_root[k, j] *= math.exp(g)
        log_det, log_jacobian = 2.0 * g, 2.0 * g * (p - j)
    elif shift <= 0.0:
        for k in range(i, p):
            new_root[k, j] += g * root[k, i]
    _multiply(new_root, matrix)
    return log_det, log_jacobian


@inlined_kernel
def _fill_start(rng, scale, noisy, n, gram, mean, scatter, factor):
    """Fill the mean, scatter and its factor near those of the release; return ln|S|, or −∞ if S is not definite."""
    for j in range(1, noisy.shape[0]):
        for i in range(j + 1):
            gram[i, j] = gram[j, i] = noisy[i, j] + scale * rng.standard_normal()
    _fill_scatter(n, gram, mean, scatter)
    return _factor(scatter, factor)


@inlined_kernel
def _updated_scale(prior, n, mean, scatter, found):
    """Fill `found` with Λ₀ + S + κ₀n/(κ₀ + n)·ūūᵀ."""
    weight = prior[0] * n / (prior[0] + n)
    for i in range(mean.size):
        for j in range(mean.size):
            found[i, j] = scatter[i, j] + weight * mean[i] * mean[j]
        found[i, i] += prior[2]


@inlined_kernel
def _draw_parameters(rng, prior, n, mean, scatter, matrix, lower, mu, psi):
    """Draw (μ, Ψ) from the normal inverse-Wishart posterior given a statistic; from the prior if n and S are 0."""
    p = mean.size
    _updated_scale(prior, n, mean, scatter, matrix)
    _factor(matrix, lower)
    for i in range(p):  # Bartlett's factor A, in the lower triangle of `psi`
        psi[i, i] = math.sqrt(rng.chisquare(prior[1] + n - i))
        for j in range(i):
            psi[i, j] = rng.standard_normal()
    root = matrix
    for i in range(p):  # Ψ = F·Fᵀ with F = L·A⁻ᵀ: row i of F solves A·f = row i of L
        for j in range(p):
            root[i, j] = lower[i, j] if j <= i else 0.0
        _solve_lower(psi, root[i])
    _multiply(root, psi)
    shrink, spread = n / (prior[0] + n), 1.0 / math.sqrt(prior[0] + n)
    for i in range(p):
        mu[i] = shrink * mean[i]
    for k in range(p):
        g = rng.standard_normal()
        for i in range(p):
            mu[i] += spread * root[i, k] * g


@inlined_kernel
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


@inlined_kernel
def _log_statistic(prior, n, mean, scatter, log_det, scale_matrix, lower):
    """Return ln p(ū, S), with the parameters integrated out."""
    p = mean.size
    _updated_scale(prior, n, mean, scatter, scale_matrix)
    return 0.5 * (n - p - 2) * log_det - 0.5 * (prior[1] + n) * _factor(scale_matrix, lower)


@kernel
def run_normal_covariates(of_records, rng, noise, scale, noisy, n, prior, burn_in, thinning, draws):
    """Fill `draws` by a Metropolis chain on the statistic (ū, S) of normal records.

    An iteration has an additive proposal for all entries of G, and one for a single entry; and a proposal for ū and one
    for the Cholesky factor of S, by `_propose`. `draws` are of the regression of the n records if `of_records`.
    """
    m = noisy.shape[0]
    p = m - 1
    mean, scatter, factor = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    new_mean, new_scatter, new_factor = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    gram, new_gram, work, lower = np.empty((m, m)), np.empty((m, m)), np.empty((m, m)), np.zeros((p, p))
    matrix, mu, psi = np.empty((p, p)), np.empty(p), np.empty((p, p))
    log_det = _fill_start(rng, scale, noisy, n, gram, mean, scatter, factor)
    if log_det == -np.inf:  # the chain starts at the prior
        for i in range(p):
            mean[i] = 0.5 * rng.standard_normal()
            for j in range(p):
                scatter[i, j] = factor[i, j] = 0.0
            scatter[i, i] = n * prior[2] / (prior[1] + p) * math.exp(rng.standard_normal())
        log_det = _factor(scatter, factor)
    _fill_gram(n, mean, scatter, gram)
    log_p = _log_statistic(prior, n, mean, scatter, log_det, matrix, lower)
    log_p += _log_noise(noise, scale, noisy, gram, work)
    for step in range(burn_in + thinning * draws.shape[0]):
        for kind in range(4):
            width = 2.0 ** (1.0 - (_FINEST + 1.0) * rng.random())
            log_jacobian = 0.0
            if kind < 2:
                only_j = 1 + int(p * rng.random()) if kind == 1 else -1
                only_i = int((only_j + 1) * rng.random()) if kind == 1 else -1
                for j in range(m):
                    for i in range(j + 1):
                        new_gram[i, j] = gram[i, j]
                        if j > 0 and (kind == 0 or (i == only_i and j == only_j)):
                            new_gram[i, j] += width * scale * rng.standard_normal()
                        new_gram[j, i] = new_gram[i, j]
                _fill_scatter(n, new_gram, new_mean, new_scatter)
                new_log_det = _factor(new_scatter, new_factor)
                if new_log_det == -np.inf:
                    continue
            else:
                shift = 1.0 / math.sqrt(n) if kind == 2 else 0.0
                change, log_jacobian = _propose(rng, width, shift, mean, factor, new_mean, new_factor, new_scatter)
                new_log_det = log_det + change
                _fill_gram(n, new_mean, new_scatter, new_gram)
            proposed = _log_statistic(prior, n, new_mean, new_scatter, new_log_det, matrix, lower)
            proposed += _log_noise(noise, scale, noisy, new_gram, work)
            if math.log(rng.random()) < proposed - log_p + log_jacobian:
                log_p, log_det = proposed, new_log_det
                gram, new_gram, mean, new_mean = new_gram, gram, new_mean, mean
                scatter, new_scatter, factor, new_factor = new_scatter, scatter, new_factor, factor
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            kept = draws[(step - burn_in) // thinning]
            if of_records:
                _store(mean, scatter, lower, kept)
                kept[p] /= n
            else:
                _draw_parameters(rng, prior, n, mean, scatter, matrix, lower, mu, psi)
                _store(mu, psi, lower, kept)


@kernel
def augment_records(rng, noise, scale, noisy, n, prior, burn_in, thinning, draws):
    """Fill `draws` by a chain on all records, which are clamped to [−1, 1] in the statistic."""
    m = noisy.shape[0]
    p = m - 1
    mu, psi, root = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    records, z, old, g, u = np.zeros((n, p)), np.ones(m), np.ones(m), np.empty(p), np.empty(p)
    gram, new_gram, work, whole = np.zeros((m, m)), np.empty((m, m)), np.empty((m, m)), np.zeros((m, m))
    mean, scatter, matrix, lower = np.zeros(p), np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
    _draw_parameters(rng, prior, 0, mean, scatter, matrix, lower, mu, psi)
    log_p = -np.inf
    for step in range(burn_in + thinning * draws.shape[0] + 1):  # the first draws all records from the prior
        _factor(psi, root)
        first = step == 0
        whole.fill(0.0)
        for row in range(n):
            for i in range(p):
                g[i], u[i] = rng.standard_normal(), mu[i]
                for k in range(i + 1):
                    u[i] += root[i, k] * g[k]
                old[i + 1], z[i + 1] = min(max(records[row, i], -1.0), 1.0), min(max(u[i], -1.0), 1.0)
            for i in range(m):
                for j in range(m):
                    new_gram[i, j] = gram[i, j] + z[i] * z[j] - (0.0 if first else old[i] * old[j])
            proposed = 0.0 if first else _log_noise(noise, scale, noisy, new_gram, work)
            if first or math.log(rng.random()) < proposed - log_p:
                log_p = proposed
                gram, new_gram = new_gram, gram
                for i in range(p):
                    records[row, i] = u[i]
            for i in range(p):
                whole[0, i + 1] += records[row, i]
                for j in range(p):
                    whole[i + 1, j + 1] += records[row, i] * records[row, j]
        if first:
            log_p = _log_noise(noise, scale, noisy, gram, work)
        _fill_scatter(n, whole, mean, scatter)
        _draw_parameters(rng, prior, n, mean, scatter, matrix, lower, mu, psi)
        kept = step - 1 - burn_in
        if kept >= 0 and kept % thinning == thinning - 1:
            _store(mu, psi, lower, draws[kept // thinning])


@inlined_kernel
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


@inlined_kernel
def _widen(covariance, variance, total):
    """Fill `total` with the covariance after independent noise is added."""
    for a in range(variance.size):
        for b in range(variance.size):
            total[a, b] = covariance[a, b]
        total[a, a] += variance[a]


@inlined_kernel
def _log_normal(point, expected, covariance, lower, work):
    """Return the log density of a normal distribution, up to a constant."""
    log_det = _factor(covariance, lower)
    if log_det == -np.inf:
        return -np.inf
    for a in range(point.size):
        work[a] = point[a] - expected[a]
    return -0.5 * (log_det + _square(lower, work))


@inlined_kernel
def _log_records(power, root, weight, mean, mu, psi, lower, work):
    """Return −½·(power·ln|Ψ| + tr(Ψ⁻¹FFᵀ) + weight·‖mean − μ‖²), the norm that of Ψ⁻¹.

    This is ln p(ū, S | μ, Ψ) of n normal records, up to a function of the statistic, with power and weight n, and F the
    factor of S; and the log density of the prior with power ν + p + 2, weight κ, F = √λ·I and mean 0.
    """
    p = mu.size
    log_det = _factor(psi, lower)
    if log_det == -np.inf:
        return -np.inf
    for i in range(p):
        work[i] = mean[i] - mu[i]
    total = power * log_det + weight * _square(lower, work)
    for j in range(p):
        for i in range(p):
            work[i] = root[i, j]
        total += _square(lower, work)
    return -0.5 * total


@kernel
def run_normal_statistics(corrected, attempts, moves, rng, noise, scale, noisy, n, prior, burn_in, thinning, draws):
    """Fill `draws` by a chain in which the statistic t given (μ, Ψ) is normal with the moments of n records.

    An iteration begins with `moves` proposals for (μ, Ψ) given the release, with t integrated out. Then t is drawn
    given the parameters, which is a product of normal densities, up to `attempts` times until its scatter is definite;
    parameters from their conjugate posterior given t, corrected by Metropolis if `corrected`; and variances ω of normal
    noise, whose mixture is Laplace noise. The chain has the stated distribution if `corrected`, with one attempt:
    parameters are kept if the scatter is not definite.
    """
    m = noisy.shape[0]
    p = m - 1
    size = p * (p + 3) // 2
    first, second, y, variance = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), np.empty(size)
    a = 0
    for j in range(1, m):
        for i in range(j + 1):
            first[a], second[a] = (j - 1, -1) if i == 0 else (i - 1, j - 1)
            y[a] = noisy[i, j]
            variance[a] = 2.0 * scale * scale if noise == 0 else (scale * scale if i == j else 0.5 * scale * scale)
            a += 1
    expected, t, gap, long = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    covariance, total = np.empty((size, size)), np.empty((size, size))
    big, chol = np.zeros((size, size)), np.zeros((size, size))
    mu, psi, lower, work = np.zeros(p), np.zeros((p, p)), np.zeros((p, p)), np.empty(p)
    new_mu, new_psi, root, new_root = np.zeros(p), np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
    mean, scatter, scatter_root, matrix = np.zeros(p), np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
    gram, zero, prior_root = np.empty((m, m)), np.zeros(p), math.sqrt(prior[2]) * np.eye(p)
    is_near = _fill_start(rng, scale, noisy, n, gram, mean, scatter, scatter_root) > -np.inf
    if not is_near:  # the chain starts at the prior
        mean.fill(0.0)
        scatter.fill(0.0)
    _draw_parameters(rng, prior, n if is_near else 0, mean, scatter, matrix, lower, mu, psi)
    log_p = 0.0
    for step in range(burn_in + thinning * draws.shape[0]):
        if moves > 0:
            _factor(psi, root)
        for move in range(-1 if moves > 0 else 0, moves):  # −1 is the current state
            log_jacobian = 0.0
            if move >= 0:
                width = 2.0 ** (1.0 - (_FINEST + 1.0) * rng.random())
                shift = 1.0 if move % 2 == 0 else 0.0
                _, log_jacobian = _propose(rng, width, shift, mu, root, new_mu, new_root, new_psi)
            at_mu, at_psi = (new_mu, new_psi) if move >= 0 else (mu, psi)
            _fill_moments(n, at_mu, at_psi, first, second, expected, covariance)
            _widen(covariance, variance, total)
            proposed = _log_normal(y, expected, total, big, long)
            proposed += _log_records(prior[1] + p + 2.0, prior_root, prior[0], zero, at_mu, at_psi, lower, work)
            if move < 0 or math.log(rng.random()) < proposed - log_p + log_jacobian:
                log_p = proposed
                if move >= 0:
                    mu, new_mu, psi, new_psi, root, new_root = new_mu, mu, new_psi, psi, new_root, root
        _fill_moments(n, mu, psi, first, second, expected, covariance)
        _widen(covariance, variance, total)
        _factor(total, big)
        _factor(covariance, chol)
        possible = False
        for _ in range(attempts):
            for b in range(size):
                long[b], t[b] = rng.standard_normal(), expected[b]
                for c in range(b + 1):
                    t[b] += chol[b, c] * long[c]
            for b in range(size):
                gap[b] = y[b] - t[b] - math.sqrt(variance[b]) * rng.standard_normal()
            _solve_lower(big, gap)
            _solve_upper(big, gap)
            for b in range(size):
                for c in range(size):
                    t[b] += covariance[b, c] * gap[c]
                i, j = first[b], second[b]
                gram[i + 1, j + 1] = gram[j + 1, i + 1] = t[b]  # Σu has the second index −1
            _fill_scatter(n, gram, mean, scatter)
            possible = _factor(scatter, scatter_root) > -np.inf
            if possible:
                break
        if possible:
            _draw_parameters(rng, prior, n, mean, scatter, matrix, lower, new_mu, new_psi)
            ratio = 0.0
            if corrected:
                ratio = _log_records(n, scatter_root, n, mean, mu, psi, lower, work)
                ratio -= _log_normal(t, expected, covariance, big, long)
                _fill_moments(n, new_mu, new_psi, first, second, expected, covariance)
                ratio += _log_normal(t, expected, covariance, big, long)
                ratio -= _log_records(n, scatter_root, n, mean, new_mu, new_psi, lower, work)
            if math.log(rng.random()) < ratio:
                mu, new_mu, psi, new_psi = new_mu, mu, new_psi, psi
        for b in range(size if noise == 0 else 0):
            distance, middle = max(abs(y[b] - t[b]), 1e-12 * scale), 2.0 * scale * scale
            drawn = 1.0 / rng.wald(1.0 / (scale * distance), 1.0 / (scale * scale))
            variance[b] = min(max(drawn, 1e-20 * middle), 1e20 * middle)
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            _store(mu, psi, lower, draws[(step - burn_in) // thinning])

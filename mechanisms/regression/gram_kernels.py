"""Kernels of the chains of `mechanisms.regression.gram_samplers`, which defines their models and notation.

Matrices are full arrays, factors are lower triangular, and `prior` is an array of the numbers of the prior. The state
of a chain has the statistic and the parameters of n records,

    ū, S = F·Fᵀ    and    Ψ = L·Lᵀ, μ,    with    F = L·A,  ū = μ + L·z/√n,

where A is Bartlett's factor, A_jj² ~ χ²(n − 1 − j) and A_ij ~ N(0, 1) for i > j, and z ~ N(0, I). The *pivots* (A, z)
are independent of the parameters. Densities are of (ū, F, A, z). From (L, A) to (F, A), dF = Π A_jj^{p−j} dL, with j
from 0; and dS = 2^p·Π F_jj^{p−j} dF.

Draws are rows of (θ₀, θ, σ², τ²), where τ_j² is the residual variance of feature j given the other features.
"""

import math
from typing import NamedTuple

import numpy as np

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.jit import inlined_kernel, kernel

_WIDEST, _OCTAVES = 2.0, 8.0  # proposals have scales from 2^2 to 2^−6

_REDRAW_NOISE, _MOVE_ENTRIES, _MOVE_ENTRY, _MOVE_MEAN, _MOVE_FACTOR = 0, 1, 2, 3, 4
_PIVOTS_GIVEN_STATISTIC, _PIVOTS_GIVEN_PARAMETERS, _MOVE_PIVOT, _MOVE_COVARIANCE = 5, 6, 7, 8
_MIXTURE = np.array([0, 0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8])  # moves of normal-covariates, chosen uniformly


class NoisyGram(NamedTuple):
    """Release for the kernels."""

    noise: int  # number in `mechanisms.regression.gram_release.NOISE_CODES`
    scale: float
    noisy: Floats
    n: int


class _State(NamedTuple):
    """Statistic, pivots and parameters of n records; μ follows from them."""

    mean: Floats  # ū
    root: Floats  # F
    gram: Floats  # statistic G of (ū, S)
    z: Floats
    bartlett: Floats  # A
    lower: Floats  # L


@kernel
def _new_state(m):
    """Return an empty state for Gram matrices of m columns."""
    p = m - 1
    squares = np.zeros((3, p, p))
    return _State(np.zeros(p), squares[0], np.zeros((m, m)), np.zeros(p), squares[1], squares[2])


@inlined_kernel
def _copy_matrix(source, target):
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@inlined_kernel
def _copy_vector(source, target):
    for i in range(source.size):
        target[i] = source[i]


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


@kernel
def _log_noise(release, gram, residual):
    """Return the log density of the noise of a release given the Gram matrix, up to a constant."""
    noisy, scale = release.noisy, release.scale
    m = noisy.shape[0]
    total = 0.0
    if release.noise == 2:
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
            total += abs(z) if release.noise == 0 else (z * z if i == j else 2.0 * z * z)
    return -total / scale if release.noise == 0 else -total / (2.0 * scale * scale)


@inlined_kernel
def _draw_noise(rng, release, i, j):
    """Return the noise of one entry, which is Laplace or Gaussian."""
    if release.noise == 0:
        return release.scale * (rng.standard_exponential() - rng.standard_exponential())
    return release.scale * rng.standard_normal() * (1.0 if i == j else math.sqrt(0.5))


@kernel
def _fill_gram(n, mean, root, gram):
    """Fill `gram` with the statistic of n records with mean ū and scatter F·Fᵀ."""
    p = mean.size
    gram[0, 0] = n
    for i in range(p):
        gram[0, i + 1] = gram[i + 1, 0] = n * mean[i]
        for j in range(i + 1):
            value = n * mean[i] * mean[j]
            for k in range(j + 1):
                value += root[i, k] * root[j, k]
            gram[i + 1, j + 1] = gram[j + 1, i + 1] = value


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
def _fill_slopes(lower, slopes):
    """Fill the coefficients θ of the regression of the last column on the others, L_xxᵀ·θ = the last row of L."""
    d = slopes.size
    for i in range(d):
        slopes[i] = lower[d, i]
    _solve_upper(lower[:d, :d], slopes)


@kernel
def _store(mu, lower, out):
    """Fill `out` with (θ₀, θ, σ², τ²), where 1/τ_j² = (Ψ_xx⁻¹)_jj is the squared norm of column j of L_xx⁻¹."""
    d = mu.size - 1
    slopes, column = np.empty(d), np.empty(d)
    _fill_slopes(lower, slopes)
    out[0] = mu[d]
    for i in range(d):
        out[i + 1] = slopes[i]
        out[0] -= slopes[i] * mu[i]
    out[d + 1] = lower[d, d] ** 2
    for j in range(d):
        for i in range(d):
            column[i] = 1.0 if i == j else 0.0
        out[d + 2 + j] = 1.0 / _square(lower[:d, :d], column)


@kernel
def _log_prior(prior, mu, lower):
    """Return the log density of (μ, L) under `RegressionPrior`, up to a constant.

    Ψ_xx = diag(s)·R·diag(s), Ψ_xy = Ψ_xx·θ and Ψ_yy = σ² + θᵀΨ_xxθ give dΨ = 2^p·σ·|Ψ_xx|·Π s_j^d dσ dθ ds dR, and
    dΨ = 2^p·Π L_jj^{p−j} dL, with |Ψ_xx| = Π_{j<d} L_jj² and σ = L_dd: dσ dθ ds dR = Π_{j<d} L_jj^{d−1−j}·s_j^{−d} dL.
    The standardised slopes θ_j·s_j take a factor s_j each.
    """
    d = mu.size - 1
    slopes = np.empty(d)
    _fill_slopes(lower, slopes)
    mean_sd, slope_scale, spread = prior[0], prior[1], prior[2]
    total, tails = 0.0, 2.0 + (lower[d, d] / spread) ** 2  # one logarithm for all tails
    for j in range(d):
        total += (d - 1 - j) * math.log(lower[j, j])
        variance = 0.0
        for k in range(j + 1):
            variance += lower[j, k] * lower[j, k]
        total -= 0.5 * (d - 1) * math.log(variance)
        tails *= (2.0 + variance / spread**2) * (2.0 + variance * (slopes[j] / slope_scale) ** 2)
    for value in mu:
        total -= 0.5 * (value / mean_sd) ** 2
    return total - 1.5 * math.log(tails)


@inlined_kernel
def _fill_mean(n, state, mu):
    """Fill μ = ū − L·z/√n."""
    for i in range(mu.size):
        mu[i] = state.mean[i]
        for k in range(i + 1):
            mu[i] -= state.lower[i, k] * state.z[k] / math.sqrt(n)


@inlined_kernel
def _fill_parameters(n, state, mu):
    """Fill L, which solves L·A = F, and μ."""
    for i in range(mu.size):
        for j in range(i, -1, -1):
            value = state.root[i, j]
            for k in range(j + 1, i + 1):
                value -= state.lower[i, k] * state.bartlett[k, j]
            state.lower[i, j] = value / state.bartlett[j, j]
    _fill_mean(n, state, mu)


@kernel
def _fill_statistic(n, mu, state):
    """Fill ū = μ + L·z/√n and F = L·A."""
    for i in range(mu.size):
        state.mean[i] = mu[i]
        for j in range(i + 1):
            state.mean[i] += state.lower[i, j] * state.z[j] / math.sqrt(n)
            value = 0.0
            for k in range(j, i + 1):
                value += state.lower[i, k] * state.bartlett[k, j]
            state.root[i, j] = value


@kernel
def _fill_pivots(n, mu, state):
    """Fill A = L⁻¹·F and z = √n·L⁻¹(ū − μ)."""
    p = mu.size
    for i in range(p):
        state.z[i] = math.sqrt(n) * (state.mean[i] - mu[i])
    _solve_lower(state.lower, state.z)
    for j in range(p):
        for i in range(j, p):
            value = state.root[i, j]
            for k in range(j, i):
                value -= state.lower[i, k] * state.bartlett[k, j]
            state.bartlett[i, j] = value / state.lower[i, i]


@kernel
def _draw_pivots(rng, n, state):
    """Draw (A, z) from their distribution."""
    for i in range(state.z.size):
        state.z[i] = rng.standard_normal()
        state.bartlett[i, i] = math.sqrt(rng.chisquare(n - 1 - i))
        for j in range(i):
            state.bartlett[i, j] = rng.standard_normal()


@kernel
def _log_pivots(n, state):
    """Return the log density of (A, z), up to a constant."""
    total = 0.0
    for i in range(state.z.size):
        total += (n - 2 - i) * math.log(state.bartlett[i, i]) - 0.5 * state.z[i] * state.z[i]
        for j in range(i + 1):
            total -= 0.5 * state.bartlett[i, j] * state.bartlett[i, j]
    return total


@kernel
def _log_model(n, prior, state, mu):
    """Fill L and μ, and return the log density of (ū, F, A, z): that of (μ, L, A, z) over Π A_jj^{p−j}."""
    p = mu.size
    _fill_parameters(n, state, mu)
    total = _log_pivots(n, state)
    for j in range(p):
        total -= (p - j) * math.log(state.bartlett[j, j])
    return total + _log_prior(prior, mu, state.lower)


@inlined_kernel
def _draw_width(rng):
    """Draw the scale of a proposal."""
    return 2.0 ** (_WIDEST - _OCTAVES * rng.random())


@inlined_kernel
def _move_mean(rng, root, mean):
    """Add a multiple of a column of a factor to the mean, or a number to one of its entries."""
    p = mean.size
    g, j = _draw_width(rng) * rng.standard_normal(), int(p * rng.random())
    if rng.random() < 0.5:
        mean[j] += g
    else:
        for k in range(j, p):
            mean[k] += g * root[k, j]


@kernel
def _move_factor(rng, root):
    """Multiply a row or a column of a factor by e^g, add another column, or change an entry; return ln of the Jacobian.

    A row is that of a record's entry in another unit, which keeps correlations and standardised slopes. Entries are
    multiplied too, because slopes have heavy tails.
    """
    p = root.shape[0]
    g, i, j = _draw_width(rng) * rng.standard_normal(), int(p * rng.random()), int(p * rng.random())
    if rng.random() < 0.25:
        for k in range(i + 1):
            root[i, k] *= math.exp(g)
        return g * (i + 1)
    if i <= j:
        for k in range(j, p):
            root[k, j] *= math.exp(g)
        return g * (p - j)
    kind = rng.random()
    if kind < 0.5:
        for k in range(i, p):
            root[k, j] += g * root[k, i]
        return 0.0
    if kind < 0.75:
        root[i, j] += g * root[j, j]
        return 0.0
    root[i, j] *= math.exp(g)
    return g


@kernel
def _move_entries(rng, kind, release, state, new, scatter):
    """Propose other entries of G at fixed pivots: with the noise of some redrawn, or by steps of all, or of one.

    Return −ln of the Jacobian from F to S, or −∞ if S is not definite. Noise that is redrawn has its own density as the
    density of the proposal.
    """
    p = state.z.size
    width, share = release.scale * _draw_width(rng), 2.0 ** -max(0.0, 8.0 * rng.random() - 2.0)
    only_j = 1 + int(p * rng.random())
    only_i = int((only_j + 1) * rng.random())
    for j in range(1, p + 1):
        for i in range(j + 1):
            is_only = i == only_i and j == only_j
            value = state.gram[i, j]
            if kind == _REDRAW_NOISE:
                if is_only or rng.random() < share:
                    value = release.noisy[i, j] - _draw_noise(rng, release, i, j)
            elif kind == _MOVE_ENTRIES or is_only:
                value += width * rng.standard_normal()
            new.gram[i, j] = new.gram[j, i] = value
    _fill_scatter(release.n, new.gram, new.mean, scatter)
    if _factor(scatter, new.root) == -np.inf:
        return -np.inf
    log_jacobian = 0.0
    for j in range(p):
        log_jacobian -= (p - j) * math.log(new.root[j, j] / state.root[j, j])
    return log_jacobian


@inlined_kernel
def _move_pivot(rng, state):
    """Change an entry of z or A at a fixed statistic; return ln of the Jacobian."""
    p = state.z.size
    g, i, j = _draw_width(rng) * rng.standard_normal(), int(p * rng.random()), int((p + 1) * rng.random())
    if j == p:
        state.z[i] += g
    elif j < i:
        state.bartlett[i, j] += g
    else:
        state.bartlett[i, i] *= math.exp(g)
        return g
    return 0.0


@kernel
def _start(rng, release, state, mu):
    """Fill a state whose statistic is near the release; pivots of S that are not positive are drawn from the noise."""
    n, p = release.n, mu.size
    root, scatter = state.root, np.empty((p, p))
    for j in range(1, p + 1):
        for i in range(j + 1):
            state.gram[i, j] = state.gram[j, i] = release.noisy[i, j] + release.scale * rng.standard_normal()
    _fill_scatter(n, state.gram, state.mean, scatter)
    for j in range(p):
        pivot = scatter[j, j]
        for k in range(j):
            pivot -= root[j, k] * root[j, k]
        is_definite = pivot > 1e-9 * release.scale
        root[j, j] = math.sqrt(pivot if is_definite else release.scale * math.exp(2.0 * rng.standard_normal()))
        for i in range(j + 1, p):
            value = scatter[i, j]
            for k in range(j):
                value -= root[i, k] * root[j, k]
            root[i, j] = value / root[j, j] if is_definite else root[j, j] * rng.standard_normal()
    _fill_gram(n, state.mean, root, state.gram)
    _draw_pivots(rng, n, state)
    _fill_parameters(n, state, mu)


@kernel
def _move_state(rng, kind, release, prior, state, new, log_p):
    """Fill `new` with the proposal of a move; return the log ratio of acceptance, and the log densities of `new`.

    Densities `log_p` are of the state and of the noise. All moves but those of the pivots keep the pivots: parameters
    move with the statistic.
    """
    n, p = release.n, state.z.size
    mu, work = np.empty(p), np.empty(state.gram.shape)
    _copy_vector(state.mean, new.mean)
    _copy_vector(state.z, new.z)
    _copy_matrix(state.root, new.root)
    _copy_matrix(state.bartlett, new.bartlett)
    _copy_matrix(state.gram, new.gram)
    log_jacobian, log_noise = 0.0, log_p[1]
    if kind <= _MOVE_ENTRY:
        log_jacobian = _move_entries(rng, kind, release, state, new, work[1:, 1:])
        if log_jacobian == -np.inf:
            return log_jacobian, log_p
    elif kind == _MOVE_MEAN:
        _move_mean(rng, new.root, new.mean)
    elif kind == _MOVE_FACTOR:
        log_jacobian = _move_factor(rng, new.root)
    elif kind == _MOVE_COVARIANCE:
        _fill_mean(n, state, mu)
        _copy_matrix(state.lower, new.lower)
        log_jacobian = _move_factor(rng, new.lower)
        _fill_statistic(n, mu, new)
    elif kind == _MOVE_PIVOT:
        log_jacobian = _move_pivot(rng, new)
    else:
        _draw_pivots(rng, n, new)
        if kind == _PIVOTS_GIVEN_PARAMETERS:
            _fill_mean(n, state, mu)
            _copy_matrix(state.lower, new.lower)
            _fill_statistic(n, mu, new)
        else:
            log_jacobian = _log_pivots(n, state) - _log_pivots(n, new)
    if kind not in (_PIVOTS_GIVEN_STATISTIC, _MOVE_PIVOT):
        if kind > _MOVE_ENTRY:
            _fill_gram(n, new.mean, new.root, new.gram)
        log_noise = _log_noise(release, new.gram, work)
    log_model = _log_model(n, prior, new, mu)
    if kind == _PIVOTS_GIVEN_PARAMETERS:
        return log_noise - log_p[1], (log_model, log_noise)
    log_ratio = log_model - log_p[0] + log_jacobian
    if kind != _REDRAW_NOISE:
        log_ratio += log_noise - log_p[1]
    return log_ratio, (log_model, log_noise)


@kernel
def run_normal_covariates(of_records, ignores_noise, rng, release, prior, burn_in, thinning, draws):
    """Fill `draws` by a Metropolis chain on the statistic (ū, S) of normal records and their moments.

    An iteration has 2p moves. `draws` are of the regression of the n records if `of_records`. If the chain ignores the
    noise, the statistic is the release, and only pivots move.
    """
    n, p = release.n, release.noisy.shape[0] - 1
    state, new, mu = _new_state(p + 1), _new_state(p + 1), np.empty(p)
    _start(rng, release, state, mu)
    log_p = _log_model(n, prior, state, mu), _log_noise(release, state.gram, new.gram)
    for step in range(burn_in + thinning * draws.shape[0]):
        for _ in range(2 * p):
            if ignores_noise:
                kind = _PIVOTS_GIVEN_STATISTIC if rng.random() < 0.5 else _MOVE_PIVOT
            else:
                kind = _MIXTURE[int(_MIXTURE.size * rng.random())]
                if kind == _REDRAW_NOISE and release.noise == 2:
                    kind = _MOVE_ENTRIES
            log_ratio, proposed = _move_state(rng, kind, release, prior, state, new, log_p)
            if math.log(rng.random()) < log_ratio:
                log_p = proposed
                state, new = new, state
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            kept = draws[(step - burn_in) // thinning]
            if of_records:
                _store(state.mean, state.root, kept)
                for i in range(p, kept.size):
                    kept[i] /= n
            else:
                _fill_mean(n, state, mu)
                _store(mu, state.lower, kept)


@kernel
def _redraw_records(rng, first, release, mu, lower, records, gram, new_gram, work):
    """Redraw each record given the others, or all from the parameters if `first`; return G, which may be `new_gram`."""
    m, p = gram.shape[0], mu.size
    u, z, old = np.empty(p), np.ones(m), np.ones(m)
    log_p = _log_noise(release, gram, work)
    for row in range(records.shape[0]):
        for i in range(p):
            u[i] = rng.standard_normal()
        for i in range(p - 1, -1, -1):
            value = mu[i]
            for k in range(i + 1):
                value += lower[i, k] * u[k]
            u[i] = value
            old[i + 1], z[i + 1] = min(max(records[row, i], -1.0), 1.0), min(max(value, -1.0), 1.0)
        for i in range(m):
            for j in range(m):
                new_gram[i, j] = gram[i, j] + z[i] * z[j] - (0.0 if first else old[i] * old[j])
        proposed = 0.0 if first else _log_noise(release, new_gram, work)
        if first or math.log(rng.random()) < proposed - log_p:
            log_p = proposed
            gram, new_gram = new_gram, gram
            _copy_vector(u, records[row])
    return gram, new_gram


@kernel
def _sum_records(records, is_clamped, gram):
    """Fill `gram` with the statistic of records."""
    m = gram.shape[0]
    z = np.ones(m)
    for i in range(m):
        for j in range(m):
            gram[i, j] = 0.0
    for row in range(records.shape[0]):
        for i in range(1, m):
            z[i] = min(max(records[row, i - 1], -1.0), 1.0) if is_clamped else records[row, i - 1]
        for i in range(m):
            for j in range(m):
                gram[i, j] += z[i] * z[j]


@kernel
def _shift_records(mu, lower, new_mu, new_lower, records, new_records):
    """Fill records that have the standardised values L⁻¹(u − μ) of others, with other parameters."""
    p = mu.size
    g = np.empty(p)
    for row in range(records.shape[0]):
        for i in range(p):
            g[i] = records[row, i] - mu[i]
        _solve_lower(lower, g)
        for i in range(p):
            new_records[row, i] = new_mu[i]
            for k in range(i + 1):
                new_records[row, i] += new_lower[i, k] * g[k]


@kernel
def augment_records(rng, release, prior, burn_in, thinning, draws):
    """Fill `draws` by a chain on all records, which are clamped to [−1, 1] in the statistic.

    An iteration redraws each record given the parameters, moves the parameters 2p times given the records, and 4p times
    with the records, whose standardised values are kept.
    """
    n, m = release.n, release.noisy.shape[0]
    p = m - 1
    records, new_records = np.zeros((n, p)), np.zeros((n, p))
    gram, new_gram, work, scatter = np.zeros((m, m)), np.zeros((m, m)), np.zeros((m, m)), np.zeros((p, p))
    state, new, mu, new_mu, new_lower = _new_state(m), _new_state(m), np.zeros(p), np.zeros(p), np.zeros((p, p))
    _start(rng, release, state, mu)
    gram, new_gram = _redraw_records(rng, True, release, mu, state.lower, records, gram, new_gram, work)
    for step in range(burn_in + thinning * draws.shape[0]):
        gram, new_gram = _redraw_records(rng, False, release, mu, state.lower, records, gram, new_gram, work)
        _sum_records(records, False, state.gram)
        _fill_scatter(n, state.gram, state.mean, scatter)
        _factor(scatter, state.root)
        _fill_pivots(n, mu, state)
        log_p = _log_model(n, prior, state, mu), 0.0
        for _ in range(2 * p):
            kind = _PIVOTS_GIVEN_STATISTIC if rng.random() < 0.5 else _MOVE_PIVOT
            log_ratio, proposed = _move_state(rng, kind, release, prior, state, new, log_p)
            if math.log(rng.random()) < log_ratio:
                log_p = proposed
                state, new = new, state
        _fill_mean(n, state, mu)
        log_prior, log_noise = _log_prior(prior, mu, state.lower), _log_noise(release, gram, work)
        for _ in range(4 * p):
            _copy_vector(mu, new_mu)
            _copy_matrix(state.lower, new_lower)
            log_jacobian = 0.0
            if rng.random() < 0.4:
                _move_mean(rng, new_lower, new_mu)
            else:
                log_jacobian = _move_factor(rng, new_lower)
            _shift_records(mu, state.lower, new_mu, new_lower, records, new_records)
            _sum_records(new_records, True, new_gram)
            proposed_prior, proposed_noise = _log_prior(prior, new_mu, new_lower), _log_noise(release, new_gram, work)
            change = proposed_prior + proposed_noise - log_prior - log_noise
            if math.log(rng.random()) < change + log_jacobian:
                log_prior, log_noise = proposed_prior, proposed_noise
                mu, new_mu = new_mu, mu
                records, new_records = new_records, records
                gram, new_gram = new_gram, gram
                _copy_matrix(new_lower, state.lower)
        kept = step - burn_in
        if kept >= 0 and kept % thinning == thinning - 1:
            _store(mu, state.lower, draws[kept // thinning])


class _Normal(NamedTuple):
    """Normal model of the statistics Σuᵢ (second index −1) and Σuᵢuⱼ, and their normal noise."""

    first: Integers
    second: Integers
    noisy: Floats
    variance: Floats  # of the noise
    expected: Floats
    covariance: Floats
    total: Floats  # covariance with noise
    roots: Floats  # factors of the covariance and of the total
    t: Floats  # statistics


@kernel
def _new_normal(release):
    """Return the model of a release."""
    m, scale = release.noisy.shape[0], release.scale
    size = (m - 1) * (m + 2) // 2
    index, values, squares = np.empty((2, size), np.int64), np.empty((4, size)), np.zeros((2, size, size))
    model = _Normal(
        index[0],
        index[1],
        values[0],
        values[1],
        values[2],
        squares[0],
        squares[1],
        np.zeros((2, size, size)),
        values[3],
    )
    a = 0
    for j in range(1, m):
        for i in range(j + 1):
            model.first[a], model.second[a] = (j - 1, -1) if i == 0 else (i - 1, j - 1)
            model.noisy[a] = release.noisy[i, j]
            model.variance[a] = scale * scale * (2.0 if release.noise == 0 else 1.0 if i == j else 0.5)
            a += 1
    return model


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
def _log_normal(point, expected, covariance, lower):
    """Fill the factor of a covariance, and return the log density of a normal distribution, up to a constant."""
    log_det = _factor(covariance, lower)
    if log_det == -np.inf:
        return -np.inf
    gap = point - expected
    return -0.5 * (log_det + _square(lower, gap))


@kernel
def _log_release(n, model, mu, psi):
    """Fill the moments of the statistic, and return the log density of the release given the parameters."""
    _fill_moments(n, mu, psi, model.first, model.second, model.expected, model.covariance)
    _copy_matrix(model.covariance, model.total)
    for a in range(model.variance.size):
        model.total[a, a] += model.variance[a]
    return _log_normal(model.noisy, model.expected, model.total, model.roots[1])


@kernel
def _draw_statistic(rng, n, model, mu, psi):
    """Draw the statistic given the parameters and the release: a product of normal densities."""
    _log_release(n, model, mu, psi)
    _factor(model.covariance, model.roots[0])
    size = model.t.size
    g, gap = np.empty(size), np.empty(size)
    for b in range(size):
        g[b], model.t[b] = rng.standard_normal(), model.expected[b]
        for c in range(b + 1):
            model.t[b] += model.roots[0, b, c] * g[c]
    for b in range(size):
        gap[b] = model.noisy[b] - model.t[b] - math.sqrt(model.variance[b]) * rng.standard_normal()
    _solve_lower(model.roots[1], gap)
    _solve_upper(model.roots[1], gap)
    for b in range(size):
        for c in range(size):
            model.t[b] += model.covariance[b, c] * gap[c]


@kernel
def _draw_variances(rng, release, model):
    """Draw the variances of normal noise, whose mixture is Laplace noise, given the statistic."""
    if release.noise != 0:
        return
    scale, middle = release.scale, 2.0 * release.scale * release.scale
    for b in range(model.t.size):
        distance = max(abs(model.noisy[b] - model.t[b]), 1e-12 * scale)
        drawn = 1.0 / rng.wald(1.0 / (scale * distance), 1.0 / (scale * scale))
        model.variance[b] = min(max(drawn, 1e-20 * middle), 1e20 * middle)


@kernel
def _log_conjugate(power, weight, root, mean, mu, lower):
    """Return −½·(power·ln|Ψ| + tr(Ψ⁻¹FFᵀ) + weight·‖mean − μ‖²), the norm that of Ψ⁻¹.

    This is ln p(ū, S | μ, Ψ) of n normal records, up to a function of the statistic, with power and weight n, and F the
    factor of S; and the log density of (μ, Ψ) under `ConjugatePrior` with power ν + p + 2, weight κ, F = √λ·I, mean 0.
    """
    p = mu.size
    work = mean - mu
    total = weight * _square(lower, work)
    for j in range(p):
        total += 2.0 * power * math.log(lower[j, j])
        for i in range(p):
            work[i] = root[i, j]
        total += _square(lower, work)
    return -0.5 * total


@kernel
def _log_parameters(conjugate, prior, mu, lower):
    """Return the log density of (μ, L) under the conjugate prior or the independent one."""
    if not conjugate:
        return _log_prior(prior, mu, lower)
    p = mu.size
    total = _log_conjugate(prior[1] + p + 2.0, prior[0], math.sqrt(prior[2]) * np.eye(p), np.zeros(p), mu, lower)
    for j in range(p):
        total += (p - j) * math.log(lower[j, j])
    return total


@kernel
def _move_parameters(rng, n_moves, conjugate, n, prior, model, mu, lower):
    """Move (μ, L) in place given the release, with the statistic integrated out."""
    p = mu.size
    new_mu, new_lower, psi = np.empty(p), np.zeros((p, p)), np.empty((p, p))
    log_p = -np.inf
    for move in range(n_moves + 1):  # the first is the current state
        _copy_vector(mu, new_mu)
        _copy_matrix(lower, new_lower)
        log_jacobian = 0.0
        if move > 0 and rng.random() < 0.4:
            _move_mean(rng, new_lower, new_mu)
        elif move > 0:
            log_jacobian = _move_factor(rng, new_lower)
        _multiply(new_lower, psi)
        proposed = _log_release(n, model, new_mu, psi) + _log_parameters(conjugate, prior, new_mu, new_lower)
        if move == 0 or math.log(rng.random()) < proposed - log_p + log_jacobian:
            log_p = proposed
            _copy_vector(new_mu, mu)
            _copy_matrix(new_lower, lower)


@kernel
def run_noise_aware(rng, release, prior, burn_in, thinning, draws):
    """Fill `draws` by a chain in which the statistic given (μ, Ψ) is normal with the moments of n records.

    An iteration has 4p moves of the parameters given the release and the variances of its noise. Then the statistic
    is drawn given the parameters, and the variances given the statistic.
    """
    n, p = release.n, release.noisy.shape[0] - 1
    state, mu, psi, model = _new_state(p + 1), np.empty(p), np.empty((p, p)), _new_normal(release)
    _start(rng, release, state, mu)
    for step in range(burn_in + thinning * draws.shape[0]):
        _move_parameters(rng, 4 * p, False, n, prior, model, mu, state.lower)
        if release.noise == 0:
            _multiply(state.lower, psi)
            _draw_statistic(rng, n, model, mu, psi)
            _draw_variances(rng, release, model)
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            _store(mu, state.lower, draws[(step - burn_in) // thinning])


@kernel
def _draw_conjugate(rng, prior, n, mean, scatter, mu, lower):
    """Draw (μ, L) from the normal inverse-Wishart posterior given a statistic; from the prior if n, ū and S are 0."""
    p, kappa = mean.size, prior[0]
    matrix, bartlett, psi = np.empty((p, p)), np.zeros((p, p)), np.empty((p, p))
    for i in range(p):
        for j in range(p):
            matrix[i, j] = scatter[i, j] + kappa * n / (kappa + n) * mean[i] * mean[j]
        matrix[i, i] += prior[2]
    root = np.zeros((p, p))
    _factor(matrix, root)
    for i in range(p):
        bartlett[i, i] = math.sqrt(rng.chisquare(prior[1] + n - i))
        for j in range(i):
            bartlett[i, j] = rng.standard_normal()
    for i in range(p):  # Ψ = B·Bᵀ with B = F·A⁻ᵀ: row i of B solves A·b = row i of F
        _solve_lower(bartlett, root[i])
    _multiply(root, psi)
    _factor(psi, lower)
    for i in range(p):
        mu[i] = n / (kappa + n) * mean[i]
    for k in range(p):
        g = rng.standard_normal() / math.sqrt(kappa + n)
        for i in range(p):
            mu[i] += lower[i, k] * g


@kernel
def _log_correction(n, model, mean, root, mu, lower, new_mu, new_lower):
    """Return ln of the ratio of acceptance of a conjugate draw given a normal statistic."""
    p = mu.size
    psi = np.empty((p, p))
    ratio = _log_conjugate(n, n, root, mean, mu, lower) - _log_conjugate(n, n, root, mean, new_mu, new_lower)
    for sign in (-1.0, 1.0):
        at_mu, at_lower = (new_mu, new_lower) if sign > 0.0 else (mu, lower)
        _multiply(at_lower, psi)
        _fill_moments(n, at_mu, psi, model.first, model.second, model.expected, model.covariance)
        ratio += sign * _log_normal(model.t, model.expected, model.covariance, model.roots[0])
    return ratio


@kernel
def run_conjugate_gibbs(corrected, attempts, n_moves, rng, release, prior, burn_in, thinning, draws):
    """Fill `draws` by the published sampler, with its conjugate prior, and variants of it.

    An iteration has `n_moves` moves of the parameters given the release. Then the statistic is drawn given the
    parameters, up to `attempts` times until its scatter is definite; parameters from their conjugate posterior given
    the statistic, corrected by Metropolis if `corrected`; and the variances of the noise.
    """
    n, m = release.n, release.noisy.shape[0]
    p = m - 1
    model, state, psi, scatter = _new_normal(release), _new_state(m), np.empty((p, p)), np.zeros((p, p))
    mu, new_mu, lower, new_lower = np.zeros(p), np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    _start(rng, release, state, new_mu)
    _multiply(state.root, scatter)
    _draw_conjugate(rng, prior, n, state.mean, scatter, mu, lower)
    for step in range(burn_in + thinning * draws.shape[0]):
        if n_moves > 0:
            _move_parameters(rng, n_moves, True, n, prior, model, mu, lower)
        _multiply(lower, psi)
        is_definite = False
        for _ in range(attempts):
            _draw_statistic(rng, n, model, mu, psi)
            for b in range(model.t.size):
                i, j = model.first[b] + 1, model.second[b] + 1
                state.gram[i, j] = state.gram[j, i] = model.t[b]
            _fill_scatter(n, state.gram, state.mean, scatter)
            is_definite = _factor(scatter, state.root) > -np.inf
            if is_definite:
                break
        if is_definite:
            _draw_conjugate(rng, prior, n, state.mean, scatter, new_mu, new_lower)
            ratio = 0.0
            if corrected:
                ratio = _log_correction(n, model, state.mean, state.root, mu, lower, new_mu, new_lower)
            if math.log(rng.random()) < ratio:
                mu, new_mu = new_mu, mu
                lower, new_lower = new_lower, lower
        _draw_variances(rng, release, model)
        if step >= burn_in and (step - burn_in) % thinning == thinning - 1:
            _store(mu, lower, draws[(step - burn_in) // thinning])

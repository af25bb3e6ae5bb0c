"""Exact draws of K-norm noise on symmetric matrices, with ‖M‖_K = max(tr M₊, tr M₋).

The density ∝ exp(−‖M‖_K) has a radius Gamma(dim + 1), dim = m(m+1)/2, times a uniform point of the unit ball. The ball
is invariant under rotations: its eigenvectors are uniform, and its eigenvalues a₁, …, a_k > 0 and −b₁, …, −b_l < 0, k +
l = m, have density

    ∝ C(m, k) · Π|aᵢ − aⱼ| · Π|bᵢ − bⱼ| · Π(aᵢ + bⱼ),   Σa ≤ 1, Σb ≤ 1.

*Rejection.* With A = Σa and B = Σb, the last product is at most (A/k + B/l)^{kl}, by the inequality of means. Under
this envelope k has explicit probabilities; (A, B) is a binomial mixture of powers of uniform variables; and a/A and b/B
are the eigenvalues of Wishart matrices with k + 1 and l + 1 degrees of freedom, divided by their traces. A proposal is
accepted with probability Π(aᵢ + bⱼ)/(A/k + B/l)^{kl}.

References
----------
Hardt & Talwar, "On the geometry of differential privacy", STOC 2010, section 4. Selberg's integral gives
∫Π|aᵢ − aⱼ|·e^{−Σa} da = Π_{j<k} Γ(1 + j/2)·Γ(1 + (j+1)/2)/Γ(3/2).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import kernel


def draw_k_norm(rng: np.random.Generator, m: int, size: int) -> Floats:
    """Draw matrices with density ∝ exp(−‖M‖_K), shape (size, m, m)."""
    values = np.empty((size, m))
    _draw_eigenvalues(rng, *_envelope(m), values)
    radius = rng.standard_gamma(m * (m + 1) / 2 + 1, size)
    q, r = np.linalg.qr(rng.normal(size=(size, m, m)))
    q *= np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
    drawn = np.einsum("sij,sj,skj->sik", q, values * radius[:, None], q)
    return (drawn + np.swapaxes(drawn, 1, 2)) / 2.0


@lru_cache  # draws of one size share it
def _envelope(m: int) -> tuple[Floats, Floats]:
    """Return cumulative probabilities of k, shape (m + 1,), and of the binomial terms given k, shape (m + 1, ·)."""
    log_weights, terms = np.empty(m + 1), np.ones((m + 1, (m * m) // 4 + 1))
    for k in range(m + 1):
        n_cross = k * (m - k)
        t = np.arange(n_cross + 1)
        d_a, d_b = k * (k + 1) / 2, (m - k) * (m - k + 1) / 2
        logs = special.gammaln(n_cross + 1) - special.gammaln(t + 1) - special.gammaln(n_cross - t + 1)
        logs = logs - t * math.log(max(k, 1)) - (n_cross - t) * math.log(max(m - k, 1))
        logs = logs - (np.log(d_a + t) if k else 0.0) - (np.log(d_b + n_cross - t) if k < m else 0.0)
        terms[k, : n_cross + 1] = np.cumsum(special.softmax(logs))
        log_weights[k] = math.log(math.comb(m, k)) + special.logsumexp(logs) + _log_shape(k) + _log_shape(m - k)
    return np.cumsum(special.softmax(log_weights)), terms


def _log_shape(k: int) -> float:
    """Return the log of the integral of Π|aᵢ − aⱼ| over Σa = 1, where da = A^{D−1} dA times it, D = k(k+1)/2."""
    j = np.arange(k)
    selberg = special.gammaln(1 + j / 2) + special.gammaln(1 + (j + 1) / 2) - special.gammaln(1.5)
    return float(selberg.sum() - special.gammaln(k * (k + 1) / 2)) if k else 0.0


@kernel
def _draw_eigenvalues(rng, sizes, terms, values):
    m = values.shape[1]
    for row in range(values.shape[0]):
        while True:
            k = min(np.searchsorted(sizes, rng.random()), m)
            n_cross = k * (m - k)
            t = min(np.searchsorted(terms[k, : n_cross + 1], rng.random()), n_cross)
            a_sum = rng.random() ** (1.0 / (k * (k + 1) / 2 + t)) if k > 0 else 0.0
            b_sum = rng.random() ** (1.0 / ((m - k) * (m - k + 1) / 2 + n_cross - t)) if k < m else 0.0
            for side in range(2):
                size = k if side == 0 else m - k
                if size == 0:
                    continue
                g = rng.normal(0.0, 1.0, (size, size + 1))
                found = np.linalg.eigvalsh(g @ g.T)
                total = found.sum()
                for i in range(size):
                    values[row, (0 if side == 0 else k) + i] = found[i] / total * (a_sum if side == 0 else -b_sum)
            accept = 0.0
            if n_cross > 0:
                mean = a_sum / k + b_sum / (m - k)
                for i in range(k):
                    for j in range(k, m):
                        accept += np.log((values[row, i] - values[row, j]) / mean)
            if np.log(rng.random()) <= accept:
                break

"""One-posterior-sample (OPS) mechanism for the binomial model: release of draws from a tempered posterior.

A draw of θ in [a₀, 1 − a₀], a₀ = 0.1, has a density ∝ θ^(a−1)·(1 − θ)^(b−1) with

    `ops`              a = 1 + ρ(α + s − 1),  b = 1 + ρ(β + n − s − 1):  (prior × likelihood)^ρ,
    `ops-likelihood`   a = α + ρs,            b = β + ρ(n − s):          prior × likelihood^ρ.

**Privacy of one draw.** Replacing a record changes s by at most one. With the normalising constant Z_s,

    ln p_{s+1}(θ) − ln p_s(θ) = ρ·ln(θ/(1−θ)) − ln(Z_{s+1}/Z_s),

for both forms. The first term covers [−ρL, ρL], L = ln((1−a₀)/a₀). The second is the logarithm of the mean of
exp(first term) under p_s and lies in the same interval. So a draw is (2ρL)-DP, and ε_draw-DP needs
ρ = min(1, ε_draw/(2L)); ρ = 1 is the posterior itself. The loss between the neighbours s and s + 1 *equals*
ρL + |ln(Z_{s+1}/Z_s)|. The mean of exp(first term) grows with s, because p_s moves to the right. The largest loss is
therefore at s = 0 or s = n − 1, and `loss` evaluates it in closed form.

**100 draws** with ε/100 each are independent given s. Their joint density is a product, so their log ratios add up and
the draws are jointly ε-DP. Because all draws may lie at the same θ, their joint loss is exactly 100 times that of one
draw.

References
----------
P4, section 4.
Foulds, Geumlek, Welling & Chaudhuri, "On the theory and practice of privacy-preserving Bayesian data analysis", UAI
2016, section 4: the mechanism.
Wang, Fienberg & Smola, "Privacy for free: posterior sampling and stochastic gradient Monte Carlo", ICML 2015: OPS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats, real_array
from mechanisms.core.jit import kernel
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import validate_epsilon, validate_size
from mechanisms.inference.families import FAMILIES

N_DRAWS = 100
"""Number of released draws, each with a hundredth of the privacy loss."""

EDGE = 0.1
"""Constant a₀: θ is restricted to [a₀, 1 − a₀]."""

_LOG_ODDS = math.log((1 - EDGE) / EDGE)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_N_CELLS = 16
_NEGLIGIBLE_EXPONENT = 40.0
_MAX_STEPS = 100
_TOLERANCE = 1e-14


@dataclass(frozen=True)
class OnePosteriorSampling:
    """OPS mechanism for data sets of n records, which releases `N_DRAWS` draws.

    It tempers prior and likelihood (P4), or the likelihood alone. All draws together are ε-DP under replace-one with n
    public; see the module docstring for the proof. For ε ≥ 200·ln 9 = 439 the posterior is not tempered. As the power
    ρ → 0, draws become uniform on [a₀, 1 − a₀], "over-dispersed" in P4, or draws of the truncated prior.
    """

    prior: ArrayLike  # Beta parameters (alpha, beta)
    n: int
    epsilon: float
    tempers_prior: bool  # True if the prior is also raised to the power ρ

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", FAMILIES["binomial"].validate_prior(self.prior))
        object.__setattr__(self, "n", validate_size(self.n))
        object.__setattr__(self, "epsilon", validate_epsilon(self.epsilon))

    @property
    def power(self) -> float:
        """Power ρ in (0, 1] of the likelihood."""
        return min(1.0, self.epsilon / N_DRAWS / (2 * _LOG_ODDS))

    @property
    def guarantee(self) -> Guarantee:
        """Joint guarantee of all `N_DRAWS` draws, with ε = N_DRAWS·2ρL and L = ln((1 − a₀)/a₀)."""
        return Guarantee(N_DRAWS * 2 * self.power * _LOG_ODDS)

    def loss(self) -> float:
        """Return the exact privacy loss of all `N_DRAWS` draws in nats, maximised over neighbours and outputs."""
        a, b = self.beta_parameters([0, 1, self.n - 1, self.n]).T
        log_z = _log_integrals(a, b)
        moves = log_z[1::2] - log_z[::2]
        return N_DRAWS * (self.power * _LOG_ODDS + float(np.abs(moves).max()))

    def beta_parameters(self, counts: ArrayLike) -> Floats:
        """Return the parameters a and b of the Beta distribution of θ, shape (trials, 2), truncated to [a₀, 1 − a₀]."""
        s = np.atleast_1d(real_array("counts", counts))
        if s.ndim != 1 or not np.all((s >= 0) & (s <= self.n) & (s == np.floor(s))):
            rule = f"integers from 0 to {self.n}, of shape (trials,)"
            raise ValueError(f"counts must be {rule}, got shape {s.shape}; pass the number of ones in each trial")
        shapes = FAMILIES["binomial"].posterior(self.prior, s[:, None], self.n)
        start = np.ones(2) if self.tempers_prior else np.array(self.prior)
        return start + self.power * (shapes - start)

    def from_uniforms(self, uniforms: ArrayLike, counts: ArrayLike) -> Floats:
        """Draw the released values of θ, shape (trials, N_DRAWS), by inverting the distribution function.

        In φ = ln(θ/(1−θ)) the log density aφ − (a+b)·ln(1 + exp(φ)) is concave, with a curvature of at least
        a₀(1−a₀)·(a+b). This bounds the interval where it is within 40 of its maximum. Gauss–Legendre quadrature on 16
        subintervals gives the distribution function with an error of about 1e-13, and bracketed Newton steps invert it
        to 1e-14. The guarantee holds up to the rounding of doubles.
        """
        a, b = self.beta_parameters(counts).T
        u = np.asarray(uniforms, dtype=np.float64)
        if u.shape != (a.size, N_DRAWS) or not np.all((u >= 0) & (u < 1)):
            rule = f"in [0, 1), of shape ({a.size}, {N_DRAWS})"
            raise ValueError(f"uniforms must be {rule}, got shape {u.shape}; draw them with rng.random")
        phi = np.empty(u.shape)
        solved = _invert(u, a, b, phi)
        assert solved, f"no root within {_MAX_STEPS} steps: {self}"
        return np.clip(special.expit(phi), EDGE, 1 - EDGE)


@kernel
def _log_ratio(d, a, b, theta_peak):
    """Return the log density of the log odds at φ = peak + d, minus that at the peak, without cancellation."""
    return a * d - (a + b) * math.log1p(theta_peak * math.expm1(d))


@kernel
def _integral(low, high, a, b, theta_peak):
    total = 0.0
    for i in range(_NODES.size):
        total += _WEIGHTS[i] * math.exp(_log_ratio(low + (high - low) * (1 + _NODES[i]) / 2, a, b, theta_peak))
    return total * (high - low) / 2


@kernel
def _cumulate(a, b, below):
    """Fill `below` with the integrals of the density up to the ends of equal cells of its non-negligible range."""
    # Return the mode of the log odds and of θ, the start of the range relative to the mode, and the width of a cell.
    peak = min(max(math.log(a / b), -_LOG_ODDS), _LOG_ODDS)
    slope = abs(a - (a + b) / (1 + math.exp(-peak))) if abs(peak) == _LOG_ODDS else 0.0
    curvature = (a + b) / (2 + 2 * math.cosh(_LOG_ODDS))
    reach = 2 * _NEGLIGIBLE_EXPONENT / (slope + math.sqrt(slope**2 + 2 * _NEGLIGIBLE_EXPONENT * curvature))
    low, high = max(-reach, -_LOG_ODDS - peak), min(reach, _LOG_ODDS - peak)
    theta_peak, width = 1 / (1 + math.exp(-peak)), (high - low) / _N_CELLS
    below[0] = 0.0
    for cell in range(_N_CELLS):
        left = low + cell * width
        below[cell + 1] = below[cell] + _integral(left, left + width, a, b, theta_peak)
    return peak, theta_peak, low, width


@kernel
def _log_integrals(a, b):
    """Return the log normalising constants for arrays of parameters."""
    below, log_integrals = np.empty(_N_CELLS + 1), np.empty(a.size)
    for i in range(a.size):
        peak, _, _, _ = _cumulate(a[i], b[i], below)
        log_integrals[i] = -a[i] * math.log1p(math.exp(-peak)) - b[i] * math.log1p(math.exp(peak)) + math.log(below[-1])
    return log_integrals


@kernel
def _invert(uniforms, a, b, phi):
    """Fill `phi` with the quantiles of the log odds at the levels `uniforms`; return True if all have converged."""
    below = np.empty(_N_CELLS + 1)
    for i in range(a.size):
        peak, theta_peak, low, width = _cumulate(a[i], b[i], below)
        for j in range(uniforms.shape[1]):
            target = uniforms[i, j] * below[-1]
            cell = 0
            while cell < _N_CELLS - 1 and below[cell + 1] < target:
                cell += 1
            start = low + cell * width
            left, right = start, start + width
            x = left + width * (target - below[cell]) / (below[cell + 1] - below[cell])
            for _ in range(_MAX_STEPS):
                excess = below[cell] + _integral(start, x, a[i], b[i], theta_peak) - target
                if abs(excess) <= _TOLERANCE * below[-1]:
                    break
                if excess > 0:
                    right = x
                else:
                    left = x
                x -= excess / math.exp(_log_ratio(x, a[i], b[i], theta_peak))
                if not left < x < right:
                    x = (left + right) / 2
            else:
                return False
            phi[i, j] = peak + x
    return True

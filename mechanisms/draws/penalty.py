"""Penalty algorithm: a Markov chain for Bayesian logistic regression that publishes every state.

The target is p(w) ∝ exp(Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2), with records ‖xᵢ‖ ≤ c. A step proposes θ' = θ + s·N(0, I),
draws the noisy log-likelihood ratio r = Σ ln p(yᵢ | xᵢ·θ') − Σ ln p(yᵢ | xᵢ·θ) + N(0, τ²D²), and accepts with
probability

    min(1, exp(r − κ(‖θ'‖² − ‖θ‖²)/2 − τ²D²/2)).

The penalty τ²D²/2 makes the posterior invariant (Ceperley & Dewing): for normal noise with variance v around Δ − v/2,
E[min(1, e^r)]·e^(−Δ) = E[min(1, e^(−r'))] with the noise around −Δ − v/2. Both directions must have the same variance,
so D is computed from the pair in one order.

**Privacy.** D = D(θ, θ') is the range of one record's log-likelihood ratio, so the noisy ratio is (1/τ)-GDP under
replace-one, the acceptance is a function of it, and T steps are (√T/τ)-GDP. No convergence is needed.

**The range.** With u = (2y − 1)·x, a record's ratio is f(u) = ln σ(u·θ') − ln σ(u·θ), and all u with ‖u‖ ≤ c occur.
So D is max f − min f over the disc of radius c in the plane of θ and θ'. Both are attained on the circle: with a = u·θ
and b = u·θ', ∇f = σ(−b)θ' − σ(−a)θ is not 0 unless θ and θ' are parallel, and then f is constant along the normal of θ.
`likelihood_range` evaluates f and its derivative at equal angles, divides the arcs that may contain a maximum, and adds
the largest change between nodes. Per radian, the second derivative is at most

    c²‖θ' − θ‖·(c‖θ‖²/(6√3) + ‖θ‖/2 + ‖θ' − θ‖/4) + c‖θ' − θ‖·(1 + c‖θ‖/4),

as |σ''| ≤ 1/(6√3) and σ' ≤ 1/4. The result is an upper bound, and at most 2c‖θ' − θ‖, which is the usual choice.

References
----------
Yıldırım & Ermiş, "Exact MCMC with differentially private moves", Statistics and Computing 29, 2019. Ceperley & Dewing,
"The penalty method for random walks with uncertain energies", Journal of Chemical Physics 110, 1999.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit

from mechanisms.core.arguments import Floats, validate_integer
from mechanisms.core.conversions import gaussian_mu
from mechanisms.core.jit import kernel
from mechanisms.core.privacy import GaussianGuarantee
from mechanisms.draws.glm_mechanisms import validate_design
from mechanisms.draws.langevin import published_langevin

_ARCS, _PARTS = 64, 16
_WIDE = 2.38  # standard deviation of the noise with the largest squared step per proposal, for small steps


@dataclass(frozen=True)
class PenaltyChain:
    """Penalty algorithm with public parameters."""

    precision: float  # κ > 0, of the normal prior
    scale: float  # standard deviation s > 0 of the proposals, per component
    noise: float  # ratio τ > 0 of the standard deviation of the noise to the range D
    n_steps: int  # T ≥ 1
    norm_bound: float = 1.0  # c > 0, on ‖x‖₂

    @property
    def guarantee(self) -> GaussianGuarantee:
        """Guarantee of all states together, under replace-one with n public."""
        return GaussianGuarantee(math.sqrt(self.n_steps) / self.noise)

    def sample(
        self, rng: np.random.Generator, design: ArrayLike, labels: ArrayLike, n_chains: int = 1, *, every: int = 1
    ) -> Floats:
        """Return states after multiples of `every` steps, from 0; shapes and guarantee as in `LangevinChain.sample`."""
        X, y = validate_design(design, labels, self.norm_bound)
        signed = (2.0 * y - 1.0)[:, None] * X
        state = np.zeros((validate_integer("n_chains", n_chains), X.shape[1]))
        every = validate_integer("every", every)
        states = np.empty((len(state), self.n_steps // every, X.shape[1]))
        here = log_likelihoods(signed, state)
        for step in range(1, self.n_steps + 1):
            state, here = self.step(rng, signed, state, here)
            if step % every == 0:
                states[:, step // every - 1] = state
        return states

    def step(self, rng: np.random.Generator, signed: Floats, state: Floats, here: Floats) -> tuple[Floats, Floats]:
        """Return the next states and their log-likelihoods; rows of `signed` are (2y − 1)·x."""
        proposal = state + self.scale * rng.standard_normal(state.shape)
        there = log_likelihoods(signed, proposal)
        noise_std = self.noise * likelihood_range(state, proposal, self.norm_bound)
        prior = 0.5 * self.precision * (np.square(proposal) - np.square(state)).sum(axis=1)
        ratio = there - here + noise_std * rng.standard_normal(len(state)) - prior - 0.5 * noise_std**2
        accepted = -rng.standard_exponential(len(state)) < ratio
        return np.where(accepted[:, None], proposal, state), np.where(accepted, there, here)


def published_penalty(
    n: int, d: int, beta: float, epsilon: float, delta: float, norm_bound: float = 1.0
) -> PenaltyChain:
    """Return the chain ``penalty``, all of whose states together are (ε, δ)-DP.

    The number of steps T is that of `published_langevin`. The noise is τ = √T/μ, and the proposals have the standard
    deviation 2.38/(τc√d), so that the noise has the standard deviation 2.38 for small weights.
    """
    mu = gaussian_mu(epsilon, delta) * (1.0 - 1e-12)
    langevin = published_langevin(n, beta, epsilon, delta, norm_bound)
    noise, c = math.sqrt(langevin.n_steps) / mu, langevin.norm_bound
    scale = _WIDE / (noise * c * math.sqrt(validate_integer("d", d)))
    return PenaltyChain(langevin.precision, scale, noise, langevin.n_steps, c)


def log_likelihoods(signed: Floats, weights: Floats) -> Floats:
    """Return the log-likelihood of each row of weights; rows of `signed` are (2y − 1)·x."""
    return log_expit(weights @ signed.T).sum(axis=1)


def likelihood_range(state: ArrayLike, proposal: ArrayLike, norm_bound: float = 1.0) -> Floats:
    """Return a bound on the range of a logistic record's log-likelihood ratio between weights θ and θ', shape (...)."""
    # It is symmetric in the two vectors, at most 2c‖θ' − θ‖, and about half of it for small weights.
    theta, other = np.broadcast_arrays(*(np.asarray(weights, dtype=np.float64) for weights in (state, proposal)))
    change = other - theta
    squares = np.square(theta).sum(axis=-1), np.square(other).sum(axis=-1)
    length, distance = np.sqrt(np.minimum(*squares)), np.sqrt(np.square(change).sum(axis=-1))
    forward = np.where(squares[0] <= squares[1], (change * theta).sum(axis=-1), -(change * other).sum(axis=-1))
    along = np.where(length > 0, forward / np.where(length > 0, length, 1.0), distance)
    across = np.sqrt(np.maximum(distance**2 - along**2, 0.0))
    ranges = np.empty(length.size)
    _fill_ranges(length.ravel(), along.ravel(), across.ravel(), norm_bound, ranges)
    return np.minimum(ranges.reshape(length.shape), 2.0 * norm_bound * distance)


@kernel
def _expit(t):
    return 1.0 / (1.0 + math.exp(-t)) if t > -700.0 else 0.0


@kernel
def _log_expit(t):
    return min(t, 0.0) - math.log1p(math.exp(-abs(t)))


@kernel
def _on_circle(angle, length, along, across, c):
    """Return f and its derivative at an angle, for θ = (length, 0) and θ' = (length + along, across)."""
    u, v = c * math.cos(angle), c * math.sin(angle)
    a = u * length
    b = a + u * along + v * across
    slope_b, slope_a = _expit(-b), _expit(-a)
    return _log_expit(b) - _log_expit(a), slope_b * (u * across - v * (length + along)) + slope_a * v * length


@kernel
def _fill_ranges(length, along, across, c, found):
    """Write upper bounds on max f − min f over circles."""
    arc = 2.0 * math.pi / _ARCS
    value, slope = np.empty(_ARCS), np.empty(_ARCS)
    for i in range(length.size):
        distance = math.hypot(along[i], across[i])
        curvature = c * c * distance * (c * length[i] ** 2 / (6.0 * math.sqrt(3.0)) + length[i] / 2.0 + distance / 4.0)
        curvature += c * distance * (1.0 + c * length[i] / 4.0)
        for j in range(_ARCS):
            value[j], slope[j] = _on_circle(j * arc, length[i], along[i], across[i], c)
        found[i] = 0.0
        for sign in (1.0, -1.0):
            best = (sign * value).max()
            largest, part = best, arc / _PARTS
            for j in range(_ARCS):
                if sign * value[j] + abs(slope[j]) * arc / 2.0 + curvature * arc**2 / 8.0 <= best:
                    continue
                for k in range(_PARTS):
                    angle = (j - 0.5) * arc + (k + 0.5) * part
                    f, steepness = _on_circle(angle, length[i], along[i], across[i], c)
                    largest = max(largest, sign * f + abs(steepness) * part / 2.0 + curvature * part**2 / 8.0)
            found[i] += largest

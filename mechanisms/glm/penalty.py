"""Penalty algorithm: a Markov chain for Bayesian logistic regression that publishes every state.

The target is p(w) ∝ exp(Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2), with records ‖xᵢ‖ ≤ c. A step proposes θ' = θ + s·N(0, I),
draws the noisy log-likelihood ratio r = Σ ln p(yᵢ | xᵢ·θ') − Σ ln p(yᵢ | xᵢ·θ) + N(0, τ²D²), and accepts with
probability

    min(1, exp(r − κ(‖θ'‖² − ‖θ‖²)/2 − τ²D²/2)).

The penalty τ²D²/2 makes the posterior invariant (Ceperley & Dewing): for normal noise with variance v around Δ − v/2,
E[min(1, e^r)]·e^(−Δ) = E[min(1, e^(−r'))] with the noise around −Δ − v/2.

**Privacy.** D = D(θ, θ') is the range of one record's log-likelihood ratio, so the noisy ratio is (1/τ)-GDP under
replace-one, the acceptance is a function of it, and T steps are (√T/τ)-GDP. No convergence is needed.

**The range.** With u = (2y − 1)·x, a record's ratio is f(u) = ln σ(u·θ') − ln σ(u·θ), and all u with ‖u‖ ≤ c occur.
So D is max f − min f over a disc in the plane of θ and θ'. `likelihood_range` evaluates f and its gradient at the
nodes of a polar grid, whose cells are divided where the maximum may be, and adds the largest change between nodes, by

    ‖∇²f‖ ≤ ‖θ' − θ‖·(c‖θ‖²/(6√3) + ‖θ‖/2 + ‖θ' − θ‖/4),

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
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit

from mechanisms.arguments import validate_integer, validate_positive
from mechanisms.glm.mechanisms import validate_design
from mechanisms.jit import kernel
from mechanisms.privacy import GaussianGuarantee

__all__ = ["PenaltyChain", "likelihood_range"]

Array = NDArray[np.float64]

_RINGS, _RAYS, _PARTS = 16, 64, 12


@dataclass(frozen=True)
class PenaltyChain:
    """Penalty algorithm with public parameters.

    Attributes
    ----------
    precision : float
        Precision κ > 0 of the normal prior.
    scale : float
        Standard deviation s > 0 of the proposals, per component.
    noise : float
        Ratio τ > 0 of the standard deviation of the noise to the range D.
    n_steps : int
        Number of steps T ≥ 1.
    norm_bound : float
        Upper bound c > 0 on ‖x‖₂.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> print(PenaltyChain(precision=1.0, scale=0.1, noise=50.0, n_steps=100).guarantee)
    0.2-GDP
    """

    precision: float
    scale: float
    noise: float
    n_steps: int
    norm_bound: float = 1.0

    def __post_init__(self) -> None:
        for name in ("precision", "scale", "noise", "norm_bound"):
            object.__setattr__(self, name, validate_positive(name, getattr(self, name), "choose it without the data"))
        object.__setattr__(self, "n_steps", validate_integer("n_steps", self.n_steps))

    @property
    def guarantee(self) -> GaussianGuarantee:
        """Guarantee of all states together, under replace-one with n public."""
        return GaussianGuarantee(math.sqrt(self.n_steps) / self.noise)

    def sample(self, rng: np.random.Generator, design: ArrayLike, labels: ArrayLike) -> Array:
        """Return the states after each step, shape (n_steps, d); the chain starts at 0.

        `design` has shape (n, d), with rows of norm ≤ `norm_bound`, and `labels` are 0 or 1, shape (n,).

        Privacy
        -------
        The guarantee holds for normal noise; noise in double precision is for simulation only.
        """
        X, y = validate_design(design, labels, self.norm_bound)
        signed = (2.0 * y - 1.0)[:, None] * X
        state, states = np.zeros(X.shape[1]), np.empty((self.n_steps, X.shape[1]))
        here = float(log_expit(signed @ state).sum())
        for step in range(self.n_steps):
            state, here = self._step(rng, signed, state, here)
            states[step] = state
        return states

    def _step(self, rng: np.random.Generator, signed: Array, state: Array, here: float) -> tuple[Array, float]:
        """Return the next state and its log-likelihood; rows of `signed` are (2y − 1)·x."""
        proposal = state + self.scale * rng.standard_normal(state.size)
        there = float(log_expit(signed @ proposal).sum())
        noise_std = self.noise * likelihood_range(state, proposal, self.norm_bound)
        prior = 0.5 * self.precision * float(proposal @ proposal - state @ state)
        ratio = there - here + noise_std * rng.standard_normal() - prior - 0.5 * noise_std**2
        return (proposal, there) if -rng.standard_exponential() < ratio else (state, here)


def likelihood_range(state: ArrayLike, proposal: ArrayLike, norm_bound: float = 1.0) -> float:
    """Return an upper bound on the range of a logistic record's log-likelihood ratio between two weight vectors.

    Parameters
    ----------
    state, proposal : array_like, shape (d,)
        Weights θ and θ'.
    norm_bound : float
        Upper bound c on ‖x‖₂, > 0.

    Returns
    -------
    float
        At most 2c‖θ' − θ‖, and about half of it for small weights.

    Examples
    --------
    >>> print(round(likelihood_range([0.0, 0.0], [0.01, 0.0]) / 0.02, 2))
    0.5
    """
    theta, other = np.asarray(state, dtype=np.float64), np.asarray(proposal, dtype=np.float64)
    change = other - theta
    length, distance = math.sqrt(float(theta @ theta)), math.sqrt(float(change @ change))
    along = float(change @ theta) / length if length else distance
    across = math.sqrt(max(distance**2 - along**2, 0.0))
    highest, lowest = (_largest(sign, length, along, across, norm_bound) for sign in (1.0, -1.0))
    return min(highest + lowest, 2.0 * norm_bound * distance)


@kernel
def _expit(t):
    return 1.0 / (1.0 + math.exp(-t)) if t > -700.0 else 0.0


@kernel
def _log_expit(t):
    return min(t, 0.0) - math.log1p(math.exp(-abs(t)))


@kernel
def _ratio(radius, angle, length, along, across):
    """Return f and ‖∇f‖ at a point of the disc, for θ = (length, 0) and θ' = (length + along, across)."""
    u, v = radius * math.cos(angle), radius * math.sin(angle)
    a = u * length
    b = a + u * along + v * across
    slope_b, slope_a = _expit(-b), _expit(-a)
    steepness = math.hypot(slope_b * (length + along) - slope_a * length, slope_b * across)
    return _log_expit(b) - _log_expit(a), steepness


@kernel
def _largest(sign, length, along, across, c):
    """Return an upper bound on sign·f over the disc: cells that may contain the maximum are divided once more."""
    distance = math.hypot(along, across)
    curvature = distance * (c * length**2 / (6.0 * math.sqrt(3.0)) + length / 2.0 + distance / 4.0)
    ring, ray = c / _RINGS, 2.0 * math.pi / _RAYS
    gap = math.hypot(ring / 2.0, c * ray / 2.0)  # largest distance of a point from the node of its cell
    bounds = np.empty((_RINGS + 1, _RAYS))
    best = 0.0  # f at the centre
    for i in range(_RINGS + 1):
        for j in range(_RAYS):
            f, steepness = _ratio(i * ring, j * ray, length, along, across)
            bounds[i, j] = sign * f + gap * (steepness + 0.5 * curvature * gap)
            best = max(best, sign * f)
    largest, gap = best, gap / _PARTS
    for i in range(_RINGS + 1):
        for j in range(_RAYS):
            if bounds[i, j] <= best:
                continue
            for k in range(_PARTS * _PARTS):
                radius = (i - 0.5 + (k // _PARTS + 0.5) / _PARTS) * ring
                angle = (j - 0.5 + (k % _PARTS + 0.5) / _PARTS) * ray
                f, steepness = _ratio(min(max(radius, 0.0), c), angle, length, along, across)
                largest = max(largest, sign * f + gap * (steepness + 0.5 * curvature * gap))
    return largest

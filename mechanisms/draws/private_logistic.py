"""One private draw of the weights of a logistic regression: the last iterate of the chain ``langevin-last``.

**Discrete noise.** For real data a step is w ← u·(round(m(w)/u) + z), with m(w) the mean of the step in doubles, the
unit u = √η·2^(−b), and z from the exact discrete Gaussian of standard deviation 2^b. By the midpoint rule, its
distribution and that of a rounded normal differ by at most 4^(−b)/8 in total variation, per component and step. Over T
steps and both neighbours this adds at most (1 + e^ε)·Td·4^(−b)/8 to δ. With rounded normals, the result is a rounded
value of a chain with normal noise, whose mean is φ(w), the exact mean, plus an error of at most

    √d·u + √η·e,

for both roundings to the grid and for doubles. The proof for the last iterate holds with ηcρ increased by twice this
error, which b and the check of e limit to a fraction 1e-6 of ηcρ; μ is reduced accordingly.

**Doubles.** Let r be the unit roundoff, doubled for terms of second order, and let ‖w‖ ≤ B. Sums of n or d terms are
computed in blocks of 64 or 16 terms, whose halves are then added repeatedly, so that their errors are at most S_n·r =
(64 + 2·log₂ n)·r and S_d·r = (16 + 2·log₂ d)·r times the sum of absolute values. If the logistic function has an error
of at most 4r, then e ≤ r·[½√η·ρnc·(S_n + 6 + S_d·cB/4) + 8B/√η].

**Norm of the weights.** The mode has ‖m‖² ≤ 2ρn·ln 2/κ, as U(m) ≤ U(0). An iterate is a Lipschitz function of the
normal noise with the constant √(2/κ), and E‖w − m‖ ≤ ‖m‖ + √(2d/κ). So ‖w‖ ≤ 2‖m‖ + √(2/κ)·(√d + √(2·ln(1/p))), except
with probability p. B is twice this bound, which allows for the errors, and p is part of the reserved δ.

Records are scaled to the norm bound before the first step, so the bound on the change of a mean holds for any records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from mechanisms.core.arguments import Floats, real_array, validate_positive
from mechanisms.core.conversions import gaussian_epsilon
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import validate_delta, validate_epsilon, warn_large_delta
from mechanisms.draws.glm_mechanisms import validate_design
from mechanisms.draws.langevin import LangevinChain, last_langevin
from mechanisms.release import Hook, LedgerLike, Rehearsal, check_release

_RESERVED = 1e-3  # part of δ for the distribution of the noise and for large weights
_INFLATION = 1e-6  # largest relative increase of the change of a mean, for rounding
_ROWS, _COLUMNS = 64, 16  # terms per block of a sum
_FEWEST_BITS, _MOST_BITS = 20, 48
_ROUNDOFF = 2.0**-52


@dataclass(frozen=True)
class PrivateWeights:
    """A private draw of the weights."""

    weights: Floats = field(repr=False)  # shape (d,)
    chain: LangevinChain
    guarantee: Guarantee | None  # (ε, δ)-DP under replace-one with n public; None for a rehearsal


def private_logistic(
    design: ArrayLike,
    labels: ArrayLike,
    epsilon: float,
    delta: float,
    *,
    beta: float,
    norm_bound: float = 1.0,
    rehearsal_seed: int | None = None,
    ledger: LedgerLike | None = None,
    before_release: Hook | None = None,
) -> PrivateWeights:
    """Return one private draw from a tempered posterior of the weights of a logistic regression.

    Parameters
    ----------
    design : array_like, shape (n, d)
        Explanatory variables. Rows with a norm above `norm_bound` are scaled down to it; their number is not returned.
    labels : array_like, shape (n,)
        Labels 0 or 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    delta : float
        In (0, 1).
    beta : float
        Prior precision per record, finite and > 0: the prior is N(0, (n·beta)⁻¹I). Choose it independently of the data.
    norm_bound : float
        Upper bound on the norm of a row, chosen independently of the data.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which is reproducible and not private.
    ledger, before_release : optional
        Ledger of all releases from these records, or its path, in which this one is entered before the noise is drawn,
        and a function that is called in between; see `mechanisms.release.check_release`.

    Privacy
    -------
    (ε, δ)-DP (proved) under replacement of one record; the number of records is public. The proof is that of Bok, Su &
    Altschuler (2024) for the last iterate of a finite chain, with bounds on the discretisation of the noise and on the
    rounding of doubles, for a logistic function accurate to 4 units in the last place. OpenDP draws the noise with
    entropy of the operating system. Every call is a separate release, and a rehearsal has no guarantee. Messages
    contain no records, but a message about invalid records contains the index of the first invalid row.

    Raises
    ------
    ValueError
        If an argument is invalid, the ledger has less left than ε or δ, or the noise cannot be represented for these
        arguments, before any noise is drawn.
    ModuleNotFoundError
        If OpenDP is not installed and `rehearsal_seed` is None.

    Warns
    -----
    UserWarning
        If δ ≥ 1/n, which allows the release of a whole record.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> private_logistic(x, x[:, 0] > 0.2, epsilon=2.0, delta=1e-6, beta=0.01, rehearsal_seed=1).weights.shape
    (1,)
    """
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    release = check_release(Guarantee(epsilon, delta), "private_logistic", rehearsal_seed, ledger, before_release)
    norm_bound = validate_positive("norm_bound", norm_bound, "choose it independently of the data")
    X, y = validate_design(_clipped(design, norm_bound), labels, norm_bound)
    n, d = X.shape
    warn_large_delta(delta, n)
    # the larger norm bound increases the change of a mean by the fraction that is reserved for rounding
    chain = last_langevin(n, beta, epsilon, delta * (1.0 - _RESERVED), norm_bound * (1.0 + _INFLATION))
    bits = noise_bits(chain, d, delta)
    if isinstance(release, Rehearsal):
        return PrivateWeights(chain.sample(release.generator("private_logistic"), X, y)[0, 0], chain, None)
    unit = math.sqrt(chain.step) * 2.0**-bits
    slope, weights, noise = _slope_of(X, y), np.zeros(d), release.enter()
    for _ in range(chain.n_steps):
        means = weights + chain.step / 2 * (chain.power * slope(weights) - chain.precision * weights)
        steps = np.rint(means / unit).astype(np.int64) + noise.gaussian(2.0**bits, d)
        weights = unit * steps.astype(np.float64)
    return PrivateWeights(weights, chain, release.guarantee)


def _clipped(design: ArrayLike, norm_bound: float) -> Floats:
    """Return the design with rows scaled to norms of at most `norm_bound`; invalid designs are returned unchanged."""
    X = real_array("design", design)
    if X.ndim != 2 or not np.isfinite(X).all():
        return X
    largest = np.abs(X).max(axis=1, keepdims=True, initial=0.0)  # norms of huge entries would overflow
    scaled = X / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))  # 1 to √d, and 0 for rows of zeros
    return np.where(
        largest > norm_bound / np.maximum(lengths, 1.0), scaled * (norm_bound / np.maximum(lengths, 1.0)), X
    )


def noise_bits(chain: LangevinChain, d: int, delta: float) -> int:
    """Return the smallest b for which the discretisation of the noise is covered by the reserved part of the budget."""
    epsilon = gaussian_epsilon(chain.guarantee.mu, delta * (1.0 - _RESERVED))  # at most the requested one
    copies = np.logaddexp(0.0, epsilon) + math.log(chain.n_steps) - math.log(_RESERVED * delta / 2)
    change = math.sqrt(chain.step) * chain.norm_bound * chain.power  # of a mean, in units of √η
    for_noise = (copies + math.log(d / 8)) / (2 * math.log(2))
    for_grid = math.log2(4.0 * math.sqrt(d) / (_INFLATION * change))
    bits = max(_FEWEST_BITS, math.ceil(max(for_noise, for_grid)))
    largest = _largest_norm(chain, d, copies)
    error = _rounding(chain, d, largest)
    if bits > _MOST_BITS or 4.0 * error > _INFLATION * change or largest / math.sqrt(chain.step) * 2.0**bits > 2.0**61:
        raise ValueError(
            f"the noise must have at most {_MOST_BITS} bits and a relative rounding error below {_INFLATION / 4:g}, "
            f"got {bits} and {error / change:.1g}; use a less extreme delta, beta or norm_bound"
        )
    return bits


def _largest_norm(chain: LangevinChain, d: int, log_inverse: float) -> float:
    """Return the bound B on the norm of all iterates, which fails with probability exp(−log_inverse) per step."""
    mode = math.sqrt(2.0 * chain.power * chain.n * math.log(2.0) / chain.precision)
    spread = math.sqrt(2.0 / chain.precision)
    return 2.0 * (2.0 * mode + spread * (math.sqrt(d) + math.sqrt(2.0 * log_inverse)))


def _rounding(chain: LangevinChain, d: int, largest: float) -> float:
    """Return the bound e on the error of a mean in doubles, in units of √η, for weights of norm ≤ `largest`."""
    n, c, root = chain.n, chain.norm_bound, math.sqrt(chain.step)
    for_n, for_d = _ROWS + 2.0 * math.ceil(math.log2(n + 1)), _COLUMNS + 2.0 * math.ceil(math.log2(d + 1))
    slope = chain.power * n * c * (for_n + 6.0 + for_d * c * largest / 4.0)
    return _ROUNDOFF * (root / 2 * slope + 8.0 * largest / root)


def _slope_of(design: Floats, labels: Floats) -> Callable[[Floats], Floats]:
    """Return w ↦ Σ (yᵢ − σ(xᵢ·w))·xᵢ, summed in blocks: no rounding error depends on the linear algebra library."""
    n, d = design.shape
    padded = np.pad(design, ((0, -n % _ROWS), (0, -d % _COLUMNS)))
    by_columns = np.ascontiguousarray(padded.reshape(len(padded), -1, _COLUMNS).transpose(1, 0, 2))
    by_rows = np.ascontiguousarray(padded[:, :d].reshape(-1, _ROWS, d))
    known = np.pad(labels, (0, -n % _ROWS))

    def slope(weights: Floats) -> Floats:
        parts = np.pad(weights, (0, -d % _COLUMNS)).reshape(-1, _COLUMNS, 1)
        residuals = known - expit(_halved((by_columns @ parts)[:, :, 0]))  # rows of zeros contribute nothing
        return _halved((residuals.reshape(-1, 1, _ROWS) @ by_rows)[:, 0])

    return slope


def _halved(terms: Floats) -> Floats:
    """Return the sum over the first axis, by adding one half to the other repeatedly."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    return terms[0]

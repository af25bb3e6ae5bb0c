"""Mechanisms that release counts, and thereby a Dirichlet posterior, and the output distributions of their releases.

A mechanism maps (prior, counts, ε, δ) to a `CountRelease`, the distribution of the released counts c̃, which provides
draws and the exact mean of the distance H(posterior(c), posterior(c̃)). `mechanisms.counts.registry` lists them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers, returned_array, validate_integer
from mechanisms.core.conjugate import (
    enumerate_candidates,
    rank_candidates,
    validate_counts,
    validate_prior,
    validate_problem,
)
from mechanisms.core.exact_scales import ExactSampler
from mechanisms.core.metadata import Entry
from mechanisms.core.privacy import Guarantee, Neighbouring, Status, validate_relation
from mechanisms.core.privacy_parameters import validate_delta, validate_resolved_epsilon
from mechanisms.counts.calibrated import Calibration
from mechanisms.counts.candidates import require_uniforms

SampleCounts = Callable[[np.random.Generator, Integers, float, float, int], ArrayLike]


class CountRelease(ABC):
    """Distribution of released counts at one data set; `mechanisms.counts.registry` lists the mechanisms.

    Attributes
    ----------
    prior : ndarray of float64, shape (k,)
        Dirichlet parameters.
    counts : ndarray of int64, shape (k,)
        True counts, which are private and omitted from the representation.
    guarantee : Guarantee or None
        Guarantee of one draw; None if there is none, or if the release was not built by a `Mechanism`.
    """

    prior: Floats
    counts: Integers
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, k={self.k})"

    @property
    def k(self) -> int:
        """Number of categories."""
        return self.counts.size

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    @property
    @abstractmethod
    def n_uniforms(self) -> int:
        """Number of uniforms in [0, 1) per draw."""

    @abstractmethod
    def from_uniforms(self, uniforms: Floats) -> Integers:
        """Return one draw of released counts per row of `uniforms`.

        Parameters
        ----------
        uniforms : ndarray of float64, shape (trials, n_uniforms)
            Values in [0, 1). Draw i depends on row i only, so draws do not depend on the batching of trials. Uniforms
            reveal the noise: outside a simulation they must be secret, fresh and never shared between releases.

        Returns
        -------
        ndarray of int64, shape (trials, k)

        Raises
        ------
        ValueError
            If the shape is wrong or a value is outside [0, 1).
        """

    def sample(self, rng: np.random.Generator, size: int) -> Integers:
        """Return `size` independent draws of released counts, shape (size, k), for simulation.

        The state of `rng` reveals the noise, and draws in double precision are not private; `mechanisms.publish_counts`
        releases real counts.
        """
        return self.from_uniforms(rng.random((validate_integer("size", size, least=0), self.n_uniforms)))

    @abstractmethod
    def expected_hellinger(self) -> float:
        """Return the exact mean Hellinger distance between the true and the released posterior.

        Too many possible outputs for an exact mean raise ValueError.
        """

    @abstractmethod
    def log_pmf(self) -> Floats:
        """Return the log probability of all counts of n records, shape (|R|,), in the order of `enumerate_candidates`.

        Values are in nats, −inf for impossible counts, and do not underflow far from the true counts. An audit refuses
        masked entries, another shape, and probabilities that do not sum to 1 within 1e-11. More than
        `mechanisms.core.conjugate.MAX_ENUMERATED` counts of n records raise ValueError.
        """

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log probability, shape (...), of released counts of shape (..., k).

        Counts that are not integers ≥ 0 with sum n raise ValueError, and so may `log_pmf`.
        """
        return self.log_pmf()[rank_candidates(values, self.n, self.k)]

    def pmf(self) -> Floats:
        """Return the probability of all counts of n records, in the order of `log_pmf`."""
        return np.exp(self.log_pmf())


@dataclass(frozen=True, eq=False, repr=False)
class TabulatedRelease(CountRelease):
    """Distribution of released counts at one data set, stored as a table over all counts of n records."""

    prior: Floats
    counts: Integers
    _log_pmf: Floats
    _expected: float

    n_uniforms = 1

    def from_uniforms(self, uniforms: Floats) -> Integers:
        u = require_uniforms(uniforms, self.n_uniforms)[:, 0]
        cumulative = np.cumsum(np.exp(self._log_pmf))
        # If the product is rounded up to the total, take the first candidate that reaches it.
        last = np.searchsorted(cumulative, cumulative[-1])
        picked = np.minimum(np.searchsorted(cumulative, u * cumulative[-1], side="right"), last)
        return enumerate_candidates(self.n, self.k)[picked]

    def expected_hellinger(self) -> float:
        return self._expected

    def log_pmf(self) -> Floats:
        return self._log_pmf.copy()


@dataclass(frozen=True, eq=False, repr=False)
class SampledCounts(CountRelease):
    """Release of counts at one data set by the `sampler` of a `Mechanism`."""

    prior: Floats
    counts: Integers
    epsilon: float
    delta: float
    sampler: SampleCounts = field(repr=False)

    n_uniforms = 1  # which seeds the generator of a draw

    def from_uniforms(self, uniforms: Floats) -> Integers:
        """Draw released counts, each with a generator of its own, so that draws do not depend on their batch."""
        seeds = (require_uniforms(uniforms, 1)[:, 0] * 2.0**53).astype(np.int64).tolist()
        draws = [self._draw(np.random.Generator(np.random.PCG64DXSM(seed)), 1)[0] for seed in seeds]
        return np.array(draws, dtype=np.int64).reshape(len(seeds), self.k)

    def sample(self, rng: np.random.Generator, size: int) -> Integers:
        """Return `size` independent draws of released counts, shape (size, k), from one call of the sampler."""
        return self._draw(rng, size)

    def expected_hellinger(self) -> float:
        raise ValueError("the mechanism can only be sampled, and has no exact mean; average the distances of draws")

    def log_pmf(self) -> Floats:
        raise ValueError("the mechanism can only be sampled, and has no pmf; audit it by sampled_bound")

    def _draw(self, rng: np.random.Generator, size: int) -> Integers:
        return validate_draws(
            self.sampler(rng, self.counts.copy(), self.epsilon, self.delta, size), size, self.n, self.k
        )


def validate_draws(draws: ArrayLike, size: int, n: int, k: int) -> Integers:
    """Return draws as int64 if they are `size` counts of n records in k categories."""
    drawn = returned_array("a sampler", draws)
    is_valid = drawn.shape == (size, k) and drawn.dtype.kind in "iu"
    if not (is_valid and np.all(drawn >= 0) and np.all(drawn.sum(axis=1) == n)):
        raise ValueError(
            f"a sampler must return integers >= 0 of shape ({size}, {k}) with sums n, got {drawn.dtype} of shape "
            f"{drawn.shape}; return one release per row"
        )
    return drawn.astype(np.int64)


Build = Callable[[Floats, Integers, float, float], CountRelease]


def validate(
    prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float | None = None
) -> tuple[Floats, Integers, float, float | None]:
    """Validate and convert the arguments common to all mechanisms."""
    epsilon, alpha = validate_resolved_epsilon(epsilon), validate_prior(prior)
    delta = None if delta is None else validate_delta(delta)
    return alpha, validate_counts(counts, k=alpha.size), epsilon, delta


@dataclass(frozen=True, kw_only=True)
class Mechanism(Entry):
    """Mechanism that releases counts, with its guarantee.

    Parameters
    ----------
    name, note : str
        Key in the registry, and a description in one sentence.
    origin, paper, variant : str
        "paper", "baseline" or "ours"; the paper, such as "P0"; and the difference from the method as published.
    style : Style, optional
        Colour and marker in figures; by default each figure chooses.
    release : callable
        Maps validated (prior, counts, epsilon, delta) to `CountRelease`; delta is 0 if it was omitted. Omit it for a
        mechanism with a `sampler`.
    guarantee : callable
        Maps (epsilon, delta) to `Guarantee`, or to None for a mechanism without a guarantee. Registered mechanisms
        that do not need δ accept epsilon alone.
    needs_delta : bool
        True if the release depends on δ. Otherwise δ may be omitted.
    require : callable
        Takes (n, k) and raises ValueError if the problem is too large. By default there is no limit.
    max_epsilon : float
        Largest supported privacy loss in nats. By default there is no limit.
    min_categories : int
        Smallest number of categories for which studies include the mechanism. For fewer categories, its distribution
        equals that of another entry.
    symmetric : bool
        True if permuting categories with equal prior parameters permutes the output distribution accordingly. Audits
        of the mechanisms of this package then compare fewer pairs (`is_built_in`); audits of other mechanisms compare
        all pairs.
    uses_prior : bool
        False if the output distribution does not depend on the prior. Audits of such mechanisms of this package use a
        uniform prior, for which there are more symmetric pairs.
    calibrate : callable or None
        Maps (prior, n, epsilon) to `Calibration`; None if the mechanism is not calibrated by its exact loss.
    evaluation : {"formula", "vectors", "program"}
        Evaluation of the pmf: by a formula, by a sum over the (n + 1)ᵏ vectors of noisy counts, or by a linear program
        over all pairs of data sets and outputs.
    exact_noise : callable or None
        Maps (k, epsilon, delta) to the exact sampler of integer noise, a function of `mechanisms.release.ExactNoise`,
        on k counts that are then projected, or on k − 1 counts that are then clipped in order; None if
        `mechanisms.publish_counts` cannot release real counts.
    sampler : callable or None
        For a mechanism without a computable distribution: maps (rng, counts, epsilon, delta, size) to `size`
        independent releases, integers ≥ 0 of shape (size, k) with sums n. `build` then returns a release that can only
        be sampled, and ``dpstudies audit`` bounds the loss from draws by `mechanisms.sampled_bound`.

    Privacy
    -------
    The guarantee is for replacement of one record with n public, and for the release only: `CountRelease.counts` and
    `CountRelease.expected_hellinger` depend on the true data and must not be published.

    P0 states (ε, δ)-DP for the smooth mechanisms without a proof, so that guarantee is conjectured. With N ≥ |R| in γ,
    as in ``smooth``, they are (3ε/2, δ)-DP. Proof: let V = H/S at c and V' = H'/S' at its neighbour c', with S ≥ S'. As
    |H − H'| ≤ S' and S ≤ exp(γ)·S', V ≤ V' + 1 and V' ≤ 1 + exp(γ)·V. So the log ratio of the probability at c to that
    at c' is at most ε + (ε/2)·(exp(γ) − 1)·V, where (exp(γ) − 1)·ln(2N/δ) = ε/2, and V > (2/ε)·ln(N/δ) has probability
    at most |R|·δ/N ≤ δ at c. The opposite log ratio is at most ε + γ·ln|R| ≤ 3ε/2, because the entropy of a
    distribution on |R| outputs is at most ln|R|. ``smooth-n`` uses N = n + 1 < |R| at k ≥ 3, so this proof does not
    apply to it.

    The pure loss exceeds ε at skewed priors: at the prior (1e5, 350, 250), n = 20, ε = 10 and δ = 1e-5, ``smooth``
    has a pure loss of 2.35·ε and δ(ε) = 2.2e-9. No case is known that violates (ε, δ)-DP.

    Examples
    --------
    >>> from mechanisms import MECHANISMS
    >>> mechanism = MECHANISMS["smooth"]
    >>> print(mechanism.guarantee(epsilon=1.0, delta=1e-8))
    (1, 1e-08)-DP, conjectured
    >>> round(mechanism.build([1, 1], [50, 50], epsilon=1.0, delta=1e-8).expected_hellinger(), 3)
    0.348
    """

    release: Build | None = field(default=None, repr=False)
    guarantee: Callable[..., Guarantee | None] = field(repr=False)
    needs_delta: bool = False
    require: Callable[[int, int], None] = field(default=lambda n, k: None, repr=False)
    max_epsilon: float = field(default=math.inf, repr=False)
    min_categories: int = 2
    symmetric: bool = False
    uses_prior: bool = True
    calibrate: Callable[[Floats, int, float], Calibration] | None = field(default=None, repr=False)
    evaluation: Literal["formula", "vectors", "program"] = "formula"
    exact_noise: Callable[[int, float, float], ExactSampler] | None = field(default=None, repr=False)
    sampler: SampleCounts | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """Kind of methods that studies of counts accept from users."""
        return "counts"

    @property
    def is_private(self) -> bool:
        """True if the mechanism has a guarantee."""
        return self.guarantee(1.0, 0.5) is not None

    @property
    def status(self) -> Status | None:
        """Evidence for the guarantee; None if there is no guarantee."""
        guarantee = self.guarantee(1.0, 0.5)
        return None if guarantee is None else guarantee.status

    def stated(
        self, epsilon: float, delta: float | None = None, relation: Neighbouring = Neighbouring.REPLACE_ONE
    ) -> Guarantee | None:
        """Return the guarantee under a neighbouring relation; None if there is none.

        Under addition and removal of a record n is private. Released counts reveal their sum n, so no mechanism of this
        registry has a guarantee then.

        Examples
        --------
        >>> from mechanisms import MECHANISMS
        >>> print([str(MECHANISMS["geometric"].stated(1.0, relation=relation)) for relation in Neighbouring])
        ['1-DP', 'None']
        """
        return self.guarantee(epsilon, delta) if validate_relation(relation) is Neighbouring.REPLACE_ONE else None

    def supports(self, n: int, k: int) -> bool:
        """Return True if `build` accepts n records in k categories.

        Examples
        --------
        >>> from mechanisms import MECHANISMS
        >>> MECHANISMS["optimal"].supports(100, 2), MECHANISMS["optimal"].supports(100_000, 2)
        (True, False)
        """
        try:
            self.require(*validate_problem(n, k))
        except ValueError:
            return False
        return True

    def validate(
        self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float | None = None
    ) -> tuple[Floats, Integers, float, float | None]:
        """Validate the arguments of `build` and the problem size; see `validate`."""
        alpha, c, epsilon, delta = validate(prior, counts, epsilon, delta)
        if self.needs_delta and delta is None:
            raise ValueError(f"delta must be given for {self.name}, got None; choose a value well below 1/n")
        self.require(int(c.sum()), c.size)
        if epsilon > self.max_epsilon:
            raise ValueError(
                f"epsilon must be at most {self.max_epsilon:g} for {self.name}, got {epsilon:g}; choose a smaller one"
            )
        return alpha, c, epsilon, delta

    def build(self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float | None = None) -> CountRelease:
        """Return the distribution of the released counts.

        An invalid argument, or a problem that is too large, raises ValueError before any computation.
        """
        alpha, c, epsilon, delta = self.validate(prior, counts, epsilon, delta)
        release = copy(self.at(alpha, c, epsilon, delta or 0.0))
        object.__setattr__(release, "guarantee", self.guarantee(epsilon, delta))
        return release

    def at(self, prior: Floats, counts: Integers, epsilon: float, delta: float) -> CountRelease:
        """Return the distribution of the released counts for validated arguments."""
        if self.sampler is not None:
            return SampledCounts(prior, counts, epsilon, delta, self.sampler)
        if self.release is not None:
            return self.release(prior, counts, epsilon, delta)
        raise ValueError("a Mechanism must have a release or a sampler, got neither; pass release= or sampler=")

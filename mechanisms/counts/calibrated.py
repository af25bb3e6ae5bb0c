"""The rate of a mechanism with exact calibration, a value that entries of mechanisms and their calibrations share."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from mechanisms.core.conjugate import validate_counts
from mechanisms.counts.sensitivity import Rule, global_sensitivity, smooth_sensitivity, varying_sensitivity


@dataclass(frozen=True, eq=False)
class Calibration:
    """Rate of the weights exp(−rate·score/S), with the exact privacy loss.

    The score is the Hellinger distance; for `Rule.HAMMING` it is the number of replaced records, with S = 1. The true
    loss may exceed ε by the rounding of the log probabilities, about 1e-14 (`Audit.rounding`; for `Rule.HAMMING` see
    `mechanisms.counts.hamming`).
    """

    rule: Rule
    prior: tuple[float, ...]
    n: int
    epsilon: float
    gamma: float  # smoothing rate of S per record; 0 for the global sensitivity, NaN for `Rule.HAMMING`
    rate: float
    loss: float  # over all neighbours and outputs, in nats; the computed value is at most `epsilon`

    def sensitivity(self, counts: ArrayLike) -> float:
        """Return S at a data set of `n` records; raise ValueError for other counts."""
        counts = validate_counts(counts, k=len(self.prior), n=self.n)
        if self.rule is Rule.HAMMING:
            return 1.0
        if self.rule is Rule.GLOBAL:
            return global_sensitivity(self.prior, self.n)
        scale = smooth_sensitivity if self.rule is Rule.SMOOTH else varying_sensitivity
        return scale(self.prior, counts, self.gamma)

"""Named scales of the Hellinger score for the exponential mechanisms of P0 and P1.

The exponential mechanism gives a candidate at distance H the weight exp(−share·ε·H/S). Each entry of `SENSITIVITIES`
defines the sensitivity S (see `mechanisms.counts.sensitivity`), its smoothing rate, the fraction of ε and the
guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from mechanisms.arguments import Floats, Integers
from mechanisms.conjugate import count_candidates, validate_counts, validate_prior
from mechanisms.counts.sensitivity import global_sensitivity, local_sensitivity, smooth_sensitivity, varying_sensitivity
from mechanisms.metadata import Entry, Style
from mechanisms.privacy import Guarantee, conjectured_guarantee, no_guarantee, pure_guarantee
from mechanisms.privacy_parameters import validate_delta, validate_epsilon


def smoothing_gamma(epsilon: float, delta: float, n_outputs: int) -> float:
    """Return γ = ln(1 − ε / (2·ln(δ/(2N)))) > 0 per record of P0, where N = n + 1 is printed, exact at k = 2 only."""
    # Separate logarithms, as N may exceed the range of a double.
    return math.log1p(-epsilon / (2.0 * (math.log(delta) - math.log(2.0) - math.log(n_outputs))))


@dataclass(frozen=True)
class Sensitivity(Entry):
    """Scale S of the Hellinger score H, and guarantee of the exponential mechanism with weights exp(−share·ε·H/S)."""

    # validated (prior, counts, epsilon, delta) -> S
    evaluate: Callable[[Floats, Integers, float, float], float] = field(kw_only=True, repr=False)
    share: float = field(kw_only=True)  # fraction of ε in the exponent: ¼ for the varying sensitivity, ½ for the others
    # (epsilon, delta) -> guarantee, or None
    guarantee: Callable[..., Guarantee | None] = field(kw_only=True, repr=False)
    needs_delta: bool = field(default=False, kw_only=True)  # S and the guarantee depend on δ
    min_categories: int = field(default=2, kw_only=True)

    def at(self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float | None = None) -> float:
        """Return the scale S at a data set, in (0, 1]; it is private, except for the global sensitivity."""
        alpha = validate_prior(prior)
        c = validate_counts(counts, k=alpha.size)
        if self.needs_delta or delta is not None:
            delta = validate_delta(delta)
        return self.evaluate(alpha, c, validate_epsilon(epsilon), delta or 0.0)


SENSITIVITIES: dict[str, Sensitivity] = {
    "smooth": Sensitivity(
        name="smooth",
        note="Exponential mechanism on smooth Hellinger sensitivity with N = |R|; P0 states (ε, δ)-DP without proof.",
        evaluate=lambda prior, counts, epsilon, delta: smooth_sensitivity(
            prior, counts, smoothing_gamma(epsilon, delta, count_candidates(int(counts.sum()), counts.size))
        ),
        share=0.5,
        guarantee=conjectured_guarantee,
        needs_delta=True,
        origin="paper",
        paper="P0",
        style=Style("blue", "o"),
    ),
    "smooth-n": Sensitivity(
        name="smooth-n",
        note="As smooth, with N = n + 1 for every k as printed in P0, which states (ε, δ)-DP without proof.",
        evaluate=lambda prior, counts, epsilon, delta: smooth_sensitivity(
            prior, counts, smoothing_gamma(epsilon, delta, int(counts.sum()) + 1)
        ),
        share=0.5,
        guarantee=conjectured_guarantee,
        needs_delta=True,
        origin="paper",
        paper="P0",
        variant="N = n + 1",
        min_categories=3,  # at k = 2 both definitions of N equal n + 1
        style=Style("blue", "p"),
    ),
    "varying": Sensitivity(
        name="varying",
        note="Exponential mechanism on varying Hellinger sensitivity, rate 1 (P1, section 1.3, our interpretation).",
        evaluate=lambda prior, counts, epsilon, delta: varying_sensitivity(prior, counts, gamma=1.0),
        share=0.25,
        guarantee=pure_guarantee,
        origin="paper",
        paper="P1",
        style=Style("purple", "D"),
    ),
    "global": Sensitivity(
        name="global",
        note="Exponential mechanism on the global Hellinger sensitivity (P1, section 1.1).",
        evaluate=lambda prior, counts, epsilon, delta: global_sensitivity(prior, int(counts.sum())),
        share=0.5,
        guarantee=pure_guarantee,
        origin="paper",
        paper="P1",
        style=Style("green", "^"),
    ),
    "local": Sensitivity(
        name="local",
        note=(
            "Not private: its scale is the local sensitivity, which depends on the data (P1, section 1.2); "
            "kept as a negative control."
        ),
        evaluate=lambda prior, counts, epsilon, delta: local_sensitivity(prior, counts),
        share=0.5,
        guarantee=no_guarantee,
        origin="paper",
        paper="P1",
        style=Style("grey", "X"),
    ),
}

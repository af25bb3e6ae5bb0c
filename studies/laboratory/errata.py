"""Errata of the papers, each with numbers that demonstrate it.

The numbers are the evidence of a study's claim, read from its store, or a computation of milliseconds in
`formula_checks`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from studies.laboratory import formula_checks
from studies.laboratory.papers import is_of_paper
from studies.laboratory.results import Results


@dataclass(frozen=True)
class Erratum:
    """An error in a paper.

    Attributes
    ----------
    where, printed, correct : str
        Location, starting with the paper's key; printed statement; correct statement.
    shown : (str, str) or callable
        Study and claim whose evidence demonstrates the error, or a function that computes the numbers.
    """

    where: str
    printed: str
    correct: str
    shown: tuple[str, str] | Callable[[Results], str]


ERRATA = (
    Erratum(
        "P0, Mechanism",
        "With smooth sensitivity the exponential mechanism is (ε, δ)-DP at the published setting, and no better.",
        "It is pure DP at about half of ε. Calibrated by its exact audit, it is pure DP and spends all of ε.",
        ("privacy-audit", "smooth-at-the-published-setting"),
    ),
    Erratum(
        "P0, Mechanism",
        "The number of candidates, in the rate γ, is n + 1.",
        "It is the number of count vectors, C(n + k − 1, k − 1), which is n + 1 for two categories only.",
        formula_checks.candidates,
    ),
    Erratum(
        "P0, Motivation 1",
        "Calibrating the noise to the Hellinger distance improves on noise scaled to the l1 norm.",
        "Laplace noise of the histogram's sensitivity, not of the dimension, is ahead of the published mechanism.",
        ("hellinger-accuracy", "tailored-beats-histogram"),
    ),
    Erratum(
        "P0, Conclusion",
        "The mechanism is ahead of Laplace noise scaled to the dimension for n > 400.",
        "It is ahead with 2 and 3 categories; with 4 it is behind, at least up to n = 600.",
        ("hellinger-accuracy", "beats-dimension-k4"),
    ),
    Erratum(
        "P0, Conclusion and Figure 3b",
        "The same holds for the distribution of the distance (2 categories).",
        "It holds for the mean only: small distances are less likely.",
        ("hellinger-distribution", "ahead-of-dimension-k2"),
    ),
    Erratum(
        "P0, Conclusion and Figure 3c",
        "The same holds for the distribution of the distance (3 categories).",
        "It holds for the mean only.",
        ("hellinger-distribution", "ahead-of-dimension-k3"),
    ),
    Erratum(
        "P0, Motivation 1",
        "Calibrating the noise to the Hellinger distance improves the distribution of the distance.",
        "Laplace noise scaled to the histogram's sensitivity is at least as likely to be within every distance.",
        ("hellinger-distribution", "ahead-of-histogram"),
    ),
    Erratum(
        "P0, Motivation 1",
        "Calibrating the noise to the Hellinger distance improves the distance at the worst data set.",
        "Noise on the counts has a smaller distance there, except for the smallest data sets.",
        ("hellinger-limits", "tailored-is-nearer"),
    ),
    Erratum(
        "P1, statement I",
        "H(x, x+1) > H(x+1, x+2) for x ≤ x₀.",
        "The mirror image of the first half: H(x, x−1) < H(x−1, x−2).",
        ("hellinger-sensitivity", "statement-1-below"),
    ),
    Erratum(
        "P1, statement II",
        "LS(x) is the step towards the nearer edge.",
        "This holds for 0 < x < n; at an edge LS(x) is the step away from the edge.",
        ("hellinger-sensitivity", "statement-2"),
    ),
    Erratum(
        "P1, proof of statement II",
        "H(x₀, x₀−1) = H(x₀, x₀+1).",
        "This holds for even n only.",
        ("hellinger-sensitivity", "statement-2-centre"),
    ),
    Erratum(
        "P1, statement III",
        "LS(x) > LS(x₀) for every x other than x₀.",
        "This holds for n ≥ 4.",
        ("hellinger-sensitivity", "statement-3"),
    ),
    Erratum(
        "P1, section 1.2.2",
        "The proof that local sensitivity is not private uses Beta(1, 1).",
        "With Beta(1, 1) the exact loss stays below ε; a skewed prior gives a counterexample.",
        ("privacy-audit", "local-proof"),
    ),
    Erratum(
        "P2, section 3.1, equation 3.10",
        "The normal score of the mean probability times √M.",
        "√(2M): the partitions' means scatter as widely as each posterior.",
        ("partition-probability", "corrected-does-not"),
    ),
    Erratum(
        "P2, section 3.1",
        "Zellner's g is the number of rows of a partition.",
        "g = n in every partition; otherwise each posterior is shrunk by six posterior standard deviations.",
        ("partition-probability", "g-is-the-partitions-length"),
    ),
    Erratum(
        "P2, section 3.2",
        "The sum of −2 log p has sensitivity −2 ln p*/M.",
        "−2 ln p*: as printed the noise is M times too small.",
        ("partition-probability", "fisher-noise-is-private"),
    ),
    Erratum(
        "P2, section 3.2.1",
        "The −2 log p method has no clear pattern of under- or overestimation.",
        "Its normal score has slope .90 instead of 1.",
        ("partition-probability", "fisher-has-no-pattern"),
    ),
    Erratum(
        "P2, equations 4.3 and 4.5",
        "The aggregate is the sum of the partitions' quantiles.",
        "Their mean: the factor 1/M is missing.",
        formula_checks.sum_of_quantiles,
    ),
    Erratum(
        "P2, section 4.1",
        "Private quantiles are reasonably accurate.",
        "Their errors are several posterior standard deviations, unless part of the budget is spent on their centre.",
        ("partition-quantile", "reasonably-accurate"),
    ),
    Erratum(
        "P3, section 5.1",
        "Gaussian noise of variance λΔ²/ε spends ε at order λ.",
        "Variance λΔ²/(2ε) is sufficient.",
        ("renyi-audit", "gaussian-variance"),
    ),
    Erratum(
        "P3, section 5.1",
        "As ε vanishes the concentrated posterior's loss tends to that at the mode of the prior.",
        "It tends to the loss at the mean of the prior.",
        ("renyi-utility", "limit-of-concentrated"),
    ),
    Erratum(
        "P3, log normaliser of the Beta family",
        "C(η) = Γ(η₁) + Γ(η₂ − η₁) − Γ(η₂).",
        "The formula needs ln Γ instead of Γ.",
        formula_checks.gamma,
    ),
    Erratum("P3, appendix", "ψ₁ is the digamma function.", "It is the trigamma function.", formula_checks.trigamma),
    Erratum(
        "P3, Corollary 2",
        "The supremum over neighbours is the largest divergence to the corners η ± (r, 0) of the parameters.",
        "These corners lie outside the set of posteriors; the exact corners replace one record.",
        ("renyi-curves", "corners-are-the-supremum"),
    ),
    Erratum(
        "P3, section 4.1, example",
        "Theorem 16 covers probit and complementary log-log regression.",
        "It needs the canonical link: the divergence is infinite from a finite order on (probit) or above 1 (cloglog).",
        ("renyi-audit", "links-satisfy-the-theorems"),
    ),
    Erratum(
        "P3, section 4.2",
        "Theorem 16's bound is tight for logistic regression.",
        "It is tight from two dimensions on, in the limit of a weak prior.",
        ("renyi-audit", "bound-is-tight"),
    ),
    Erratum(
        "P3, section 5.2",
        "One posterior sample on the ball of radius c/β loses 4c²ρ/β.",
        "It loses at most 2c²ρ/β, so that twice the power has the same guarantee.",
        ("renyi-audit", "ops-loss"),
    ),
    Erratum(
        "P3, section 5.2",
        "GLM sampling has the better Rényi guarantee than OPS for λ ≤ 2n/ρ.",
        "It is better only against the published guarantee of OPS.",
        ("renyi-audit", "better-than-ops"),
    ),
    Erratum(
        "P4, section 5",
        "The sampler for truncated families is calibrated.",
        "It treats regions as independent, and one step ignores the release; bounds from the true parameter hide it.",
        ("calibration", "bounds-hide-it"),
    ),
    Erratum(
        "P4, Algorithm 2",
        "The sums in the three regions are independent.",
        "They derive from one multinomial: the covariance is −n·q_r·q_s·μ̂_r·μ̂_s.",
        formula_checks.shared_regions,
    ),
    Erratum("P4, Algorithm 3, line 4", "m = n·q.", "m = n·q·μ̂.", formula_checks.random_sum),
    Erratum("P4, supplement", "s ~ N(nμ, sΣ).", "s ~ N(nμ, nΣ).", formula_checks.normal_variance),
    Erratum("P4, equation 2", "Â is the integral of the kernel.", "Â is its logarithm.", formula_checks.kernel_mass),
    Erratum("P4, supplement, Wald density", "Its factor is γ/√(2πt³).", "√(γ/(2πt³)).", formula_checks.wald),
)


def list_errata(results: Results) -> list[tuple[str, str, str, str]]:
    """Return the errata: location, printed statement, correct statement, and numbers.

    Conclusions with the verdict "corrected" that no erratum covers are appended.
    """
    rows = []
    for erratum in ERRATA:
        shown = erratum.shown
        evidence = _evidence(results, *shown) if isinstance(shown, tuple) else shown(results)
        rows.append((erratum.where, erratum.printed, erratum.correct, evidence))
    known = {erratum.shown for erratum in ERRATA}
    rows += [
        (claim.source, claim.statement, "See the numbers.", finding.evidence)
        for name, one in results.items()
        for claim, finding in one.claims
        if finding.verdict == "corrected" and is_of_paper(claim.source) and (name, claim.name) not in known
    ]
    return sorted(rows, key=lambda row: row[0][:2])


def _evidence(results: Results, study: str, name: str) -> str:
    if study not in results:
        return f"The store of {study} is missing."
    for claim, finding in results[study].claims:
        if claim.name == name:
            return finding.evidence
    raise AssertionError(f"{study} has no claim {name}")

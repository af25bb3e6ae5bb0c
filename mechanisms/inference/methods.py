"""Registry of the inference methods that the calibration study compares; the modules document them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mechanisms.metadata import Entry, Style

__all__ = ["INFERENCE_METHODS", "InferenceMethod"]


@dataclass(frozen=True)
class InferenceMethod(Entry):
    """Method of inference on the parameter of an exponential family.

    Attributes
    ----------
    name, note, origin, paper, variant, style
        See `Entry`.
    module : str
        Module of `mechanisms.inference` with the method.
    is_private : bool
        False if the method uses the records themselves.
    """

    module: str = field(kw_only=True)
    is_private: bool = field(default=True, kw_only=True)


INFERENCE_METHODS: dict[str, InferenceMethod] = {
    method.name: method
    for method in (
        InferenceMethod(
            "gibbs",
            "Gibbs sampler of P4 with joint draws of the regions and the full conditional of the sum.",
            module="gibbs",
            origin="paper",
            paper="P4",
            variant="corrected",
            style=Style("blue", "o"),
        ),
        InferenceMethod(
            "gibbs-collapsed",
            "Gibbs sampler with a Metropolis move between modes.",
            module="truncated_gibbs",
            style=Style("blue", "h", "dashed"),
        ),
        InferenceMethod(
            "gibbs-published",
            "Algorithm 2 of P4 as printed.",
            module="truncated_gibbs",
            origin="paper",
            paper="P4",
            style=Style("blue", "p", "dotted"),
        ),
        InferenceMethod(
            "marginal",
            "Posterior with the statistic integrated out, by a normal approximation of its distribution.",
            module="marginal",
            style=Style("purple", "D"),
        ),
        InferenceMethod(
            "exact",
            "Exact posterior of the binomial model: a mixture over all counts.",
            module="binomial_mixture",
            style=Style("purple", "d", "dashed"),
        ),
        InferenceMethod(
            "naive",
            "Conjugate posterior that ignores the noise.",
            module="naive",
            origin="baseline",
            paper="P4",
            style=Style("vermilion", "s"),
        ),
        InferenceMethod(
            "naive-truncated",
            "Conjugate posterior that treats the noisy truncated sum as the sum of all records.",
            module="naive",
            origin="baseline",
            style=Style("vermilion", "v", "dashed"),
        ),
        InferenceMethod(
            "ops",
            "Draws of a tempered, truncated posterior, with a tempered prior (Foulds et al. 2016).",
            module="one_posterior_sample",
            origin="baseline",
            paper="P4",
            style=Style("orange", "^"),
        ),
        InferenceMethod(
            "ops-likelihood",
            "Draws of a truncated posterior with a tempered likelihood only.",
            module="one_posterior_sample",
            style=Style("orange", ">", "dash-dotted"),
        ),
        InferenceMethod(
            "non-private",
            "Not private: the posterior given the records.",
            module="naive",
            origin="reference",
            is_private=False,
            style=Style("grey", "X", "dotted"),
        ),
    )
}
"""Methods by name."""

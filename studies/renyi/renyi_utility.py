"""Utility of Rényi-private draws of a Beta posterior against ε (P3, Figure 2).

Panel `kl` contains the exact divergence of the true posterior from the distribution of a private draw, for 38
successes in 100 records. Panel `loglik` contains the log loss of a private draw on 100 held-out Bernoulli trials, for
simulated data, and its exact expectation. The diffused and concentrated posteriors of `mechanisms.draws.tempered` use
the largest coefficient that satisfies (λ, ε)-RDP. The Gaussian mechanism is evaluated with the published variance and
with the smallest variance that satisfies (λ, ε)-RDP.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from mechanisms.core.sums import weighted_sum
from mechanisms.draws.dirichlet_divergence import dirichlet_renyi
from mechanisms.draws.gaussian_counts import GAUSSIAN_MECHANISMS, GaussianCounts, gaussian_mechanism
from mechanisms.draws.tempered import RENYI_SAMPLERS, RenyiSampling, calibrate_renyi, renyi_sampler
from pipeline import Factor, Figure, Measure, Method, Panel, Scale, Streams, Study
from studies.panels import Values, given, require
from studies.renyi.page_tables import compare_utility
from studies.renyi.ranges import require_in_range
from studies.renyi.renyi_figures import DIVERGENCES, LOSSES
from studies.renyi.renyi_utility_claims import CLAIMS

Array = NDArray[np.float64]

_NOTES = {
    "direct": "One draw of the posterior itself, where it satisfies the guarantee: Algorithm 1 of P3.",
    "diffused": "One draw of the posterior with a smaller weight of the records: Algorithm 2 of P3.",
    "concentrated": "One draw of the posterior with a larger weight of the prior: Algorithm 3 of P3.",
    "gaussian": "One draw of the posterior of noisy counts, published variance; its divergence is half of epsilon.",
    "gaussian-tight": "One draw of the posterior of noisy counts, smallest variance; its divergence is epsilon.",
}
_REFERENCE = "true-posterior"


def _is_tunable(name: str) -> bool:
    """Return True if a mechanism has a parameter that is calibrated to the order and ε."""
    return name in GAUSSIAN_MECHANISMS or RENYI_SAMPLERS[name].is_tunable


@lru_cache(maxsize=4096)  # a bisection per setting, which all trials share
def _calibrate(
    name: str, prior: tuple[float, ...], n: int, order: float, epsilon: float
) -> RenyiSampling | GaussianCounts:
    build = gaussian_mechanism if name in GAUSSIAN_MECHANISMS else calibrate_renyi
    return build(name, prior, n, order, epsilon)


def _build(name: str, setting: Values) -> RenyiSampling | GaussianCounts:
    prior, n = setting["prior"], setting["n"]
    if name == _REFERENCE:
        return renyi_sampler("direct", prior, n, 1.0)
    return _calibrate(name, prior, n, setting["order"], setting["epsilon"])


def _method(name: str, evaluate: Callable[..., dict[str, Any]]) -> Method:
    return Method(name, partial(evaluate, name), uses=("order", "epsilon"), note=_NOTES[name])


def _validate(cell: Values, setting: Values) -> bool:
    prior, n = cell["prior"], cell["n"]
    require(len(prior) == 2, "prior must have 2 entries", len(prior), "the model is binomial")
    renyi_sampler("direct", prior, n, 1.0)
    successes, probability, n_heldout = cell.get("successes", 0), cell.get("probability", 0.5), cell.get("n_heldout", 1)
    require(0 <= successes <= n, f"successes must be in [0, n = {n}]", successes)
    require(0 <= probability <= 1, "probability must be in [0, 1]", probability)
    require(n_heldout >= 1, "n_heldout must be >= 1", n_heldout)
    if "order" not in setting:
        return True
    order, epsilon = (require_in_range(name, setting[name]) for name in ("order", "epsilon"))
    if _is_tunable(setting["mechanism"]):
        return True
    return renyi_sampler(setting["mechanism"], prior, n, 1.0).renyi_epsilon(order) <= epsilon


def _method_factors(first: int) -> tuple[Factor, ...]:
    """Return the orders, and the values of ε: e to the powers `first`, `first` + ½, …, 2."""
    epsilons = tuple(math.exp(half / 2) for half in range(2 * first, 5))
    return (
        Factor("order", (2.0, 15.0), "order of the Rényi divergence"),
        Factor("epsilon", epsilons, "target Rényi divergence of a draw", unit="nat"),
    )


_PRIOR = Factor("prior", ((6.0, 12.0),), "Beta parameters of the prior, whose natural parameters are (6, 18)", "vector")
_N = Factor("n", (100,), "number of records", "int")


def _divergence(name: str, cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    mechanism, n, successes = _build(name, setting), setting["n"], setting["successes"]
    measures = {"spent_epsilon": mechanism.renyi_epsilon(setting["order"])}
    if isinstance(mechanism, GaussianCounts):
        _, probabilities = mechanism.successes_distribution(successes)
        ends = {"mass_at_zero": probabilities[0], "mass_at_n": probabilities[-1]}
        return {**measures, **ends, "kl": mechanism.posterior_kl(successes), "coefficient": np.nan}
    counts = np.array([successes, n - successes])
    kl = dirichlet_renyi(setting["prior"] + counts, mechanism.posterior(counts), 1.0)
    return {**measures, "kl": kl, "coefficient": mechanism.coefficient, "mass_at_zero": np.nan, "mass_at_n": np.nan}


_KL = Panel(
    name="kl",
    meaning="divergence of the true posterior from the distribution of a private draw (P3, Figures 2a and 2b)",
    simulate=given,
    methods=tuple(_method(name, _divergence) for name in _NOTES),
    measures=(
        Measure("kl", "KL divergence of the true posterior from the distribution of a private draw", "nat"),
        Measure("coefficient", "coefficient r or m, if the mechanism has one", ragged=True),
        Measure("spent_epsilon", "exact Rényi divergence over all neighbours; Gaussian: of noisy counts", "nat"),
        Measure("mass_at_zero", "Gaussian: probability that the noisy count is clipped to 0", ragged=True),
        Measure("mass_at_n", "Gaussian: probability that the noisy count is clipped to n", ragged=True),
    ),
    method_factors=_method_factors(-10),
    constants=(_PRIOR, _N, Factor("successes", (38,), "number of successes", "int")),
    method_dim="mechanism",
    validate=_validate,
    version=2,  # sums have a fixed order
)


def _simulate(cell: Values, streams: Streams) -> tuple[Array, Array]:
    """Return the numbers of successes in each trial's records and held-out records."""
    is_success = streams.uniforms(cell["n"] + cell["n_heldout"]) < cell["probability"]
    return is_success[:, : cell["n"]].sum(axis=1), is_success[:, cell["n"] :].sum(axis=1)


def _log_loss(setting: Values, heldout: Array, first: Array, second: Array, uniforms: Array) -> Array:
    """Return, for each trial, the log loss on the held-out records of a draw from Beta(first, second)."""
    theta = special.betaincinv(first, second, uniforms)
    return -special.xlogy(heldout, theta) - special.xlog1py(setting["n_heldout"] - heldout, -theta)


def _expected_log_loss(setting: Values, first: Array, second: Array) -> Array:
    """Return the expectation of the log loss over the draw and the held-out records."""
    q, total = setting["probability"], special.digamma(first + second)
    log_odds = q * special.digamma(first) + (1 - q) * special.digamma(second)
    return setting["n_heldout"] * (total - log_odds)


def _all_data(setting: Values) -> tuple[Array, Array]:
    """Return the numbers of successes, 0 to n, and their probabilities."""
    n, q = setting["n"], setting["probability"]
    s = np.arange(n + 1.0)
    log_choose = special.gammaln(n + 1) - special.gammaln(s + 1) - special.gammaln(n - s + 1)
    return s, np.exp(log_choose + special.xlogy(s, q) + special.xlog1py(n - s, -q))


def _open(uniforms: Array) -> Array:
    """Replace uniforms of 0, where quantiles are infinite, by half of the smallest positive uniform."""
    return np.maximum(uniforms, 2.0**-54)


def _predict(name: str, data: tuple[Array, Array], setting: Values, streams: Streams) -> dict[str, Any]:
    (successes, heldout), mechanism = data, _build(name, setting)
    (alpha, beta), n = setting["prior"], setting["n"]
    s, probabilities = _all_data(setting)
    counts = np.stack([successes, n - successes], axis=1)
    if isinstance(mechanism, GaussianCounts):
        uniforms = _open(streams.uniforms(3))
        released = mechanism.from_uniforms(uniforms[:, :2], counts)
        loss = _log_loss(setting, heldout, alpha + released[:, 0], beta + released[:, 1], uniforms[:, 2])
        distributions = (mechanism.successes_distribution(int(count)) for count in s)
        means = (weighted_sum(p, _expected_log_loss(setting, alpha + c, beta + n - c)) for c, p in distributions)
        expected = np.array(list(means))
    else:
        first, second = mechanism.posterior(counts).T
        loss = _log_loss(setting, heldout, first, second, _open(streams.uniforms(1))[:, 0])
        expected = _expected_log_loss(setting, *mechanism.posterior(np.stack([s, n - s], axis=1)).T)
    return {"heldout_nll": loss, "expected_nll": weighted_sum(probabilities, expected)}


_LOGLIK = Panel(
    name="loglik",
    meaning="log loss of a private draw on held-out records (P3, Figures 2c and 2d)",
    simulate=_simulate,
    methods=(
        *(_method(name, _predict) for name in _NOTES if _is_tunable(name)),
        Method(
            _REFERENCE,
            partial(_predict, _REFERENCE),
            note="Not private: one draw of the true posterior.",
            is_private=False,
        ),
    ),
    measures=(
        Measure("heldout_nll", "negative log likelihood of the held-out records at a private draw", "nat"),
        Measure("expected_nll", "exact expectation of heldout_nll over data and draws", "nat", per_trial=False),
    ),
    method_factors=_method_factors(-15),
    constants=(
        _PRIOR,
        _N,
        Factor("n_heldout", (100,), "number of held-out records", "int"),
        Factor("probability", (0.5,), "probability of a success"),
    ),
    method_dim="mechanism",
    trials=10_000,
    block_trials=2_500,
    validate=_validate,
    version=2,  # sums have a fixed order
)

_FIGURES = (
    Figure(
        "utility-kl",
        "Divergence of the posterior from a private draw (P3, Figures 2a and 2b)",
        "Kullback-Leibler divergence of the true posterior, for 38 successes in 100 records, from the distribution of "
        "a private draw, against epsilon. Left: order 2; right: order 15. Top: linear scale of the paper; bottom: "
        "logarithmic scale, without divergences of 0. The dotted line is the smallest epsilon at which direct sampling "
        "satisfies the guarantee; there is none at order 15.",
        ("kl",),
        DIVERGENCES,
    ),
    Figure(
        "utility-loglik",
        "Log loss of a private draw on held-out records (P3, Figures 2c and 2d)",
        "Negative log likelihood of 100 held-out fair Bernoulli trials at a private draw given 100 other trials, "
        "against epsilon; the bottom row is enlarged. Lines are exact expectations and markers are means of the "
        "simulated trials. Bands show ± 1 standard deviation of the trials for the mechanisms of P3.",
        ("loglik",),
        LOSSES,
    ),
)

STUDY = Study(
    name="renyi-utility",
    papers=("P3",),
    title="Utility of Rényi-private draws of a Beta posterior",
    aim="Compare the utility of private draws by epsilon, including the limits of small and large epsilon.",
    panels=(_KL, _LOGLIK),
    seed=20_171_205,
    claims=CLAIMS,
    figures=_FIGURES,
    quick=Scale(trials=300),
    comparisons=(compare_utility,),
)

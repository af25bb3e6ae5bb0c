"""Claims of the study `renyi-utility` (P3).

Verdicts rest on divergences and expected losses that are exact up to rounding. A separate claim compares the simulated
losses with the expected ones.
"""

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.draws.dirichlet_divergence import dirichlet_renyi
from pipeline import Claim, Erratum, Finding, claim, claims_in, verdict
from studies.claims import Look, correct, highest, joined, listed, named, p3, ratio, span, vector

_PROPOSED = ("diffused", "concentrated")
_GAUSSIAN = ("gaussian", "gaussian-tight")
_ROUNDING = 1e-9
_PUBLISHED: dict[str, Any] = {"order": (2.0, 15.0), "prior": ("6:12",), "n": (100,)}
_KL_ENDS = (math.exp(-10), math.exp(-9.5), math.exp(2))
_NLL_ENDS = (math.exp(-15), math.exp(2))


_AT: dict[str, dict[str, Any]] = {
    "kl": {**_PUBLISHED, "epsilon": (*_KL_ENDS, ...), "successes": (38,)},
    "loglik": {**_PUBLISHED, "n_heldout": (100,), "probability": (0.5,), "epsilon": (*_NLL_ENDS, ...)},
}
"""Panel -> published values, which claims need."""


def _needs(panel: str, *mechanisms: str) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about mechanisms at the published values."""
    return {panel: {**_AT[panel], "mechanism": mechanisms}}


def _by_epsilon(look: Look, panel: str) -> xr.Dataset:
    """Return a panel by ascending ε."""
    return look[panel].sortby("epsilon")


def _problem(summary: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters of the prior, and the counts."""
    successes = int(summary["successes"])
    return vector(summary, "prior"), np.array([successes, int(summary["n"]) - successes])


def _falls(values: xr.DataArray) -> bool:
    """Return True if the values do not increase with ε."""
    return bool((values.diff("epsilon") <= 0).all())


def _power(epsilon: object) -> str:
    return f"e^{np.log(epsilon):.3g}"  # type: ignore[call-overload]


def _by_order(values: xr.DataArray, form: str) -> str:
    """Format values with their orders, such as "0.5 at order 2, 0.6 at order 15"."""
    return ", ".join(f"{format(float(value), form)} at order {value['order']:g}" for value in values)


def _named_by_order(values: xr.DataArray, names: tuple[str, ...], form: str) -> str:
    """Format the values of several mechanisms per order."""
    return "; ".join(
        f"order {of_order['order']:g}: {named(of_order, names, form)}" for of_order in values.transpose("order", ...)
    )


@p3(
    short="At order 2, the proposed posteriors are exact where direct sampling suffices.",
    place="section 5.1",
    needs=_needs("kl", "direct", *_PROPOSED, *_GAUSSIAN),
)
def direct_is_reached(look: Look) -> Finding:
    """At order 2 the diffused and the concentrated posterior have divergence zero where direct sampling suffices, and
    the Gaussian mechanism always a positive one.
    """
    summary = _by_epsilon(look, "kl").sel(order=2.0)
    threshold = float(summary["spent_epsilon"].sel(mechanism="direct").max())
    reachable, kl = summary["epsilon"] >= threshold, summary["kl"]
    others = kl.sel(mechanism=list(_GAUSSIAN)).min("epsilon")
    return verdict(
        ((kl.sel(mechanism=list(_PROPOSED)) == 0) == reachable).all() and (others > 0).all(),
        f"Direct sampling has epsilon {threshold:.5f}. For both posteriors the divergence is 0 at the "
        f"{int(reachable.sum())} stored epsilon above it and positive at the {int((~reachable).sum())} below; it is at "
        f"least {named(others, _GAUSSIAN, '.2g')}.",
    )


@p3(
    short="At order 15, only the divergence of the Gaussian mechanism approaches 0.",
    place="section 5.1",
    needs=_needs("kl", *_PROPOSED, "gaussian"),
)
def bounded_away(look: Look) -> Finding:
    """At order 15 the divergences of the diffused and the concentrated posterior are bounded away from 0, while that of
    the Gaussian mechanism approaches 0.
    """
    summary = _by_epsilon(look, "kl").sel(order=15.0)
    prior, counts = _problem(summary)
    largest = float(prior.min() / 14)
    ends = np.array([prior + largest * counts, prior / largest + counts])
    limits = xr.DataArray(dirichlet_renyi(prior + counts, ends, 1.0), {"mechanism": list(_PROPOSED)}, ("mechanism",))
    proposed, kl = summary.sel(mechanism=list(_PROPOSED)), summary["kl"].sel(mechanism="gaussian")
    holds = (proposed["coefficient"] < largest).all() and (proposed["kl"] > limits * (1 - _ROUNDING)).all()
    return verdict(
        holds and (kl.diff("epsilon") < 0).all() and kl[-1] < limits[-1],
        f"Coefficients are below {largest:.4f}. Smallest divergences: "
        f"{named(proposed['kl'].min('epsilon'), _PROPOSED, '.4g')}; limits: {named(limits, _PROPOSED, '.4g')}. That of "
        f"the Gaussian mechanism decreases to {kl[-1]:.2g} at epsilon = {_power(kl['epsilon'][-1])}.",
    )


@p3(
    short="As epsilon tends to 0, the diffused posterior tends to the prior.",
    place="section 5.1",
    needs=_needs("kl", "diffused"),
)
def diffused_degrades_to_the_prior(look: Look) -> Finding:
    """As epsilon tends to 0, the diffused posterior tends to the prior, with a moderate divergence."""
    summary = _by_epsilon(look, "kl")
    (prior, counts), divergences = _problem(summary), summary["kl"].sel(mechanism="diffused")
    limit = float(dirichlet_renyi(prior + counts, prior, 1.0))
    share = divergences.isel(epsilon=0) / limit
    return verdict(
        _falls(divergences) and (divergences < limit).all() and (share > 0.9).all(),
        f"The divergence from the prior is {limit:.4f}. That from the diffused posterior at epsilon = "
        f"{_power(share['epsilon'])} is {_by_order(share, '.1%')} of it, and never exceeds it.",
    )


@p3(
    short="As epsilon tends to 0, the concentrated posterior tends to a point mass.",
    place="section 5.1",
    needs=_needs("kl", "concentrated"),
)
def concentrated_degrades_to_a_point(look: Look) -> Finding:
    """As epsilon tends to 0, the concentrated posterior tends to a point mass, with an unbounded divergence."""
    divergences = _by_epsilon(look, "kl")["kl"].sel(mechanism="concentrated")
    first, second = (divergences.isel(epsilon=place, drop=True) for place in (0, 1))
    slopes = np.log(first / second) / np.log(divergences["epsilon"].values[0] / divergences["epsilon"].values[1])
    return verdict(
        _falls(divergences) and (abs(slopes + 1) < 0.1).all(),
        f"Divergence at epsilon = {_power(divergences['epsilon'][0])}: {_by_order(first, '.0f')}. It is unbounded: "
        f"proportional to epsilon to the power {_by_order(slopes, '.3f')}.",
    )


@p3(
    short="As epsilon tends to 0, the Gaussian mechanism becomes bimodal.",
    place="section 5.1",
    needs=_needs("kl", *_GAUSSIAN),
)
def gaussian_is_bimodal(look: Look) -> Finding:
    """As epsilon tends to 0, the distribution of the Gaussian mechanism becomes bimodal because it clips the counts."""
    ends = _by_epsilon(look, "kl")[["mass_at_zero", "mass_at_n"]].to_array("end").sel(mechanism=list(_GAUSSIAN))
    first = ends.isel(epsilon=0)
    evidence = "; ".join(
        f"{name}, order {order:g}: {listed(first.sel(mechanism=name, order=order), '.3f').replace(', ', ' and ')}"
        for name in _GAUSSIAN
        for order in first["order"].values
    )
    return verdict(
        _falls(ends) and (ends < 0.5).all() and (first > 0.25).all(),
        "The probabilities that the noisy count is clipped to 0 and to n increase towards 1/2 as epsilon decreases. At "
        f"epsilon = {_power(first['epsilon'])}: {evidence}.",
    )


@claim(
    short="Calibrated mechanisms spend epsilon; with the published variance, half of it.",
    kind="self-check",
    place="P3 uses twice the variance that (order, epsilon)-RDP needs",
    needs=_needs("kl", "direct", *_PROPOSED, *_GAUSSIAN),
)
@joined(
    "Ratio of divergence to epsilon, unless the posterior itself may be released or the coefficient is within a "
    "relative distance of 1e-6 of the asymptote: {}."
)
def spent_epsilon(look: Look) -> Iterator[Finding]:
    """The Rényi divergence of calibrated mechanisms is epsilon and never more; with the published variance, that of the
    Gaussian mechanism is half of epsilon.
    """
    summary = _by_epsilon(look, "kl")
    share, coefficient = summary["spent_epsilon"] / summary["epsilon"], summary["coefficient"]
    at_asymptote = coefficient * (summary["order"] - 1) >= vector(summary, "prior").min() * (1 - 1e-6)
    tuned = share.where(~at_asymptote & (coefficient != 1))
    for name, expected in (("diffused", 1.0), ("concentrated", 1.0), ("gaussian-tight", 1.0), ("gaussian", 0.5)):
        spent = tuned.sel(mechanism=name)
        yield verdict(abs(spent - expected).max() < 1e-6, f"{name} {spent.min():.6f} to {spent.max():.6f}")
    n_excluded = f"{int(at_asymptote.sum())} settings are near the asymptote"
    yield verdict((share.fillna(0) <= 1 + _ROUNDING).all(), f"maximum {share.max():.12f}; {n_excluded}")


def _winners(values: xr.DataArray, names: tuple[str, ...]) -> list[tuple[float, tuple[str, ...]]]:
    """Return, for each stored ε in ascending order, the mechanisms that attain the smallest value."""
    means = values.sel(mechanism=list(names)).transpose("epsilon", "mechanism").values
    ties = means == np.nanmin(means, axis=1, keepdims=True)
    best = [tuple(name for name, is_best in zip(names, row, strict=True) if is_best) for row in ties]
    return list(zip(values["epsilon"].values.tolist(), best, strict=True))


_MEASURES = {
    "kl": ("kl", "kl", "divergence of the posterior", "divergence"),
    "nll": ("loglik", "expected_nll", "expected loss on held-out records", "loss"),
}
"""Label -> panel, measure, and its meaning in full and in brief."""


def _ahead_of(label: str, rival: str) -> Claim:
    """Return the claim that, at each order, a proposed mechanism has a smaller measure than a rival for some ε."""
    panel, measure, situation, brief = _MEASURES[label]
    is_tight = rival == "gaussian-tight"
    added = ", compared with the tight variance" if is_tight else ""
    statement = f"The proposed mechanisms outperform the Gaussian mechanism in specific situations: {situation}{added}."

    @p3(
        f"{label}-ahead-of-{rival}",
        statement,
        short=f"Proposed mechanisms outperform {rival} in some situations, by {brief}.",
        place="section 6",
        kind="addition" if is_tight else "conclusion",
        needs=_needs(panel, *_PROPOSED, rival),
    )
    @joined("{}", " ")
    def check(look: Look) -> Iterator[Finding]:
        for values in _by_epsilon(look, panel)[measure].transpose("order", ...):
            winners = _winners(values, (*_PROPOSED, rival))
            n_ahead = sum(rival not in best for _, best in winners)
            runs = []
            for best, run in groupby(winners, key=lambda winner: winner[1]):
                epsilons = [_power(epsilon) for epsilon, _ in run]
                runs.append(f"{' = '.join(best)} at {' to '.join(dict.fromkeys((epsilons[0], epsilons[-1])))}")
            at = f"Order {values['order']:g}, better at {n_ahead} of {len(winners)} epsilon"
            yield verdict(n_ahead > 0, f"{at}; best: {', '.join(runs)}.")

    return check


def _tight_ahead(label: str) -> Claim:
    """Return the claim that the tight variance has smaller values than the published one in all settings."""
    panel, measure, situation, brief = _MEASURES[label]
    statement = f"The tight variance outperforms the published one at every order and epsilon: {situation}."

    @claim(
        f"{label}-tight-ahead-of-published",
        statement,
        short=f"The tight variance outperforms the published one everywhere, by {brief}.",
        kind="addition",
        needs=_needs(panel, *_GAUSSIAN),
    )
    def check(look: Look) -> Finding:
        ratios = ratio(_by_epsilon(look, panel)[measure], *_GAUSSIAN)
        n_behind, values = int((ratios <= 1).sum()), span(ratios, ".4g")
        evidence = f"Ratio of published to tight: {values} at {ratios.size} settings; at most 1 in {n_behind}."
        return verdict(not n_behind, evidence)

    return check


kl_ahead_of_gaussian, nll_ahead_of_gaussian, kl_ahead_of_tight, nll_ahead_of_tight = (
    _ahead_of(label, rival) for rival in _GAUSSIAN for label in _MEASURES
)
kl_tight_ahead, nll_tight_ahead = map(_tight_ahead, _MEASURES)


@p3(
    short="Losses on held-out records have the same limits as the divergence.",
    place="section 5.1",
    needs={**_needs("kl", "direct"), **_needs("loglik", *_PROPOSED, "gaussian", "true-posterior")},
)
def same_limits(look: Look) -> Finding:
    """The losses on held-out records have the same limits in epsilon as the divergence."""
    direct, summary = _by_epsilon(look, "kl"), _by_epsilon(look, "loglik")
    threshold = float(direct["spent_epsilon"].sel(order=2.0, mechanism="direct").max())
    losses = summary["expected_nll"]
    true = losses.sel(mechanism="true-posterior")
    excess = losses - true
    low, high = (excess.sel(order=order, mechanism=list(_PROPOSED)) for order in (2.0, 15.0))
    gaussian, last = excess.sel(mechanism="gaussian"), excess.isel(epsilon=-1)
    numbers = _named_by_order(last.sel(order=[2.0, 15.0]), (*_PROPOSED, "gaussian"), ".2g")
    return verdict(
        ((abs(low) < 1e-9) == (excess["epsilon"] >= threshold)).all()
        and (abs(high) > 1e-3).all()
        and (gaussian.diff("epsilon") < 0).all()
        and (gaussian > 0).all(),
        f"Excess of the expected loss over that of the true posterior, {true.isel(order=0, epsilon=0):.4f}, at epsilon "
        f"= {_power(last['epsilon'])}: {numbers}. At order 2 it is 0 for epsilon >= {threshold:.5f}.",
    )


@p3(
    short="As epsilon tends to 0, the concentrated posterior has the smallest loss.",
    place="section 5.1",
    needs=_needs("loglik", *_PROPOSED, *_GAUSSIAN),
)
def favours_concentrated(look: Look) -> Finding:
    """As epsilon tends to 0, the concentrated posterior has the smallest expected loss on held-out records."""
    losses = _by_epsilon(look, "loglik")["expected_nll"].isel(epsilon=0)
    rivals = ("diffused", *_GAUSSIAN)
    numbers = _named_by_order(losses, ("concentrated", *rivals), ".2f")
    holds = (losses.sel(mechanism=list(rivals)) > losses.sel(mechanism="concentrated")).all()
    return verdict(holds, f"Expected loss at epsilon = {_power(losses['epsilon'])}; {numbers}.")


@p3(
    short="As epsilon tends to 0, the concentrated loss tends to that at the prior mode.",
    place="section 5.1",
    needs=_needs("loglik", "concentrated"),
    erratum=Erratum(
        "As ε vanishes the concentrated posterior's loss tends to that at the mode of the prior.",
        "It tends to the loss at the mean of the prior.",
    ),
)
def limit_of_concentrated(look: Look) -> Finding:
    """As epsilon tends to 0, the loss of the concentrated posterior tends to that at the mode of the prior."""
    summary = _by_epsilon(look, "loglik")
    first, second = vector(summary, "prior")
    mean, mode = first / (first + second), (first - 1) / (first + second - 2)
    q, n_heldout = float(summary["probability"]), float(summary["n_heldout"])
    at_mean, at_mode = (-n_heldout * (q * np.log(theta) + (1 - q) * np.log1p(-theta)) for theta in (mean, mode))
    losses = summary["expected_nll"].sel(mechanism="concentrated").isel(epsilon=0)
    return correct(
        (abs(losses - at_mode) < 0.01).all(),
        (abs(losses - at_mean) < 0.01).all(),
        f"Expected loss at epsilon = {_power(losses['epsilon'])}: {_by_order(losses, '.4f')}. It is {at_mean:.4f} at "
        f"the mean of the prior, {mean:.4f}, and {at_mode:.4f} at its mode, {mode:.4f}. As its weight increases, the "
        "prior concentrates at its mean.",
    )


@claim(short="Mean losses of draws agree with their exact expectations.", kind="self-check", needs={"loglik": {}})
def draws_agree(look: Look) -> Finding:
    """The mean loss of the draws equals its exact expectation within 5 Monte Carlo standard errors."""
    summary = look["loglik"]
    errors = abs(summary["heldout_nll_mean"] - summary["expected_nll"]) / summary["heldout_nll_mcse"]
    evidence = f"Largest deviation in standard errors among {int(errors.count())} settings: {highest(errors, '.2f')}."
    return verdict((errors <= 5).all(), f"{evidence} At most 5 are allowed.")


CLAIMS = claims_in(globals())

"""What P3 proves and says of its samplers, checked on what audits found, and what is drawn of it.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi differential privacy mechanisms for posterior sampling", NeurIPS 2017. Wang,
Fienberg & Smola, "Privacy for free: posterior sampling and stochastic gradient Monte Carlo", ICML 2015.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import GAUSSIAN_VARIANCES, RENYI_SAMPLERS, pure_renyi
from mechanisms.glm.worst_case import LARGEST_SHARE_1D
from pipeline import Claim, Figure, Finding
from pipeline.declare.factors import format_value
from pipeline.declare.study import Verdict

Summaries = Mapping[str, xr.Dataset]

_ROUNDING = 1e-6  # relative; quadrature agrees with itself to 1e-7
_TIGHT = 0.99
_SETTLED = 0.01  # relative change on doubling a box, below which a divergence has settled


def _at(values: xr.DataArray) -> str:
    """Say at which coordinates the largest value stands."""
    one = values.isel(values.fillna(-np.inf).argmax(...))
    return ", ".join(f"{name} = {format_value(one[name].item())}" for name in values.dims)


def logistic_shares(ds: xr.Dataset) -> xr.DataArray:
    """Return what panel `logistic` spends of what is stated, at the order or along the linear curve."""
    return (ds["renyi_epsilon"] / ds["stated_epsilon"]).clip(min=ds["curve_share"])


def _theorems_hold(summaries: Summaries) -> Finding:
    ds = summaries["logistic"]
    shares = logistic_shares(ds)
    broken = int((shares > 1 + _ROUNDING).sum())
    largest = [
        f"{name} {float(shares.sel(mechanism=name).max()):.4f} ({_at(shares.sel(mechanism=name))})"
        for name in ds["mechanism"].values.tolist()
    ]
    return Finding(
        "not reproduced" if broken else "reproduced",
        f"{broken} of {int(shares.count())} audits exceed what is stated. Largest share of it, at the order or along "
        f"the linear curve: {'; '.join(largest)}.",
    )


def _bound_is_tight(summaries: Summaries) -> Finding:
    ds = summaries["tightness"]
    largest = {d: ds["share"].sel(dimension=d).max(("order", "precision")) for d in (1, 2)}
    top = {d: float(one.max()) for d, one in largest.items()}
    climb = ", ".join(f"{float(one):.5f} at beta = {float(one['beta']):g}" for one in largest[2].sortby("beta", False))
    verdict: Verdict = "not reproduced"
    if top[2] >= _TIGHT and max(top.values()) <= 1 + _ROUNDING:
        verdict = "reproduced" if top[1] >= _TIGHT else "corrected"
    return Finding(
        verdict,
        f"Share of the bound in two dimensions: {climb}; it is tight in the limit of small beta. In one dimension the "
        f"largest is {top[1]:.4f}, and none is above {LARGEST_SHARE_1D:.4f}.",
    )


def _links_satisfy(summaries: Summaries) -> Finding:
    ds = summaries["links"]
    excess = ds["renyi_epsilon"] / ds["bound"]
    evidence, broken = [], []
    for link in ("probit", "cloglog"):
        one = excess.sel(link=link)
        limit = float(ds["critical_order"].sel(link=link).min())
        finite = one.where(np.isfinite(one))
        broken.append(bool((one > 1 + _ROUNDING).any()))
        divergence = ds["renyi_epsilon"].sel(link=link).isel(finite.fillna(-np.inf).argmax(...))
        kl = one.sel(order=1.0)
        where = "at every order above 1" if limit == 1 else f"from order {limit:g} on"
        evidence.append(
            f"{link}: infinite {where}; largest finite divergence {float(divergence):.5g}, "
            f"{float(finite.max()):.5g} times the bound ({_at(finite)}); Kullback-Leibler "
            f"{', '.join(f'{float(kl.sel(n=n)):.4g} (n = {n})' for n in ds['n'].values.tolist())} times the bound"
        )
    logistic = float(excess.sel(link="logistic").max())
    return Finding(
        "not reproduced" if all(broken) else "corrected" if any(broken) else "reproduced",
        f"n·beta = {format_value(ds['precision'].item())}, norms up to 1, one dimension. {'. '.join(evidence)}. "
        f"Logistic: at most {logistic:.4f} of the bound.",
    )


def _orders_diverge(summaries: Summaries) -> Finding:
    ds = summaries["links"].sel(n=1)  # other data push the distributions far out, where a box of this size says little
    boxed = ds["divergence_on_box"].sortby("reach")
    finite = np.isfinite(ds["renyi_epsilon"])
    settled = abs(boxed.isel(reach=-1) / boxed.isel(reach=-2) - 1) <= _SETTLED
    holds = bool((settled == finite).all())
    widest = float(boxed["reach"].max())
    shown = [
        f"{link} at order {order:g}: {', '.join(f'{value:.5g}' for value in one.values.tolist())}"
        for link, order in (("logistic", 5.0), ("probit", 2.0), ("probit", 5.0), ("cloglog", 1.5))
        for one in [boxed.sel(link=link, order=order)]
    ]
    return Finding(
        "reproduced" if holds else "not reproduced",
        f"Divergences at n = 1 on boxes of growing size, to [-{widest:g}, {widest:g}], {'; '.join(shown)}. Below the "
        f"stated order they settle in {int((settled & finite).sum())} of {int(finite.sum())} cases, from it on they "
        f"grow in {int((~settled & ~finite).sum())} of {int((~finite).sum())}.",
    )


def _published_loss(ds: xr.Dataset) -> xr.DataArray:
    """Return 4c²ρ/β at c = 1, which Wang et al. prove."""
    return 4 * ds["power"] / ds["beta"]


def _ops_is_conservative(summaries: Summaries) -> Finding:
    ops = summaries["ops"].sel(mechanism="ops")
    shares = ops["pure_loss"] / _published_loss(ops)
    top = float(shares.max())
    curve = float((ops["renyi_epsilon"] / ops["stated_epsilon"]).max())
    verdict: Verdict = (
        "not reproduced" if max(top, curve) > 1 + _ROUNDING else "corrected" if top <= 0.5 else "reproduced"
    )
    return Finding(
        verdict,
        f"The largest loss is {top:.4f} of the published one ({_at(shares)}), {2 * top:.4f} of 2c²ρ/beta, which holds, "
        f"as the log-likelihood of a record ranges over c²/beta on the ball. Rényi divergences reach {curve:.4f} of "
        "the smaller of the curve of that loss and the linear one of log-concave distributions, which holds on a ball, too.",
    )


def _better_than_ops(summaries: Summaries) -> Finding:
    ds = summaries["ops"]
    ops, glm = (ds.sel(mechanism=name) for name in ("ops", "glm-diffused"))
    linear, loss = glm["stated_epsilon"], _published_loss(ds)
    claimed = (ds["order"] <= 2 * ds["n"] / ds["power"]) & linear.notnull()
    published = bool(((linear <= loss * (1 + 1e-12)) == claimed).all())
    curve = xr.apply_ufunc(np.vectorize(lambda half, order: pure_renyi(half, order)), loss / 2, ds["order"])
    ahead = (linear <= curve) & claimed
    spends_less = ops["renyi_epsilon"] <= glm["renyi_epsilon"] * (1 + _ROUNDING)
    never_worse = ops["stated_epsilon"] <= linear * (1 + 1e-12)
    n_claimed = int(claimed.sum())
    return Finding(
        "not reproduced" if not published else "reproduced" if int(ahead.sum()) == n_claimed else "corrected",
        f"Of {claimed.size} cases λ <= 2n/ρ holds in {n_claimed}; "
        f"{'these are' if published else 'these are not'} those where the published guarantee is the better one. "
        f"Against the Rényi curve of OPS's own loss 2c²ρ/beta it is better in {int(ahead.sum())} of them, in "
        f"{int((ahead & (ds['beta'] > ds['n'])).sum())} with beta above n. The linear bound holds on a ball, too: with "
        f"it OPS's guarantee is as good or better in {int(never_worse.sum())} cases, and OPS was found to spend no "
        f"more in {int(spends_less.sum())}.",
    )


def _suprema_are_exact(summaries: Summaries) -> Finding:
    ds = summaries["dirichlet"]
    evidence, exact = [], True
    for name in (name for name in RENYI_SAMPLERS if name in ds["mechanism"].values):
        one = ds.sel(mechanism=name)
        same_infinities = np.isinf(one["enumerated_epsilon"]) == np.isinf(one["stated_epsilon"])
        errors = {
            what: (abs(one[f"{what}_epsilon"] / one["stated_epsilon"] - 1)).where(np.isfinite(one["stated_epsilon"]))
            for what in ("enumerated", "quadrature")
        }
        worst = {what: float(error.max()) for what, error in errors.items()}
        exact &= bool(same_infinities.all()) and max(worst.values()) <= _ROUNDING
        evidence.append(
            f"{name} {worst['enumerated']:.1e} by enumeration in {int(errors['enumerated'].count())} cases, "
            f"{worst['quadrature']:.1e} by quadrature in {int(errors['quadrature'].count())}"
        )
    return Finding(
        "reproduced" if exact else "not reproduced",
        f"Relative difference between what is stated and what was found over all neighbours: {'; '.join(evidence)}.",
    )


def _gaussian_spends_half(summaries: Summaries) -> Finding:
    ds = summaries["dirichlet"]
    shares = ds["quadrature_epsilon"] / ds["epsilon"]
    top = {name: float(shares.sel(mechanism=name).max()) for name in GAUSSIAN_VARIANCES}
    published = top["gaussian"]
    verdict: Verdict = (
        "not reproduced" if published > 1 + _ROUNDING else "reproduced" if published > 0.5001 else "corrected"
    )
    return Finding(
        verdict,
        f"Largest divergence of the released counts over epsilon: {published:.4f} with the published variance "
        f"λ/epsilon, {top['gaussian-tight']:.4f} with half of it.",
    )


CLAIMS = (
    Claim(
        "theorems-hold",
        "A draw of the weights of a logistic regression is (λ, 2c²λ/(n·beta))-RDP, and Algorithms 4 and 5 are "
        "(λ, epsilon)-RDP, with a linear curve at all orders.",
        "P3, Theorems 16 and 17",
        {"logistic": {"dimension": (1, 2), "mechanism": ("glm-concentrated", "glm-diffused", "true-posterior")}},
        _theorems_hold,
    ),
    Claim(
        "bound-is-tight",
        "Theorem 16's bound is tight for logistic regression.",
        "P3, section 4.2",
        {"tightness": {"dimension": (1, 2), "beta": (0.001, 1e-6)}},
        _bound_is_tight,
    ),
    Claim(
        "links-satisfy-the-theorems",
        "Theorem 16 holds with B = 1 for probit and complementary log-log regression, as it does for logistic "
        "regression.",
        "P3, section 4.1, example",
        {"links": {"order": (1.0,), "n": (1,), "link": ("logistic", "probit", "cloglog")}},
        _links_satisfy,
    ),
    Claim(
        "orders-that-diverge",
        "A probit's divergences are infinite from λ = 1 + n·beta/c² on, a complementary log-log's at every λ > 1, a "
        "logistic model's at none.",
        "check of this study",
        {
            "links": {
                "n": (1,),
                "order": (1.5, 2.0, 5.0),
                "reach": (10.0, 80.0),
                "link": ("logistic", "probit", "cloglog"),
                "precision": (1.0,),
            }
        },
        _orders_diverge,
    ),
    Claim(
        "ops-loss",
        "One posterior sample on the ball of radius c/beta loses up to 4c²ρ/beta.",
        "Wang, Fienberg & Smola 2015, as P3 states it in section 5.2",
        {"ops": {"mechanism": ("ops",), "n": (1, 1_000), "beta": (0.001, 10.0)}},
        _ops_is_conservative,
    ),
    Claim(
        "better-than-ops",
        "Posterior sampling on the whole space has the better Rényi guarantee than OPS at all orders λ <= 2n/ρ.",
        "P3, section 5.2",
        {"ops": {"mechanism": ("ops", "glm-diffused"), "n": (1, 1_000), "beta": (0.001, 10.0)}},
        _better_than_ops,
    ),
    Claim(
        "suprema-are-exact",
        "What the samplers for exponential families state is the largest divergence over all neighbours, exactly.",
        "check of this study",
        {"dirichlet": {"mechanism": tuple(RENYI_SAMPLERS)}},
        _suprema_are_exact,
    ),
    Claim(
        "gaussian-variance",
        "Gaussian noise of variance λ/epsilon on the number of successes spends epsilon at order λ.",
        "P3, section 5.1",
        {"dirichlet": {"mechanism": tuple(GAUSSIAN_VARIANCES), "n": (30,)}},
        _gaussian_spends_half,
    ),
)


# Figures


def _draw_logistic(summaries: Summaries) -> Any:
    from studies.figures import draw_shares

    ds = summaries["logistic"]
    share = (ds["renyi_epsilon"] / ds["stated_epsilon"]).max(("n", "epsilon")).stack(at=("dimension", "beta"))
    labels = [f"d = {d}, β = {format_value(beta)}" for d, beta in share["at"].values.tolist()]
    share = share.drop_vars(("at", "dimension", "beta")).assign_coords(at=labels)
    share.attrs.update(long_name="divergence / stated", units="1")
    return draw_shares(share.to_dataset(name="share"), "order", "share", "at", "mechanism")


def _draw_tightness(summaries: Summaries) -> Any:
    from studies.renyi.renyi_audit_figures import draw_tightness

    return draw_tightness(summaries["tightness"])


def _draw_links(summaries: Summaries) -> Any:
    from studies.renyi.renyi_audit_figures import draw_links

    return draw_links(summaries["links"])


def _draw_ops(summaries: Summaries) -> Any:
    from studies.figures import draw_shares

    ds = summaries["ops"]
    loss = ds["pure_loss"].sel(mechanism="ops", drop=True)
    bounds = {"4c²ρ/β (published)": _published_loss(ds), "2c²ρ/β": _published_loss(ds) / 2}
    share = xr.concat([(loss / bound).max("power") for bound in bounds.values()], xr.Variable("bound", list(bounds)))
    share.attrs.update(long_name="largest loss / bound", units="1")
    return draw_shares(ds.drop_dims("mechanism").assign(share=share), "beta", "share", "n", "bound")


def _draw_dirichlet(summaries: Summaries) -> Any:
    from studies.figures import draw_shares

    ds = summaries["dirichlet"].drop_sel(mechanism="direct", errors="ignore")
    found = ds["enumerated_epsilon"].fillna(ds["quadrature_epsilon"])
    share = (found / ds["epsilon"]).max(("n", "epsilon"))
    share.attrs.update(long_name="divergence / ε", units="1")
    return draw_shares(ds.assign(share=share), "order", "share", "prior", "mechanism")


FIGURES = (
    Figure(
        "audit-logistic",
        "What sampling of logistic regression spends of its guarantee",
        "The largest divergence that was found over replacements of a record, as a share of what is stated, against "
        "the order, one line a dimension of the records and a beta; the largest over all n and epsilon stored. The "
        "true posterior is compared with Theorem 16's bound. The line at 1 is what is stated.",
        ("logistic",),
        _draw_logistic,
    ),
    Figure(
        "audit-tightness",
        "How near data come to Theorem 16's bound",
        "The divergence over its bound for data made for it, against beta, on a logarithmic axis, one picture a "
        "dimension of the records and a precision of the prior, one line an order. The thin line is the limit of large "
        "n and n·beta. In two dimensions it climbs to 1 as beta falls, in one dimension to 0.2765.",
        ("tightness",),
        _draw_tightness,
    ),
    Figure(
        "audit-links",
        "Divergences with links that are not canonical",
        "Above: the largest divergence that was found against the order, for three links and three numbers of records, "
        "with the bound that P3 states for all of them as a thin line; the sign of infinity stands for an infinite "
        "divergence. Below: the divergence at the largest order for weights in a box, against half its width. "
        "It settles for the logistic link, and grows without bound for the two others. The vertical axes are "
        "logarithmic.",
        ("links",),
        _draw_links,
    ),
    Figure(
        "audit-ops",
        "What one posterior sample on a ball loses",
        "The largest pure loss that was found in one dimension, over the published bound and over half of it, against "
        "beta, one line a number of records; the larger of those at the powers stored. The line at 1 is the bound.",
        ("ops",),
        _draw_ops,
    ),
    Figure(
        "audit-dirichlet",
        "What sampling of exponential families spends of its target",
        "The largest divergence over all neighbours as a share of the epsilon that is given, against the order, one "
        "line a prior; the largest over all n and epsilon stored. By enumeration for posterior sampling, by quadrature "
        "for Gaussian noise. The line at 1 is the target.",
        ("dirichlet",),
        _draw_dirichlet,
    ),
)

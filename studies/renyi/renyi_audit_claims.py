"""Claims of the study `renyi-audit` (P3)."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from mechanisms import GAUSSIAN_MECHANISMS, RENYI_SAMPLERS
from mechanisms.glm.worst_case import LARGEST_SHARE_1D
from mechanisms.renyi.conversions import pure_renyi
from pipeline import Erratum, Finding, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import Stored, correct, highest, joined, largest, listed, p3, place

_ROUNDING = 1e-6  # relative tolerance; quadrature is accurate to 1e-7
_TIGHT = 0.99
LINKS = ("logistic", "probit", "cloglog")
_SETTLED = 0.01  # a divergence has converged if doubling the interval changes it by a smaller fraction


def logistic_shares(ds: xr.Dataset) -> xr.DataArray:
    """Return the largest ratio of divergence to bound per cell of panel `logistic`, at its order and over the curve."""
    return (ds["renyi_epsilon"] / ds["stated_epsilon"]).clip(min=ds["curve_share"])


@p3(place="Theorems 16 and 17")
def theorems_hold(summaries: Stored) -> Finding:
    """A posterior draw of the weights of a logistic regression is (λ, 2c²λ/(n·beta))-RDP, and Algorithms 4 and 5 are
    (λ, epsilon)-RDP; the bounds are linear in λ.
    """
    names = ("glm-concentrated", "glm-diffused", "true-posterior")
    ds = summaries.need("logistic", dimension=(1, 2), mechanism=names)
    shares = logistic_shares(ds)
    broken = int((shares > 1 + _ROUNDING).sum())
    stored = ds["mechanism"].values.tolist()
    parts = (f"{name} {highest(shares.sel(mechanism=name), '.4f')}" for name in stored)
    return verdict(
        not broken,
        f"{broken} of {int(shares.count())} audits exceed the bound. Largest ratio of divergence to bound, at the "
        f"order or along the linear curve: {'; '.join(parts)}.",
    )


@p3(
    place="section 4.2",
    erratum=Erratum(
        "Theorem 16's bound is tight for logistic regression.",
        "It is tight from two dimensions on, in the limit of a weak prior.",
    ),
)
def bound_is_tight(summaries: Stored) -> Finding:
    """The bound of Theorem 16 is tight for logistic regression."""
    ds = summaries.need("tightness", dimension=(1, 2), beta=(0.001, 1e-6))
    largest = {d: ds["share"].sel(dimension=d).max(("order", "precision")) for d in (1, 2)}
    top = {d: float(one.max()) for d, one in largest.items()}
    climb = ", ".join(f"{one:.5f} at beta = {one['beta']:g}" for one in largest[2].sortby("beta", False))
    tight = top[2] >= _TIGHT and max(top.values()) <= 1 + _ROUNDING
    return correct(
        tight and top[1] >= _TIGHT,
        tight,
        f"Ratio to the bound in two dimensions: {climb}; the bound is tight in the limit of small beta. In one "
        f"dimension the largest ratio is {top[1]:.4f}, and the proved limit is {LARGEST_SHARE_1D:.4f}.",
    )


@p3(
    place="section 4.1, example",
    leads=True,
    erratum=Erratum(
        "Theorem 16 covers probit and complementary log-log regression.",
        "It requires the canonical link: the divergence is infinite from a finite order on (probit) or above 1 "
        "(cloglog).",
    ),
)
def links_satisfy_the_theorems(summaries: Stored) -> Finding:
    """Theorem 16 holds with B = 1 for probit and complementary log-log regression, as it does for logistic
    regression.
    """
    ds = summaries.need("links", order=(1.0,), n=(1,), link=LINKS)
    excess = ds["renyi_epsilon"] / ds["bound"]
    evidence, broken = [], []
    for link in ("probit", "cloglog"):
        one, kl = excess.sel(link=link), excess.sel(link=link, order=1.0)
        finite = one.where(np.isfinite(one))
        limit = float(ds["critical_order"].sel(link=link).min())
        broken.append(bool((one > 1 + _ROUNDING).any()))
        divergence = ds["renyi_epsilon"].sel(link=link).isel(finite.fillna(-np.inf).argmax(...))
        evidence.append(
            f"{link}: infinite {'at orders > 1' if limit == 1 else f'at orders >= {limit:g}'}; largest finite "
            f"divergence {divergence:.5g}, {finite.max():.5g} times the bound "
            f"({place(largest(finite), finite.dims)}); Kullback-Leibler "
            f"{', '.join(f'{kl.sel(n=n):.4g} (n = {n})' for n in ds['n'].values.tolist())} times the bound"
        )
    return correct(
        not any(broken),
        not all(broken),
        f"n·beta = {format_value(ds['precision'].item())}, norms up to 1, one dimension. {'. '.join(evidence)}. "
        f"Logistic: at most {excess.sel(link='logistic').max():.4f} times the bound.",
    )


@claim(kind="self-check")
def orders_that_diverge(summaries: Stored) -> Finding:
    """Divergences are infinite for λ >= 1 + n·beta/c² with the probit link, infinite for λ > 1 with the complementary
    log-log link, and finite with the logistic link.
    """
    reach, orders = (10.0, 80.0), (1.5, 2.0, 5.0)
    ds = summaries.need("links", n=(1,), order=orders, reach=reach, link=LINKS, precision=(1.0,))
    ds = ds.sel(n=1)  # for larger n the posterior mass is outside intervals of this size
    boxed = ds["divergence_on_box"].sortby("reach")
    finite = np.isfinite(ds["renyi_epsilon"])
    settled = abs(boxed.isel(reach=-1) / boxed.isel(reach=-2) - 1) <= _SETTLED
    widest = float(boxed["reach"].max())
    shown = [
        f"{link} at order {order:g}: {listed(boxed.sel(link=link, order=order), '.5g')}"
        for link, order in (("logistic", 5.0), ("probit", 2.0), ("probit", 5.0), ("cloglog", 1.5))
    ]
    return verdict(
        (settled == finite).all(),
        f"Divergences at n = 1 for weights in growing intervals, up to [-{widest:g}, {widest:g}]: {'; '.join(shown)}. "
        f"They converge in {int((settled & finite).sum())} of {int(finite.sum())} cases below the stated order and "
        f"diverge in {int((~settled & ~finite).sum())} of {int((~finite).sum())} cases at or above it.",
    )


def published_loss(ds: xr.Dataset) -> xr.DataArray:
    """Return the privacy loss 4c²ρ/β stated by Wang et al., for records of norm at most c = 1."""
    return 4 * ds["power"] / ds["beta"]


@p3(
    place="section 5.2, after Wang, Fienberg & Smola 2015",
    kind="addition",
    erratum=Erratum(
        "One posterior sample on the ball of radius c/β loses 4c²ρ/β.",
        "It loses at most 2c²ρ/β, so that twice the power has the same guarantee.",
        place="section 5.2",
    ),
)
def ops_loss(summaries: Stored) -> Finding:
    """The privacy loss of one posterior sample (OPS) on the ball of radius c/beta is up to 4c²ρ/beta."""
    ops = summaries.need("ops", mechanism=("ops",), n=(1, 1_000), beta=(0.001, 10.0)).sel(mechanism="ops")
    shares = ops["pure_loss"] / published_loss(ops)
    top = float(shares.max())
    curve = float((ops["renyi_epsilon"] / ops["stated_epsilon"]).max())
    within = max(top, curve) <= 1 + _ROUNDING
    return correct(
        within and top > 0.5,
        within,
        f"The largest loss is {top:.4f} times the published bound ({place(largest(shares), shares.dims)}) and "
        f"{2 * top:.4f} times 2c²ρ/beta. "
        "The latter holds because the log-likelihood of a record has range c²/beta on the ball. Rényi divergences are "
        f"at most {curve:.4f} times the minimum of the Rényi curve of that loss and the linear bound for log-concave "
        "distributions, which also holds on a ball.",
    )


@p3(
    place="section 5.2",
    erratum=Erratum(
        "GLM sampling has the better Rényi guarantee than OPS for λ ≤ 2n/ρ.",
        "It is better only against the published guarantee of OPS.",
    ),
)
def better_than_ops(summaries: Stored) -> Finding:
    """Posterior sampling on the whole space has a better Rényi guarantee than OPS at all orders λ <= 2n/ρ."""
    ds = summaries.need("ops", mechanism=("ops", "glm-diffused"), n=(1, 1_000), beta=(0.001, 10.0))
    ops, glm = (ds.sel(mechanism=name) for name in ("ops", "glm-diffused"))
    linear, loss = glm["stated_epsilon"], published_loss(ds)
    claimed = (ds["order"] <= 2 * ds["n"] / ds["power"]) & linear.notnull()
    published = bool(((linear <= loss * (1 + 1e-12)) == claimed).all())
    curve = xr.apply_ufunc(np.vectorize(lambda half, order: pure_renyi(half, order)), loss / 2, ds["order"])
    ahead = (linear <= curve) & claimed
    spends_less = ops["renyi_epsilon"] <= glm["renyi_epsilon"] * (1 + _ROUNDING)
    never_worse = ops["stated_epsilon"] <= linear * (1 + 1e-12)
    return correct(
        published and (ahead == claimed).all(),
        published,
        f"λ <= 2n/ρ holds in {int(claimed.sum())} of {claimed.size} cases; these are{'' if published else ' not'} the "
        "cases in which the guarantee is better than the published one of OPS. It is better than the Rényi curve of "
        f"the loss 2c²ρ/beta of OPS in {int(ahead.sum())} of them, in {int((ahead & (ds['beta'] > ds['n'])).sum())} "
        "with beta > n. The linear bound also holds on a ball: with it the guarantee of OPS is at least as good in "
        f"{int(never_worse.sum())} cases, and the divergence of OPS is not larger in {int(spends_less.sum())}.",
    )


@claim(kind="self-check")
@joined("Relative difference between the stated and the largest divergence over all neighbours: {}.")
def suprema_are_exact(summaries: Stored) -> Iterator[Finding]:
    """The stated divergence of the samplers for exponential families is the exact maximum over all neighbours."""
    ds = summaries.need("dirichlet", mechanism=tuple(RENYI_SAMPLERS))
    for name in (name for name in RENYI_SAMPLERS if name in ds["mechanism"].values):
        one = ds.sel(mechanism=name)
        stated = one["stated_epsilon"]
        same_infinities = (np.isinf(one["enumerated_epsilon"]) == np.isinf(stated)).all()
        enumerated, quadrature = (
            abs(one[f"{what}_epsilon"] / stated - 1).where(np.isfinite(stated)) for what in ("enumerated", "quadrature")
        )
        worst = max(float(enumerated.max()), float(quadrature.max()))
        yield verdict(
            same_infinities and worst <= _ROUNDING,
            f"{name} {enumerated.max():.1e} by enumeration in {int(enumerated.count())} cases, "
            f"{quadrature.max():.1e} by quadrature in {int(quadrature.count())}",
        )


@p3(
    place="section 5.1",
    erratum=Erratum("Gaussian noise of variance λΔ²/ε spends ε at order λ.", "Variance λΔ²/(2ε) is sufficient."),
)
def gaussian_variance(summaries: Stored) -> Finding:
    """Gaussian noise of variance λ/epsilon on the number of successes has Rényi divergence epsilon at order λ."""
    ds = summaries.need("dirichlet", mechanism=tuple(GAUSSIAN_MECHANISMS), n=(30,))
    shares = ds["quadrature_epsilon"] / ds["epsilon"]
    top = {name: float(shares.sel(mechanism=name).max()) for name in GAUSSIAN_MECHANISMS}
    within = top["gaussian"] <= 1 + _ROUNDING
    return correct(
        within and top["gaussian"] > 0.5001,
        within,
        f"Largest ratio of the divergence of the released counts to epsilon: {top['gaussian']:.4f} with the published "
        f"variance λ/epsilon, {top['gaussian-tight']:.4f} with half of it.",
    )


CLAIMS = claims_in(globals())

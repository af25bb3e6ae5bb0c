"""Claims of the study `renyi-audit` (P3)."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from mechanisms import GAUSSIAN_MECHANISMS, RENYI_SAMPLERS
from mechanisms.core.conversions import pure_renyi
from mechanisms.draws.worst_case import LARGEST_SHARE_1D
from pipeline import Erratum, Finding, claim, claims_in, verdict
from pipeline.declare.factors import format_value
from studies.claims import Look, correct, count, highest, joined, largest, listed, named, p3, place

_ROUNDING = 1e-6  # relative tolerance; quadrature is accurate to 1e-7
_TIGHT = 0.99
_WAYS = ("enumeration", "quadrature")
LINKS = ("logistic", "probit", "cloglog")
_SETTLED = 0.01  # a divergence has converged if doubling the interval changes it by a smaller fraction


def logistic_shares(ds: xr.Dataset) -> xr.DataArray:
    """Return the largest ratio of divergence to bound per cell of panel `logistic`, at its order and over the curve."""
    return (ds["renyi_epsilon"] / ds["stated_epsilon"]).clip(min=ds["curve_share"])


@p3(
    short="Posterior draws and Algorithms 4 and 5 have the stated Rényi guarantees.",
    place="Theorems 16 and 17",
    needs={"logistic": {"dimension": (1, 2), "mechanism": ("glm-concentrated", "glm-diffused", "true-posterior")}},
)
def theorems_hold(look: Look) -> Finding:
    """A posterior draw of the weights of a logistic regression is (λ, 2c²λ/(n·beta))-RDP, and Algorithms 4 and 5 are
    (λ, epsilon)-RDP; the bounds are linear in λ.
    """
    shares = logistic_shares(look["logistic"])
    broken = shares > 1 + _ROUNDING
    largest_shares = "; ".join(
        f"{of_mechanism['mechanism'].item()} {highest(of_mechanism, '.4f')}"
        for of_mechanism in shares.transpose("mechanism", ...)
    )
    return verdict(
        not broken.any(),
        f"{count(broken, shares.notnull())} audits exceed the bound. Largest ratio of divergence to bound, at the "
        f"order or along the linear curve: {largest_shares}.",
    )


@p3(
    place="section 4.2",
    needs={"tightness": {"dimension": (1, 2), "beta": (0.001, 1e-6, ...)}},
    erratum=Erratum(
        "Theorem 16's bound is tight for logistic regression.",
        "It is tight from two dimensions on, in the limit of a weak prior.",
    ),
)
def bound_is_tight(look: Look) -> Finding:
    """The bound of Theorem 16 is tight for logistic regression."""
    shares = look["tightness"]["share"].max(("order", "precision")).sortby("beta", False)
    line, plane = (shares.sel(dimension=dimension) for dimension in (1, 2))
    tight = plane.max() >= _TIGHT and shares.max() <= 1 + _ROUNDING
    climb = ", ".join(f"{share:.5f} at beta = {share['beta']:g}" for share in plane)
    return correct(
        tight and line.max() >= _TIGHT,
        tight,
        f"Ratio to the bound in two dimensions: {climb}. In one dimension the largest ratio is {line.max():.4f}, and "
        f"the proved limit is {LARGEST_SHARE_1D:.4f}.",
    )


@p3(
    short="Theorem 16 also holds for probit and complementary log-log regression.",
    place="section 4.1, example",
    needs={"links": {"order": (1.0, ...), "n": (1, ...), "link": LINKS}},
    leads=True,
    erratum=Erratum(
        "Theorem 16 covers probit and complementary log-log regression.",
        "It requires the canonical link: the divergence is infinite from a finite order on (probit) or above 1 "
        "(cloglog).",
    ),
)
def links_satisfy_the_theorems(look: Look) -> Finding:
    """Theorem 16 holds with B = 1 for probit and complementary log-log regression, as it does for logistic
    regression.
    """
    ds = look["links"]
    excess = ds["renyi_epsilon"] / ds["bound"]
    others, evidence = ("probit", "cloglog"), []
    for link in others:
        curve = excess.sel(link=link)
        worst, kl = largest(curve.where(np.isfinite(curve))), curve.sel(order=1.0)
        limit = float(ds["critical_order"].sel(link=link).min())
        divergence = ds["renyi_epsilon"].sel({name: worst[name] for name in ("link", *curve.dims)})
        evidence.append(
            f"{link}: infinite {'at orders > 1' if limit == 1 else f'at orders >= {limit:g}'}; largest finite "
            f"divergence {divergence:.5g}, {worst:.5g} times the bound ({place(worst, curve.dims)}); Kullback-Leibler "
            f"{', '.join(f'{kl.sel(n=n):.4g} (n = {n})' for n in ds['n'].values.tolist())} times the bound"
        )
    broken = [bool((excess.sel(link=link) > 1 + _ROUNDING).any()) for link in others]
    return correct(
        not any(broken),
        not all(broken),
        f"n·beta = {format_value(ds['precision'].item())}, norms up to 1, one dimension. {'. '.join(evidence)}. "
        f"Logistic: at most {excess.sel(link='logistic').max():.4f} times the bound.",
    )


@claim(
    short="Divergences are infinite at large orders with probit and log-log links.",
    kind="self-check",
    needs={
        "links": {
            "n": (1,),
            "order": (1.5, 2.0, 5.0, ...),
            "reach": (10.0, 80.0, ...),
            "link": LINKS,
            "precision": (1.0,),
        }
    },
)
def orders_that_diverge(look: Look) -> Finding:
    """Divergences are infinite for λ >= 1 + n·beta/c² with the probit link, infinite for λ > 1 with the complementary
    log-log link, and finite with the logistic link.
    """
    ds = look["links"].sel(n=1)  # for larger n the posterior mass is outside intervals of this size
    boxed = ds["divergence_on_box"].sortby("reach")
    finite = np.isfinite(ds["renyi_epsilon"])
    settled = abs(boxed.isel(reach=-1) / boxed.isel(reach=-2) - 1) <= _SETTLED
    shown = "; ".join(
        f"{link} at order {order:g}: {listed(boxed.sel(link=link, order=order), '.5g')}"
        for link, order in (("logistic", 5.0), ("probit", 2.0), ("probit", 5.0), ("cloglog", 1.5))
    )
    return verdict(
        (settled == finite).all(),
        f"Divergences at n = 1 for weights in growing intervals, up to ±{boxed['reach'].max():g}: {shown}. They "
        f"converge in {count(settled, finite)} cases below the stated order and diverge in {count(~settled, ~finite)} "
        "cases at or above it.",
    )


def published_loss(ds: xr.Dataset) -> xr.DataArray:
    """Return the privacy loss 4c²ρ/β stated by Wang et al., for records of norm at most c = 1."""
    return 4 * ds["power"] / ds["beta"]


@p3(
    short="The privacy loss of one posterior sample (OPS) is up to 4c²ρ/beta.",
    place="section 5.2, after Wang, Fienberg & Smola 2015",
    needs={"ops": {"mechanism": ("ops",), "n": (1, 1_000, ...), "beta": (0.001, 10.0, ...)}},
    kind="addition",
    erratum=Erratum(
        "One posterior sample on the ball of radius c/β loses 4c²ρ/β.",
        "It loses at most 2c²ρ/β, so that twice the power has the same guarantee.",
        place="section 5.2",
    ),
)
def ops_loss(look: Look) -> Finding:
    """The privacy loss of one posterior sample (OPS) on the ball of radius c/beta is up to 4c²ρ/beta."""
    ops = look["ops"].sel(mechanism="ops")
    shares, curve = ops["pure_loss"] / published_loss(ops), (ops["renyi_epsilon"] / ops["stated_epsilon"]).max()
    within = max(shares.max(), curve) <= 1 + _ROUNDING
    return correct(
        within and shares.max() > 0.5,
        within,
        f"The largest loss is {highest(shares, '.4f')} of the published bound and {2 * shares.max():.4f} of 2c²ρ/beta, "
        "which holds because the log-likelihood of a record has range c²/beta on the ball. Rényi divergences are at "
        f"most {curve:.4f} of the smaller of the curve of that loss and the linear bound, which holds on a ball too.",
    )


@p3(
    short="Sampling the whole space has a better Rényi guarantee than OPS for λ <= 2n/ρ.",
    place="section 5.2",
    needs={"ops": {"mechanism": ("ops", "glm-diffused"), "n": (1, 1_000, ...), "beta": (0.001, 10.0, ...)}},
    erratum=Erratum(
        "GLM sampling has the better Rényi guarantee than OPS for λ ≤ 2n/ρ.",
        "It is better only against the published guarantee of OPS.",
    ),
)
def better_than_ops(look: Look) -> Finding:
    """Posterior sampling on the whole space has a better Rényi guarantee than OPS at all orders λ <= 2n/ρ."""
    ds = look["ops"]
    ops, glm = (ds.sel(mechanism=name) for name in ("ops", "glm-diffused"))
    linear, loss = glm["stated_epsilon"], published_loss(ds)
    claimed = (ds["order"] <= 2 * ds["n"] / ds["power"]) & linear.notnull()
    published = bool(((linear <= loss * (1 + 1e-12)) == claimed).all())
    curve = xr.apply_ufunc(np.vectorize(pure_renyi), loss / 2, ds["order"])
    ahead = (linear <= curve) & claimed
    spends_less = ops["renyi_epsilon"] <= glm["renyi_epsilon"] * (1 + _ROUNDING)
    never_worse = ops["stated_epsilon"] <= linear * (1 + 1e-12)
    return correct(
        published and (ahead == claimed).all(),
        published,
        f"λ <= 2n/ρ holds in {count(claimed)} cases; these are{'' if published else ' not'} the cases in which the "
        "guarantee is better than the published one of OPS. It is better than the Rényi curve of the loss 2c²ρ/beta of "
        f"OPS in {int(ahead.sum())} of them, in {int((ahead & (ds['beta'] > ds['n'])).sum())} with beta > n. With the "
        f"linear bound, the guarantee of OPS is at least as good in {int(never_worse.sum())} cases, and its divergence "
        f"is not larger in {int(spends_less.sum())}.",
    )


@claim(
    short="Stated divergences of the samplers are exact maxima over all neighbours.",
    kind="self-check",
    needs={"dirichlet": {"mechanism": tuple(RENYI_SAMPLERS)}},
)
@joined("Relative difference between the stated and the largest divergence over all neighbours: {}.")
def suprema_are_exact(look: Look) -> Iterator[Finding]:
    """The stated divergence of the samplers for exponential families is the exact maximum over all neighbours."""
    ds = look["dirichlet"]
    for name in (name for name in RENYI_SAMPLERS if name in ds["mechanism"].values):
        stated, *computed = (
            ds[f"{kind}_epsilon"].sel(mechanism=name) for kind in ("stated", "enumerated", "quadrature")
        )
        apart = [abs(errors / stated - 1).where(np.isfinite(stated)) for errors in computed]
        same_infinities = (np.isinf(computed[0]) == np.isinf(stated)).all()
        text = [
            f"{errors.max():.1e} by {how} in {int(errors.count())} cases"
            for errors, how in zip(apart, _WAYS, strict=True)
        ]
        holds = same_infinities and max(float(errors.max()) for errors in apart) <= _ROUNDING
        yield verdict(holds, f"{name} {', '.join(text)}")


@p3(
    short="Gaussian noise of variance λ/epsilon has Rényi divergence epsilon at order λ.",
    place="section 5.1",
    needs={"dirichlet": {"mechanism": tuple(GAUSSIAN_MECHANISMS), "n": (30, ...)}},
    erratum=Erratum("Gaussian noise of variance λΔ²/ε spends ε at order λ.", "Variance λΔ²/(2ε) is sufficient."),
)
def gaussian_variance(look: Look) -> Finding:
    """Gaussian noise of variance λ/epsilon on the number of successes has Rényi divergence epsilon at order λ."""
    ds = look["dirichlet"]
    top = (ds["quadrature_epsilon"] / ds["epsilon"]).max(("order", "epsilon", "prior", "n"))
    published = top.sel(mechanism="gaussian")
    within = published <= 1 + _ROUNDING
    evidence = f"Largest ratio of divergence to epsilon: {named(top, GAUSSIAN_MECHANISMS, '.4f')} (half the variance)."
    return correct(within and published > 0.5001, within, evidence)


CLAIMS = claims_in(globals())

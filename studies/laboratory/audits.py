"""Audited privacy losses of all mechanisms, read from the stores of audits or computed here if fast.

A share is the ratio of a loss to its stated bound; a share above 1 violates the guarantee.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import xarray as xr
from scipy import stats

from mechanisms import FAMILIES, MECHANISMS, PROBABILITY_METHODS, RENYI_SAMPLERS
from mechanisms.audit import ROUNDING
from mechanisms.inference.noisy_statistics import laplace_scale
from mechanisms.inference.one_posterior_sample import one_posterior_sampling
from mechanisms.regression.audit import centred_losses
from mechanisms.regression.partition_quantile import partition_quantile
from pipeline.declare.factors import format_value
from studies.laboratory.results import Results
from studies.laboratory.tables import Table
from studies.regression.partition_probability_claims import audit_adversarial
from studies.regression.partition_quantile_claims import audit_quantile
from studies.renyi.renyi_audit_claims import logistic_shares

_HEADS = ("mechanism", "states", "found", "audited loss", "share spent", "slack", "audits", "at")
_RELATIVE = 1e-6  # tolerance of quadratures


def audit_table(results: Results) -> Table:
    """Return one row per mechanism and model: stated guarantee, largest ratio of loss to guarantee, and slack."""
    rows = [
        *_counts(results),
        *_exponential_families(results),
        *_regression(results),
        *_noisy_statistics(results),
        *_partitions(results),
    ]
    return Table(
        "Audited losses of mechanisms, against the stated guarantees",
        "The share is the largest ratio of a loss or divergence to the stated bound over all audits, exact over all "
        "neighbours and outputs if the outputs are finite, otherwise by quadrature; slack is one minus the share. "
        "Mechanisms without a guarantee, or with a wrong published one, are compared with the given epsilon.",
        _HEADS,
        rows,
        (7,),
    )


def _row(
    name: str, states: str, share: float, loss: float, n_audits: int, where: str, private: bool = True
) -> tuple[str, ...]:
    if n_audits == 0:
        return name, states, "not audited", "", "", "", "0", where
    broken = share > 1 + _RELATIVE
    found = ("broken" if broken else "holds") if private else ("not private" if broken else "within here")
    slack = "none" if broken else f"{max(0.0, 1 - share):.2%}"
    return name, states, found, _shown(loss, 4), _shown(share), slack, f"{n_audits:,}", where


def _shown(value: float, digits: int = 6) -> str:
    if math.isnan(value):
        return ""
    return "infinite" if math.isinf(value) else f"{value:.{digits}f}" if value < 10 else f"{value:,.0f}"


def _largest(pairs: Iterable[tuple[xr.DataArray, xr.DataArray | float]]) -> tuple[float, float, int, str]:
    """Return the largest ratio of a loss to its stated bound, that loss, the number of losses, and the coordinates."""
    several = [(loss / stated, loss) for loss, stated in pairs]
    several = [(share, loss.broadcast_like(share)) for share, loss in several if share.notnull().any()]
    if not several:
        return math.nan, math.nan, 0, ""
    shares, losses = max(several, key=lambda pair: float(pair[0].max()))
    at = shares.fillna(-np.inf).argmax(...)
    one = shares.isel(at)
    where = ", ".join(f"{name} = {format_value(one[name].item())}" for name in shares.dims)
    return float(one), float(losses.isel(at)), sum(int(share.count()) for share, _ in several), where


def _counts(results: Results) -> Iterator[tuple[str, ...]]:
    """Yield rows of releases of counts, with exact losses; (ε, δ) is compared by δ if the loss exceeds ε."""
    if "privacy-audit" not in results:
        return
    summaries = results["privacy-audit"].summaries
    names = dict.fromkeys(name for ds in summaries.values() for name in ds["mechanism"].values.tolist())
    for name in names:
        stored = [ds.sel(mechanism=name) for ds in summaries.values() if name in ds["mechanism"].values]
        share, loss, n_audits, where = _largest((one["exact_epsilon"], one["epsilon"]) for one in stored)
        guarantee = MECHANISMS[name].guarantee(1.0, float(stored[0]["delta"]))
        states = "nothing" if guarantee is None else "ε-DP" if guarantee.is_pure else "(ε, δ)-DP; proof for 3ε/2"
        row = _row(name, states, share, loss, n_audits, where, guarantee is not None)
        if guarantee is not None and not guarantee.is_pure and share > 1:
            excess = max(
                float(one["exact_delta"].where(one["exact_epsilon"] > one["epsilon"] + ROUNDING).max())
                for one in stored
            )
            row = (
                *row[:2],
                "holds" if not excess > guarantee.delta else "broken",
                *row[3:7],
                f"{where}; δ {excess:.1e}",
            )
        yield row


def _exponential_families(results: Results) -> Iterator[tuple[str, ...]]:
    if "renyi-audit" not in results or "dirichlet" not in results["renyi-audit"].summaries:
        return
    ds = results["renyi-audit"].summaries["dirichlet"]
    found = ds["enumerated_epsilon"].fillna(ds["quadrature_epsilon"])
    for name in ds["mechanism"].values.tolist():
        is_calibrated = name not in RENYI_SAMPLERS or RENYI_SAMPLERS[name].is_tunable
        stated = ds["epsilon"] if is_calibrated else ds["stated_epsilon"].sel(mechanism=name)
        pair = found.sel(mechanism=name), stated.where(np.isfinite(stated))
        yield _row(f"{name}, counts", "(λ, ε)-RDP" if is_calibrated else "its exact curve", *_largest([pair]))


def _regression(results: Results) -> Iterator[tuple[str, ...]]:
    summaries = results["renyi-audit"].summaries if "renyi-audit" in results else {}
    if "logistic" in summaries:
        ds = summaries["logistic"]
        for name in ds["mechanism"].values.tolist():
            one = ds.sel(mechanism=name)
            losses = logistic_shares(one) * one["stated_epsilon"]
            states = "Theorem 16" if name == "true-posterior" else "(λ, ε)-RDP"
            yield _row(f"{name}, logistic", states, *_largest([(losses, one["stated_epsilon"])]))
    if "tightness" in summaries:  # this panel stores ratios only
        share, _, n_audits, where = _largest([(summaries["tightness"]["share"], 1.0)])
        yield _row("true-posterior, worst data", "Theorem 16", share, math.nan, n_audits, where)
    if "ops" in summaries:
        ops = summaries["ops"].sel(mechanism="ops")
        published = 4 * ops["power"] / ops["beta"]
        for name, text, stated in (("ops", "4c²ρ/β-DP", published), ("ops-tight", "2c²ρ/β-DP", published / 2)):
            yield _row(f"{name}, logistic", text, *_largest([(ops["pure_loss"], stated)]))
    if "links" in summaries:
        ds = summaries["links"]
        for link in (link for link in ds["link"].values.tolist() if link != "logistic"):
            one = ds.sel(link=link)
            found = _largest([(one["renyi_epsilon"], one["bound"])])
            yield _row(f"true-posterior, {link}", "Theorem 16, as printed", *found, private=False)


def _noisy_statistics(results: Results) -> Iterator[tuple[str, ...]]:
    if "calibration" not in results:
        return
    summaries = results["calibration"].summaries
    epsilons = next(iter(summaries.values()))["epsilon"].values.tolist()
    losses = []
    for name, bounds in (("binomial", None), ("multinomial", None), ("exponential", (0.0, 1.0))):
        sensitivity = FAMILIES[name].sensitivity(bounds)
        for epsilon in epsilons:
            scale = laplace_scale(sensitivity, epsilon)
            y = np.linspace(-20, 20, 4_001) * scale
            ratio = stats.laplace.logpdf(y, 0, scale) - stats.laplace.logpdf(y, sensitivity, scale)
            losses.append((float(np.abs(ratio).max()) / epsilon, float(np.abs(ratio).max())))
    yield _row("laplace, sums of records", "ε-DP", *max(losses), len(losses), "density ratio, on a grid of outputs")
    if "binomial" in summaries:
        ds = summaries["binomial"]
        prior = tuple(float(part) for part in str(ds["prior"].item()).split(":"))
        methods: tuple[Literal["ops", "ops-likelihood"], ...] = ("ops", "ops-likelihood")
        for name in methods:
            spent = xr.DataArray(
                [
                    [one_posterior_sampling(name, prior, n, epsilon).loss() for epsilon in epsilons]
                    for n in ds["n"].values.tolist()
                ],
                {"n": ds["n"].values, "epsilon": epsilons},
                ("n", "epsilon"),
            )
            yield _row(f"{name}, binomial", "ε-DP", *_largest([(spent, spent["epsilon"])]))


def _partitions(results: Results) -> Iterator[tuple[str, ...]]:
    if "partition-probability" in results and "default" in results["partition-probability"].summaries:
        ds = results["partition-probability"].summaries["default"]
        epsilon, size, least = (float(ds[name]) for name in ("epsilon", "partition_size", "least_probability"))
        n_partitions = int(ds["n"]) // int(size)
        for name, method in ((name, method) for name, method in PROBABILITY_METHODS.items() if method.has_noise):
            loss = audit_adversarial(name, n_partitions, int(size), epsilon, least)
            states = "ε-DP per cutoff" if method.is_private else "ε-DP, as printed"
            where = f"one of {int(ds['n']):,} rows replaced by the worst, {n_partitions:,} partitions"
            yield _row(name, states, loss / epsilon, loss, 1, where, method.is_private)
    if "partition-quantile" in results and "default" in results["partition-quantile"].summaries:
        ds = results["partition-quantile"].summaries["default"]
        epsilon, part = float(ds["epsilon"]), float(str(ds["split"].item()).split(":")[0])
        lost, both = (found.epsilon for found in audit_quantile(epsilon, part, float(ds["share"]), 6, 3))
        yield _row("sparse vector search", "ε₁-DP", lost / part, lost, 1, "all data sets, 6 partitions, 3 doublings")
        where = "one of 6 quantiles moved, search and mean together"
        yield _row("quantile", "(ε₁ + ε₂)-DP", both / epsilon, both, 2, where)
        parts = tuple(float(part) for part in str(ds["centred_split"].item()).split(":"))
        centred = partition_quantile("quantile-centred", 6, epsilon, parts)
        quantiles, spreads = [-9.0] * 3 + [9.0] * 3, [0.1] * 3 + [10.0] * 3
        losses = [
            sum(centred_losses(centred, quantiles, spreads, (0, to, spread), [1e-6, 1.0, 1e6]))
            for to, spread in ((1e9, 1e9), (-1e9, 1e-9), (9.0, 10.0))
        ]
        where = "one of 6 partitions moved, sum of the losses of three steps"
        yield _row("quantile-centred", "(ε₁ + ε₂)-DP", max(losses) / epsilon, max(losses), len(losses), where)

"""Tables of the studies of inference: comparisons of methods and of chains, and audited privacy losses."""

from collections.abc import Iterator

import numpy as np
import xarray as xr
from scipy import stats

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.one_posterior_sample import OnePosteriorSampling
from studies.claims import Summaries, vector
from studies.inference.exact_trials import N_CHAINS, N_DRAWS
from studies.tables import AuditedLoss, PageTable, compare_methods, largest_loss

_LARGEST_KS = 1.63  # 99 % point of the Kolmogorov distribution, which scales with 1/√trials


def compare_calibration(summaries: Summaries) -> PageTable:
    """Compare the methods by the distance of their posterior quantiles from the uniform distribution."""
    n_trials = max(int(ds["n_ok"].max()) for ds in summaries.values())
    return compare_methods(
        "Calibration of posteriors",
        "Largest Kolmogorov-Smirnov distance of posterior quantiles to the uniform distribution over all stored n and "
        f"ε; for a calibrated method it is below {_LARGEST_KS / max(n_trials, 1) ** 0.5:.3f} in 99 of 100 cells of "
        f"{n_trials:,} trials. In brackets: largest fraction of trials whose chains disagree (split R-hat above 1.05).",
        "algorithm",
        [INFERENCE_METHODS],
        {name: (ds, _show_calibration) for name, ds in summaries.items()},
    )


def _show_calibration(ds: xr.Dataset) -> str:
    stuck = float(ds["rhat_stuck"].fillna(0).max())
    return f"{ds['pit_ks'].max():.3f}" + (f" ({stuck:.0%} stuck)" if stuck else "")


def compare_chains(summaries: Summaries) -> PageTable:
    """Compare the methods by the effective sample size per iteration, and show trials with insufficient chains."""
    return compare_methods(
        "Mixing of chains",
        "Mean effective sample size per iteration after burn-in, smallest over all stored settings; 1 for independent "
        "draws. In brackets: largest fraction of trials whose chains are too short (split R-hat of 1.01 or more, or an "
        "effective sample size below 100). Times are not stored; the benchmark bench_exact_inference.py prints "
        "effective sample sizes per second.",
        "algorithm",
        [INFERENCE_METHODS],
        {name: (ds, _show_mixing) for name, ds in summaries.items()},
    )


def _show_mixing(ds: xr.Dataset) -> str:
    efficiency = ds["ess_mean"] / (N_CHAINS * N_DRAWS * ds["thinning_mean"])
    failed = max(float(ds[name].max()) for name in ("rhat_stuck", "ess_short"))
    return f"{efficiency.min():.3f}" + (f" ({failed:.1%} too short)" if failed else "")


def audited_statistics(summaries: Summaries) -> Iterator[AuditedLoss]:
    """Yield the losses of noisy sums, computed on a grid of outputs, and of one posterior sample, in closed form."""
    epsilons = next(iter(summaries.values()))["epsilon"].values.tolist()
    audited = []
    for family in FAMILIES.values():
        sensitivity = family.sensitivity((0.0, 1.0) if family.bounded_sensitivity is None else None)
        for epsilon in epsilons:
            scale = sensitivity / epsilon
            y = np.linspace(-20, 20, 4_001) * scale
            ratio = stats.laplace.logpdf(y, 0, scale) - stats.laplace.logpdf(y, sensitivity, scale)
            audited.append((float(np.abs(ratio).max()) / epsilon, float(np.abs(ratio).max())))
    place = "density ratio, on a grid of outputs"
    yield AuditedLoss("laplace, sums of records", "ε-DP", *max(audited), len(audited), place)
    if "binomial" in summaries:
        ds = summaries["binomial"]
        prior = tuple(vector(ds, "prior").tolist())
        for name, tempers_prior in (("ops", True), ("ops-likelihood", False)):
            sizes = ds["n"].values.tolist()
            losses = [
                [OnePosteriorSampling(prior, n, epsilon, tempers_prior).loss() for epsilon in epsilons] for n in sizes
            ]
            spent = xr.DataArray(losses, {"n": sizes, "epsilon": epsilons}, ("n", "epsilon"))
            yield AuditedLoss(f"{name}, binomial", "ε-DP", *largest_loss([(spent, spent["epsilon"])]))

"""Audits and ranks of mechanisms that a study adds to those of the registry."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import Guarantee, Mechanism, audit_counts
from mechanisms.core.conjugate import count_candidates
from mechanisms.core.exact_losses import Audit, exceeds
from mechanisms.counts.draws import LEVEL, audit_draws, compared_datasets
from pipeline import Panel
from studies.claims import Summaries, smallest
from studies.panels import Values
from studies.styles import describe_audit, not_private, stored_audits
from studies.tables import PageTable

SECONDS = 10.0
"""Time for the audits of one mechanism in one panel, in seconds."""

_EXACT = 2 / 3  # share of the time for exact audits; draws are compared in the remaining time
_MARGIN = 1.5  # ratio of the largest expected time of an audit to that predicted from a smaller one
_BY = "mechanism"


def audit_added(
    mechanism: Mechanism, problem: Callable[[Values], tuple[Any, Any]], panel: Panel, seconds: float = SECONDS
) -> dict[str, Any]:
    """Audit a mechanism at the priors, ε and δ of a panel; return the arguments of `describe_audit` and its evidence.

    For each prior, the numbers of records are those of the panel, and others between them that at most double, up to
    the largest whose audit, predicted from the previous one, fits into the remaining time. The result for several
    priors is the smallest of their largest ones, unless a guarantee is broken. `problem` maps a cell to the prior and
    the counts.

    If the guarantee holds, draws are compared with the stated distribution by `audit_draws` at the audited numbers of
    records of the panel and at the largest audited one, at the level `LEVEL` in total.
    """
    sizes: dict[tuple[tuple[float, ...], float, float], set[int]] = {}
    for cell in panel.cells():
        values = {**panel.fixed_values, **cell}
        prior, counts = problem(values)
        key = (tuple(map(float, prior)), values["epsilon"], values["delta"])
        sizes.setdefault(key, set()).add(int(sum(counts)))
    results: list[dict[str, Any]] = []
    for (prior, epsilon, delta), several in sizes.items():
        share = 1.0 / len(sizes)
        results.append(_audit(mechanism, prior, epsilon, delta, several, share * seconds, share * LEVEL))
        if results[-1]["verdict"] == "broken":
            break
    rank = {"broken": 0, "unaudited": 1, "holds": 2}
    result = min(results, key=lambda result: (rank[result["verdict"]], result.get("n", 0)))
    not_compared = [other for other in results if other.get("draws") == 0]
    if result["verdict"] == "holds" and result["draws"] and not_compared:
        return {**result, "draws": 0, "evidence": f"{result['evidence']}; {not_compared[0]['evidence']}"}
    return result


def _audit(
    mechanism: Mechanism, prior: tuple[float, ...], epsilon: float, delta: float, sizes: Collection[int],
    seconds: float, level: float,
) -> dict[str, Any]:  # fmt: skip
    """Return the result of the audit of the largest affordable number of records, or of the largest excess."""
    k, start = len(prior), time.perf_counter()
    result: dict[str, Any] = {"verdict": "unaudited", "states": "no guarantee", "evidence": "no guarantee is stated"}
    audits: dict[int, Audit] = {}  # that hold, by the number of records
    n, refused = 0, ""
    try:
        stated = mechanism.stated(epsilon, delta)
        if stated is None:
            return result
        result |= {"states": str(stated), "evidence": f"no audit of {max(sizes)} records or fewer is possible"}
        for n in audited_sizes(sizes, k, lambda: _EXACT * seconds - (time.perf_counter() - start)):
            if not mechanism.supports(n, k):
                continue
            audit = audit_counts(mechanism, prior, n, epsilon, delta)
            verdict = audit.check(stated)
            result_at_n = {"n": n, "evidence": verdict.text, **_loss(audit, stated, verdict.holds)}
            if not verdict.holds and (
                result["verdict"] != "broken" or exceeds(float(result_at_n["loss"]), float(result["loss"]))
            ):
                result |= {"verdict": "broken", **result_at_n}
            elif verdict.holds and result["verdict"] != "broken":
                result |= {"verdict": "holds", **result_at_n}
                audits[n] = audit
    except Exception as error:  # of the code of the mechanism, or of an audit that is too large
        refused = f"no audit at n = {n}: {' '.join(str(error).split())}" if str(error) else type(error).__name__
    if result["verdict"] == "holds":
        chosen = {n: audit for n, audit in audits.items() if n in sizes or n == result["n"]}
        left = seconds - (time.perf_counter() - start)
        result |= _compare_draws(mechanism, prior, epsilon, delta, chosen, left, level, result["evidence"])
    return {**result, "evidence": f"{result['evidence']}; {refused}"} if refused else result


def _compare_draws(
    mechanism: Mechanism, prior: tuple[float, ...], epsilon: float, delta: float, audits: Mapping[int, Audit],
    seconds: float, level: float, evidence: str,
) -> dict[str, Any]:  # fmt: skip
    """Return the changes of a result that holds: evidence, number of draws per data set, and verdict if they deviate.

    Draws are compared at each audited number of records, of which the largest is the first.
    """
    sizes = sorted(audits, reverse=True)
    datasets = [counts for n in sizes for counts in compared_datasets(n, len(prior), audits[n].witness)]
    try:
        draws = audit_draws(mechanism, prior, datasets, epsilon, delta, np.random.default_rng(1), seconds, level)
    except Exception as error:  # of the code of the mechanism
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return {"draws": 0, "evidence": f"{evidence}; draws not compared: {message}"}
    if draws.deviating is not None:
        return {"verdict": "broken", "n": int(draws.deviating.sum()), "deviates": True, "evidence": draws.text}
    shown = ", ".join(map(str, reversed(sizes)))
    return {"draws": draws.n_draws, "evidence": f"{evidence}; {draws.text} (n = {shown})"}


def _loss(audit: Audit, stated: Guarantee, holds: bool) -> dict[str, Any]:
    loss = audit.epsilon if math.isfinite(audit.epsilon) else "inf"  # JSON has no infinity
    if stated.is_pure or holds:
        return {"loss": loss, "stated": stated.epsilon}
    return {"loss": loss, "delta": audit.deltas[stated.epsilon], "stated": stated.delta}


def audited_sizes(sizes: Collection[int], k: int, left: Callable[[], float]) -> Iterator[int]:
    """Yield numbers of records that at most double and omit none of `sizes`, while the next audit is affordable."""
    n, largest = 1, max(sizes)
    yield n  # compiles kernels, so that its time predicts nothing
    if left() <= 0:
        return
    while True:
        before = left()
        yield n
        after = left()
        if n == largest:
            return
        affordable = max(after, 0.0) / (_MARGIN * max(before - after, 1e-6))
        work = count_candidates(n, k) ** 2
        bigger = [m for m in range(n + 1, min(2 * n, largest) + 1) if count_candidates(m, k) ** 2 <= affordable * work]
        if not bigger:
            return
        n = min((m for m in bigger if m in sizes), default=bigger[-1])


def rank_added(summaries: Summaries) -> PageTable:
    """Rank the mechanisms that were audited by a run among those of the registry, by their distances at all sizes."""
    rows = []
    for name, ds in summaries.items():
        if _BY not in ds.dims:
            continue
        audits = stored_audits(ds, _BY)
        others = [
            mechanism
            for mechanism in ds[_BY].values.tolist()
            if mechanism not in audits and mechanism not in not_private(ds, _BY)
        ]
        rows += [
            (mechanism, name, describe_audit(audit), _rank(ds, mechanism, others, audit), audit["evidence"])
            for mechanism, audit in audits.items()
            if mechanism in ds[_BY].values
        ]
    return PageTable(
        "Added mechanisms",
        "Results of the exact audits that the run made of mechanisms that are not in the registry, with comparisons of "
        "their draws with the stated distributions, and their ranks "
        "among the private mechanisms of the registry by the mean Hellinger distance where both apply. "
        "Guarantees of the registry are audited by the study privacy-audit.",
        (_BY, "panel", "audit", "rank", "evidence"),
        rows,
        (3, 4),
    )


def _rank(ds: xr.Dataset, name: str, others: list[str], audit: Values) -> str:
    """Return the rank of a mechanism as text, with the best one, and the nearest one that is ahead at every size."""
    if audit["verdict"] == "broken":
        reason = "its draws do not follow its stated distribution" if "deviates" in audit else "its guarantee is broken"
        return f"not ranked, as {reason}"
    if name in not_private(ds, _BY):
        return "not ranked, as it states no guarantee"
    distance = ds["hellinger_mean"]
    if "expected_hellinger" in ds:
        distance = distance.where(ds["expected_hellinger"].isnull(), ds["expected_hellinger"])
    ours = distance.sel({_BY: name})
    ratio = ours / distance.sel({_BY: others})
    ratio = ratio.where(np.isfinite(ratio)).dropna(_BY, how="all")
    dims = [dim for dim in ratio.dims if dim != _BY]
    with np.errstate(divide="ignore"):  # a mechanism without noise has the distance 0
        mean = ratio.copy(data=np.log(ratio.values)).mean(dims)
    is_ahead = ((ratio > 1) | ratio.isnull()).all(dims)
    rank = int((mean > 0).sum()) + 1
    text = f"rank {rank} of {mean.size + 1}"
    if is_ahead.any():
        nearest = smallest(mean.where(is_ahead))[_BY].item()
        text += f", behind {nearest} at every {'n' if 'n' in ds.dims else 'value'}"
    return text if rank == 1 else f"{text}; {smallest(-mean)[_BY].item()} is best"

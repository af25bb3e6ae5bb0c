"""Case of the study of noisy tables."""

from tests.studies.case import EVERY, Case, Flip, chain, change, outcomes

_SPARSE = {"leaves": "sparse", "noise_std": 5.0, "prior": "true"}
_ROUNDED = {"published": "rounded", "noise_std": 2.0}
_SUPPRESSED = {"published": "suppressed", "noise_std": 2.0}


def _compare(claim, panel, where, measure, method, values):
    """Return flips that set a mean of a method, and 1 for all others, by verdict."""
    mean, error = f"{measure}_mean", f"{measure}_mcse"
    base = change(panel, where, **{mean: 1.0, error: 1e-3})
    return outcomes(
        claim, values, lambda value: chain(base, change(panel, {**where, "algorithm": method}, **{mean: value}))
    )


def _ratio(claim, panel, where, measure, limit):
    values = {"holds": 0.9 * limit, "undecided": limit, "does not hold": 1.1 * limit}
    return _compare(claim, panel, where, measure, "tree", values)


_REAL = "fitted-prior-covers-real-counts"
_CLIPPED = {"algorithm": "least-squares-clipped"}


def _real(verdict, covered, width):
    return Flip(
        {_REAL: verdict},
        chain(
            change("contingency", {}, covered_mean=covered, covered_mcse=1e-4, width_mean=width, width_mcse=1e-4),
            change("contingency", _CLIPPED, width_mean=1.0),
        ),
    )


def _k_norm(verdict, few, many):
    claim = "k-norm-gains-with-few-categories"
    return Flip(
        {claim: verdict},
        chain(
            change("mechanisms", {}, width_mean=1.0, width_mcse=1e-4),
            change("mechanisms", {"noise": "k-norm", "k": 10}, width_mean=few),
            change("mechanisms", {"noise": "k-norm", "k": 100}, width_mean=many),
        ),
    )


_DIMS = {
    "tree": "leaves noise_std prior",
    "contingency": "noise_std",
    "formats": "published noise_std",
    "mechanisms": "k epsilon noise",
}

NOISY_TABLES = Case(
    run={
        "trials": {**dict.fromkeys(("tree", "formats", "mechanisms"), 4), "contingency": 2},
        "values": {"leaves": ["sparse"], "epsilon": [1.0], "noise_std": {"contingency": [5.0]}},
    },
    dims={
        panel: {
            "covered width square score pit": f"{dims} algorithm trial part",
            "status": f"{dims} algorithm trial",
        }
        for panel, dims in _DIMS.items()
    },
    methods={
        "tree": "tree least-squares least-squares-clipped leaf naive",
        "contingency": "tree least-squares least-squares-clipped naive",
        "formats": "tree published naive",
        "mechanisms": "tree least-squares least-squares-clipped naive",
    },
    prepare=change(EVERY, {}, n_ok=lambda ds: 10 * ds.n_ok),
    verdicts={"exact-posteriors-are-calibrated": "passed"},
    flips=(
        Flip(
            {"exact-posteriors-are-calibrated": "failed"},
            change("formats", {"algorithm": "tree", "part": "group"}, pit_p=1e-9),
        ),
        *_ratio("narrower-in-small-cells", "tree", _SPARSE, "width", 0.75),
        *_ratio("smaller-error-than-clipping", "tree", _SPARSE, "square", 0.9025),
        *_ratio("levels-inform-each-other", "tree", _SPARSE, "width", 0.95),
        *_ratio("suppression-informs", "formats", _SUPPRESSED, "width", 0.8),
        *_compare(
            "formats-belong-in-the-likelihood",
            "formats",
            _ROUNDED,
            "covered",
            "published",
            {"holds": 0.9, "undecided": 0.98, "does not hold": 1.0},
        ),
        *outcomes(
            "wrong-prior-undercovers",
            {"holds": 0.9, "undecided": 0.951, "does not hold": 0.97},
            lambda covered: change("tree", {**_SPARSE, "prior": "wrong"}, covered_mean=covered, covered_mcse=1e-3),
        ),
        _real("holds", 0.96, 0.8),
        _real("undecided", 0.93, 0.8),
        _real("does not hold", 0.9, 0.8),
        _real("does not hold", 0.96, 0.99),
        _k_norm("holds", 0.9, 0.99),
        _k_norm("undecided", 0.97, 0.99),
        _k_norm("does not hold", 0.99, 0.99),
        _k_norm("does not hold", 0.9, 0.9),
    ),
    refused={
        "tree": {"noise_std=0": "noise_std must be in", "prior=flat": "unknown prior 'flat'; "},
        "formats": {"published=top-coded": "unknown published 'top-coded'; "},
        "mechanisms": {"k=1": "k must be from 2", "noise=cauchy": "unknown noise 'cauchy'; "},
    },
    reruns=(("tree", {"leaves": "sparse", "noise_std": 5.0, "prior": "true"}, 3),),
    part={
        "panels": ["mechanisms"],
        "trials": 4,
        "values": {"k": [10], "epsilon": [1.0], "noise": ["k-norm"], "algorithm": ["tree", "naive"]},
    },
)

CASES = {"noisy-tables": NOISY_TABLES}

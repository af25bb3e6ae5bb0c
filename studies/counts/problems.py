"""Factors and checks of the problems that the studies of counts share: prior, number of records, ε and δ."""

from collections.abc import Iterable
from types import EllipsisType
from typing import Any

from mechanisms import balanced_counts
from mechanisms.counts.mechanism import validate
from pipeline import Factor
from studies.panels import Values, require

EPSILON = Factor("epsilon", (1.0,), "privacy loss", unit="nat")
DELTA = Factor("delta", (1e-8,), "probability of a larger privacy loss")


def flat_prior(k: int) -> Factor:
    """Return the uniform prior of k categories as a constant."""
    return Factor("prior", ((1.0,) * k,), "Dirichlet parameters of the prior", "vector")


def cells(k: int) -> Factor:
    """Return the categories as a dimension of outputs."""
    return Factor("cell", tuple(range(k)), "category of the counts", "int")


def balanced(k: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return the factors and the constants of a panel of balanced data of k categories, by number of records."""
    constants = EPSILON, DELTA, flat_prior(k), Factor("k", (k,), "number of categories", "int")
    return {"factors": (Factor("n", sizes, "number of records", "int"),), "constants": constants}


def require_balanced(cell: Values, setting: Values) -> None:
    """Raise ValueError if prior, number of records, ε or δ are invalid for all mechanisms, at balanced data."""
    n, k, prior = cell["n"], cell["k"], cell["prior"]
    require_size(n, prior, k)
    validate(prior, balanced_counts(n, k), setting["epsilon"], setting["delta"])


def require_size(n: int, prior: Any, k: int) -> None:
    """Raise ValueError unless there are records, and the prior has k entries."""
    require(n >= 1, "n must be >= 1", n)
    require_prior(prior, k)


def require_prior(prior: Any, k: int) -> None:
    """Raise ValueError unless the prior has k entries."""
    require(len(prior) == k, f"prior must have {k} entries, one per category", len(prior))


def require_cells(cells: tuple[int, ...], k: int) -> None:
    """Raise ValueError unless all categories are given in order."""
    require(cells == tuple(range(k)), f"cell must be 0 to {k - 1} in order", ", ".join(map(str, cells)))


_CATEGORIES = {"k2": 2, "k3": 3, "k4": 4, "k10": 10, "abalone": 3, "skewed": 3, "skewed-k4": 4, "random": 3}
"""Number of categories of the panels of claims."""


def at_poster(panels: Iterable[str], *mechanisms: str | EllipsisType, **values: Any) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about panels: mechanisms with the constants of the poster, and these values."""
    constants = {"epsilon": (1.0,), "delta": (1e-8,)}
    priors = {panel: ":".join("1" * _CATEGORIES[panel]) for panel in panels}
    return {
        panel: {"mechanism": mechanisms, **constants, "prior": (prior,), **values} for panel, prior in priors.items()
    }

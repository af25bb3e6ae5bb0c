"""Panel `random` of `hellinger-accuracy`: accuracy at random data sets.

Each trial draws category probabilities from a symmetric Dirichlet distribution, counts from a multinomial distribution,
and one release per mechanism. Stored measures are the distance of the release, the exact mean distance at the trial's
data set, and the ratio of this mean to the mean for K-norm noise.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms import MECHANISMS, CountRelease, Mechanism, hellinger
from mechanisms.counts.mechanism import validate
from pipeline import Factor, Measure, Method, Panel, Streams


class _RandomData(NamedTuple):
    """Data sets of consecutive trials, with the exact mean distance under K-norm noise for each of them."""

    prior: tuple[float, ...]
    counts: NDArray[np.int64]
    k_norm: NDArray[np.float64]


def exact_mean(distribution: CountRelease) -> float:
    """Return the exact mean distance, or NaN if there are too many count vectors or noise vectors to enumerate."""
    try:
        return distribution.expected_hellinger()
    except ValueError:
        return np.nan


def _simulate(cell: Mapping[str, Any], streams: Streams) -> _RandomData:
    concentration = np.full(len(cell["prior"]), cell["concentration"])
    counts = [rng.multinomial(cell["n"], rng.dirichlet(concentration)) for rng in streams.generators()]
    k_norm = [exact_mean(MECHANISMS["k-norm"].build(cell["prior"], c, cell["epsilon"])) for c in counts]
    return _RandomData(cell["prior"], np.array(counts), np.array(k_norm))


def _method(mechanism: Mechanism) -> Method:
    def release(data: _RandomData, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        distributions = [mechanism.build(data.prior, c, setting["epsilon"], setting["delta"]) for c in data.counts]
        uniforms = streams.uniforms(distributions[0].n_uniforms)
        released = np.concatenate(
            [each.from_uniforms(row[None]) for each, row in zip(distributions, uniforms, strict=True)]
        )
        expected = np.array([exact_mean(each) for each in distributions])
        return {
            "hellinger": hellinger(np.array(data.prior) + data.counts, np.array(data.prior) + released),
            "expected_at_data": expected,
            "ratio_to_k_norm": expected / data.k_norm,
        }

    return Method(mechanism.name, release, note=mechanism.note, is_private=mechanism.is_private)


def random_panel(mechanisms: tuple[Mechanism, ...], constants: tuple[Factor, ...]) -> Panel:
    """Return the panel for the given mechanisms; `constants` are ε and δ."""
    by_name = {mechanism.name: mechanism for mechanism in mechanisms}

    def validate_setting(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
        n, prior = cell["n"], cell["prior"]
        if n < 1:
            raise ValueError(f"n must be >= 1, got {n}")
        if not cell["concentration"] > 0:
            raise ValueError(f"concentration must be > 0, got {cell['concentration']}")
        validate(prior, (n, *(0 for _ in prior[1:])), setting["epsilon"], setting["delta"])
        return by_name[setting["mechanism"]].supports(n, len(prior))

    return Panel(
        name="random",
        meaning="accuracy at counts drawn from Dirichlet-multinomial distributions, 3 categories",
        simulate=_simulate,
        methods=tuple(_method(mechanism) for mechanism in mechanisms),
        measures=(
            Measure("hellinger", "Hellinger distance between the true and the released posterior"),
            Measure("expected_at_data", "exact mean of that distance at the data set, if computable"),
            Measure("ratio_to_k_norm", "ratio of that mean to the mean of k-norm at the same data set"),
        ),
        factors=(
            Factor("concentration", (0.3, 1.0, 5.0), "parameter of the symmetric Dirichlet distribution of the shares"),
            Factor("n", (100,), "number of records", "int"),
        ),
        constants=(*constants, Factor("prior", ((1.0,) * 3,), "Dirichlet parameters of the prior", "vector")),
        method_dim="mechanism",
        trials=100,
        block_trials=25,
        validate=validate_setting,
        version=2,  # sums have a fixed order
    )

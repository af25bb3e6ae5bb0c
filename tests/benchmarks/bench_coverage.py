"""Coverage of the intervals of private regression, for columns that fill a small or large part of their public ranges.

    python tests/benchmarks/bench_coverage.py [FILE [SECONDS [REHEARSALS]] | --smallest]

Each cell has rehearsals with independent records, noise and chains, whose streams derive from the name of the cell and
a number. They are written to FILE, one line per batch, for at most SECONDS; a later run continues. The table has the
coverage of nominal 95 % intervals per component. A cell fails if the upper 99.9 % limit of the coverage of a component
is below 0.93. Widths are medians of the ratios to the conjugate prior of version 0.3.0, given the same releases,
with that version's sampler `noise-aware`; they are computed in 40 rehearsals of the cells with one feature and more
than 200 records, and shown where all components of that prior are covered in at least 37 of them. Where the release
does not resolve σ, its interval is an upper bound; the table has the share of such rehearsals, the coverage of the
central interval, and the share of rehearsals in which the spread of a feature is not resolved. Chains have
4 · 250 draws; the table has the 95 % quantile of the largest split R-hat.
"""

import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.regression import gram_kernels
from mechanisms.regression.gram_priors import ConjugatePrior
from mechanisms.regression.gram_release import (
    NOISE_CODES,
    GramRelease,
    PublicBox,
    calibrated_gram_noise,
    gram_sums,
    release_gram,
)
from mechanisms.regression.gram_samplers import coefficient_intervals, resolves, sample_gram

LEVEL, FAILS_BELOW, COMPARED, BATCH = 0.95, 0.93, 40, 20
THINNING = {"normal-covariates": 20, "data-augmentation": 12}


@dataclass(frozen=True)
class Cell:
    """Table of records with known coefficients in public bounds, and the budget of its release."""

    name: str
    n: int
    bounds: tuple[tuple[float, float], ...]  # of the features and of the response
    draw_features: Callable[[np.random.Generator, int], np.ndarray]
    coefficients: tuple[float, ...]  # intercept, slopes and error variance
    track: str = "pure"
    epsilon: float = 1.0
    method: str = "normal-covariates"
    draw_error: Callable[[np.random.Generator, int], np.ndarray] = lambda rng, n: rng.normal(size=n)

    @property
    def box(self) -> PublicBox:
        return PublicBox.of({str(k): pair for k, pair in enumerate(self.bounds)})

    def generator(self, number: int, part: str) -> np.random.Generator:
        return np.random.default_rng([int.from_bytes(f"{self.name} {part}".encode(), "big"), number])

    def release(self, number: int) -> GramRelease:
        """Return the release of a rehearsal."""
        rng, box = self.generator(number, "records"), self.box
        x = self.draw_features(rng, self.n)
        intercept, *slopes, variance = self.coefficients
        y = intercept + x @ np.array(slopes) + np.sqrt(variance) * self.draw_error(rng, self.n)
        gram = gram_sums(box, np.column_stack([x, y]))[0] / 2.0**32
        gram[0, 0] = self.n
        name, delta = ("laplace", None) if self.track == "pure" else ("gaussian", 1e-6)
        noise = calibrated_gram_noise(name, box.p, self.epsilon, delta)
        return release_gram(self.generator(number, "noise"), gram, noise)


def uniform(d: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.uniform(0.0, 1.0, (n, d))


def correlated(d: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Uniform features with correlation 1/2, on (0, 1)."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return (rng.uniform(0.0, 1.0, (n, 1)) + rng.uniform(0.0, 1.0, (n, d))) / 2.0

    return draw


def skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.minimum(rng.gamma(2.0, 0.1, (n, 1)), 1.0)


def normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Feature of which a tenth is outside (-1, 1)."""
    return rng.normal(0.0, 0.6, (n, 1))


def indicator(prevalence: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: (rng.random((n, 1)) < prevalence).astype(float)


def age(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(20.0, 70.0, (n, 1))


def wide(low: float, high: float, factor: float, is_centred: bool) -> tuple[float, float]:
    """Return a range that is `factor` times as wide as (low, high), around it, or with it near its lower end."""
    extra = (factor - 1.0) * (high - low)
    return low - extra * (0.5 if is_centred else 0.05), high + extra * (0.5 if is_centred else 0.95)


def _cells() -> Iterator[Cell]:
    for n in (500, 3_000, 20_000, 100_000):
        bounds = ((0.0, 120.0), (0.0, 200_000.0))
        yield Cell(f"W, n={n}", n, bounds, age, (20_000.0, 1_000.0, 3_000.0**2))
    for n in (500, 1_000, 5_000, 20_000, 100_000):
        bounds = ((18.0, 90.0), (0.0, 200_000.0))
        yield Cell(f"B, n={n}", n, bounds, age, (10_000.0, 400.0, 10_000.0**2))
    unit, response, simple = (0.0, 1.0), (0.0, 3.0), (1.0, 1.0, 0.04)
    tables = {"skewed": skewed, **{f"0/1 with {pi:g}": indicator(pi) for pi in (0.5, 0.1, 0.03)}}
    for (name, draw), n in itertools.product(tables.items(), (3_000, 20_000)):
        if n == 3_000 or name != "0/1 with 0.1":
            yield Cell(f"{name}, n={n}", n, (unit, response), draw, simple)
    for factor, is_centred, n in (
        (1, True, 3_000), (3, True, 3_000), (3, False, 3_000),
        (10, True, 3_000), (10, False, 3_000), (10, False, 20_000),
    ):  # fmt: skip
        bounds = wide(*unit, factor, is_centred), wide(*response, factor, is_centred)
        place = "on" if is_centred else "off"
        yield Cell(f"ranges x{factor}, {place} centre, n={n}", n, bounds, uniform(1), simple)
    for features, target, d, n in (
        (10, 1, 1, 500), (10, 1, 1, 1_000), (10, 1, 1, 3_000), (10, 1, 1, 20_000), (5, 1, 1, 500), (30, 1, 1, 20_000),
        (1, 10, 1, 3_000), (10, 1, 3, 3_000), (10, 1, 3, 20_000), (30, 1, 1, 500),
    ):  # fmt: skip
        response_range = response if d == 1 else (-1.0, 3.0)
        bounds = (*(wide(*unit, features, False),) * d, wide(*response_range, target, False))
        name, draw = f"features x{features}, response x{target}, d={d}, n={n}", uniform(1) if d == 1 else correlated(d)
        yield Cell(name, n, bounds, draw, (1.0, *(simple[1:2] if d == 1 else np.linspace(-1.0, 1.0, d)), 0.04))
    for track, d, n in (
        ("pure", 3, 3_000), ("pure", 3, 20_000), ("pure", 5, 3_000), ("pure", 5, 20_000), ("approximate", 5, 20_000)
    ):  # fmt: skip
        slopes = tuple(np.linspace(-1.0, 1.0, d))
        bounds = (*(unit,) * d, (-1.0, 3.0))
        yield Cell(f"d={d}, {track}, n={n}", n, bounds, correlated(d), (1.0, *slopes, 0.04), track)
    for factor in (1, 10):
        bounds = wide(*unit, factor, False), wide(*response, factor, False)
        yield Cell(
            f"ranges x{factor}, off centre, n=3000, approximate", 3_000, bounds, uniform(1), simple, "approximate"
        )
    few: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
        "uniform": uniform(1), "0/1 with 0.5": indicator(0.5), "0/1 with 0.1": indicator(0.1),
    }  # fmt: skip
    for (name, draw), n, epsilon in itertools.product(few.items(), (50, 200), (1.0, 20.0)):
        yield Cell(f"{name}, n={n}, epsilon={epsilon:g}", n, (unit, response), draw, simple, epsilon=epsilon)
    yield Cell(
        "normal, clamped, n=50, epsilon=20", 50, ((-1.0, 1.0), (-1.5, 1.5)), normal, (0.0, 1.0, 0.04), epsilon=20.0,
        method="data-augmentation",
    )  # fmt: skip
    heavy = functools.partial(_scaled_t, 3.0)
    yield Cell("t3 errors, n=20000", 20_000, (unit, (-2.0, 5.0)), uniform(1), simple, draw_error=heavy)


def _scaled_t(degrees: float, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_t(degrees, n) / np.sqrt(degrees / (degrees - 2.0))


CELLS = {cell.name: cell for cell in _cells()}


def rehearse(cell: Cell, number: int, scale: int = 1) -> dict[str, Any]:
    """Return what one rehearsal found; chains have 1/scale of the draws."""
    release, truth = cell.release(number), np.array(cell.coefficients)
    n_draws, n_burn_in = 250 // scale, 250 // scale
    rng, thinning = cell.generator(number, "chains"), THINNING[cell.method]
    draws = sample_gram(rng, cell.method, release, None, 4, n_burn_in, n_draws, thinning)
    features = resolves(draws[..., truth.size :].reshape(-1, truth.size - 2).T)
    draws = draws[..., : truth.size]
    logs = np.concatenate([draws[..., :-1], np.log(draws[..., -1:])], axis=-1)
    rhat, _ = diagnose_chains(np.moveaxis(logs, -1, 0))
    pooled = cell.box.unscale(draws).reshape(-1, truth.size)
    low, high = coefficient_intervals(pooled, LEVEL)
    central = np.quantile(pooled[:, -1], [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    found = {
        "number": number,
        "covered": ((low <= truth) & (truth <= high)).tolist(),
        "central": bool(central[0] <= truth[-1] <= central[1]),
        "resolved": bool(resolves(pooled[:, -1])),
        "features": bool(features.all()),
        "rhat": float(rhat.max()),
        "width": (high - low).tolist(),
    }
    if number < COMPARED and len(truth) == 3 and cell.n > 200:
        found["conjugate"] = conjugate_intervals(cell, release, rng, n_draws)
    return found


def conjugate_intervals(cell: Cell, release: GramRelease, rng: np.random.Generator, n_draws: int) -> dict[str, Any]:
    """Return widths and coverage under the prior of version 0.3.0."""
    p, draws = cell.box.p, np.empty((4, n_draws, 2 * cell.box.p))
    known = gram_kernels.NoisyGram(NOISE_CODES[release.noise.name], release.noise.scale, release.noisy, release.n)
    for chain in draws:
        hyperparameters = ConjugatePrior().hyperparameters(p)
        gram_kernels.run_conjugate_gibbs(True, 1, 4, rng, known, hyperparameters, n_draws, 10, chain)
    pooled, truth = cell.box.unscale(draws[..., : p + 1]).reshape(-1, p + 1), np.array(cell.coefficients)
    low, high = np.quantile(pooled, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0)
    return {"width": (high - low).tolist(), "covered": ((low <= truth) & (truth <= high)).tolist()}


def upper_limit(covered: int, n: int) -> float:
    """Return the Clopper-Pearson upper 99.9 % limit of a probability."""
    return 1.0 if covered == n else float(stats.beta.ppf(0.999, covered + 1, n - covered))


def widths_ratio(rows: list[dict[str, Any]]) -> str:
    """Return the median ratios of widths to those of the conjugate prior, if its coverage is right, or "-"."""
    compared = [row for row in rows if "conjugate" in row]
    if not compared:
        return "-"
    covered = np.sum([row["conjugate"]["covered"] for row in compared], axis=0)
    if len(compared) < COMPARED or covered.min() < 37:
        return f"- (covers {'/'.join(f'{value / len(compared):.2f}' for value in covered)})"
    ratios = np.median([np.divide(row["width"], row["conjugate"]["width"]) for row in compared], axis=0)
    return "/".join(f"{ratio:.2f}" for ratio in ratios)


def report(rows: dict[str, list[dict[str, Any]]]) -> None:
    """Print one line per cell, and the pooled coverage."""
    head = (
        "rehearsals",
        "intercept",
        "slopes",
        "variance",
        "least limit",
        "central",
        "bounds",
        "features",
        "widths",
        "R-hat",
    )
    print(f"{'cell':44}", *(f"{word:>12}" for word in head))
    pooled = []
    for name, found in ((name, found) for name, found in rows.items() if found):
        covered, n = np.array([row["covered"] for row in found]), len(found)
        rates, limits = covered.mean(axis=0), [upper_limit(int(k), n) for k in covered.sum(axis=0)]
        pooled.append(covered.mean())
        bounds = 1.0 - np.mean([row["resolved"] for row in found])
        values = (
            f"{n:,}", f"{rates[0]:.3f}", " ".join(f"{rate:.2f}" for rate in rates[1:-1]), f"{rates[-1]:.3f}",
            f"{min(limits):.3f}", f"{np.mean([row['central'] for row in found]):.3f}", f"{bounds:.2f}",
            f"{1.0 - np.mean([row['features'] for row in found]):.2f}",
            widths_ratio(found), f"{np.quantile([row['rhat'] for row in found], 0.95):.3f}",
        )  # fmt: skip
        print(f"{name:44}", *(f"{value:>12}" for value in values), " FAILS" if min(limits) < FAILS_BELOW else "")
    print(f"pooled coverage of {len(pooled)} cells, all components: {np.mean(pooled):.4f}")


def run(file: Path, seconds: float, n_rehearsals: int) -> None:
    """Add batches to the cells with the fewest rehearsals, until all are complete or the time is over."""
    end = time.monotonic() + seconds
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in CELLS}
    for line in lines:
        rows[line["cell"]] += line["rows"]
    while time.monotonic() < end:
        name = min(CELLS, key=lambda name: len(rows[name]))
        start = len(rows[name])
        if start >= n_rehearsals:
            break
        batch = [rehearse(CELLS[name], number) for number in range(start, min(start + BATCH, n_rehearsals))]
        with file.open("a") as out:
            out.write(json.dumps({"cell": name, "rows": batch}) + "\n")
        rows[name] += batch
    report(rows)


if __name__ == "__main__":
    if "--smallest" in sys.argv[1:]:
        names = (next(iter(CELLS)), "normal, clamped, n=50, epsilon=20")
        report({name: [rehearse(CELLS[name], 0, 25)] for name in names})
    elif len(sys.argv) > 1:
        words = sys.argv[2:]
        run(Path(sys.argv[1]), float(words[0]) if words else np.inf, int(words[1]) if words[1:] else 400)
    else:
        report({name: [rehearse(cell, number) for number in range(3)] for name, cell in CELLS.items()})

"""Coverage of 95 % intervals of tables with a fitted prior, and of tables that are clipped at 0.

    python bench_table_coverage.py [--smallest] [--results FILE] [--seconds N] [--tables N]
                                   [--leaves N] [--shape X] [--mean X] [--ratio X]

A cell has independent tables of negative binomial leaves below one total, with Gaussian noise on all values. Leaves and
totals are judged separately. A cell fails if .93 lies above the upper 99.9 % limit of its coverage: of totals by
Clopper and Pearson, of leaves by the standard error of the means of tables. Each cell has a random stream of its own.
Cells are computed from the cheapest on until the budget of seconds is used, and appended to the file of results; those
that are in the file are not computed again.

Tables with at most 10 leaves are solved together, with one prior after the other on a grid of the hyperprior that is
the same for all tables, and `table_posterior(..., "auto")` is compared with that on the first tables of each cell.
Other tables are solved one by one by `table_posterior`, and their median widths are compared with those of the true
prior; a cell fails, too, if one exceeds 1.5 times that, or 1.5 if that is below 1. Of intervals of width 0, the
smallest probabilities of the count are recorded: at 0 they are at least .975, and a cell fails if one is not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special, stats

from mechanisms.core.noise import Noise
from mechanisms.tables import negative_binomial, table_posterior
from mechanisms.tables.solve import solve
from mechanisms.tables.tree import read_table

LEAVES = 2, 4, 10, 40, 400
SHAPES, MEANS, RATIOS = (0.05, 0.5, 5.0), (0.1, 3.0, 100.0), (0.5, 3.0, 20.0)
FORMATS = "value", "clipped"
FACTORS: dict[str, tuple[Any, ...]] = {"leaves": LEAVES, "shape": SHAPES, "mean": MEANS, "ratio": RATIOS}
TABLES = {2: 2_000, 4: 2_000, 10: 2_000, 40: 200, 400: 200}
COUNTS = 2e7  # largest number of counts in the windows of tables that are solved together
COMPARED = 3
CERTAIN = [1.0, 1.0]  # smallest probabilities of counts with intervals of width 0: at 0, and elsewhere
Cell = tuple[int, float, float, float, str]


def draw(cell: Cell, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and noisy values of n tables, shape (n, leaves + 1); the last column has totals."""
    leaves, shape, mean, ratio, form = cell
    rng = np.random.default_rng([20_450, zlib.crc32(repr(cell).encode())])
    counts = rng.negative_binomial(shape, shape / (shape + mean), (n, leaves))
    truth = np.column_stack([counts, counts.sum(axis=1)])
    values = truth + rng.normal(0.0, ratio * mean, truth.shape)
    return truth, np.maximum(values, 0.0) if form == "clipped" else values


def judged(truth: np.ndarray, values: np.ndarray, cell: Cell) -> np.ndarray:
    """Return True for covered counts of tables that are solved together, shape (n, leaves + 1)."""
    n, columns = truth.shape
    scale = cell[3] * cell[2]
    parents = np.where(
        np.arange(n * columns) % columns < columns - 1, np.arange(n * columns) // columns * columns + columns - 1, -1
    )
    first, of_mean = negative_binomial(1.0, 1.0), max(scale, 12.0**-0.5)  # scale of the hyperprior
    base = read_table(values.ravel(), Noise("gaussian", scale), parents, first, None, cell[4])
    roots, start, log_weights, below, upto = parents < 0, None, [], [], []
    highest = math.log(max(float(values.max()) / of_mean, 1.0) + 5.0)
    for u, v in itertools.product(np.arange(-6.0, highest + 0.75, 0.75), np.arange(-6.75, 7.0, 1.5)):
        prior = negative_binomial(math.exp(v), of_mean * math.exp(u))
        table = read_table(values.ravel(), Noise("gaussian", scale), parents, prior, None, cell[4])
        solution = solve(table, start)
        start = solution.start
        hyper = -sum(abs(x) + 2.0 * math.log1p(math.exp(-abs(x))) for x in (u, v))
        log_weights.append(solution.top.log_sum[: base.total.size][roots] + hyper)
        for sums, at in ((below, truth - 1), (upto, truth)):
            sums.append(cdf(solution.marginal, at.ravel()).reshape(n, columns))
    weights = special.softmax(np.array(log_weights), axis=0)[:, :, None]
    return ((weights * upto).sum(axis=0) >= 0.025) & ((weights * below).sum(axis=0) < 0.975)


def cdf(marginal: Any, at: np.ndarray) -> np.ndarray:
    """Return the distribution function of each node at one count."""
    sums = np.append(0.0, np.cumsum(marginal.values))
    last = np.clip(at - marginal.start + 1, 0, marginal.size)
    return sums[marginal.offset + last] - sums[marginal.offset]


def together(cell: Cell, n: int) -> dict[str, Any]:
    truth, values = draw(cell, n)
    width = 24.0 * cell[3] * cell[2] + 20.0
    pieces = max(1, math.ceil(n * cell[0] * width / COUNTS))
    covered = np.concatenate([
        judged(*both, cell) for both in zip(np.array_split(truth, pieces), np.array_split(values, pieces), strict=True)
    ])  # fmt: skip
    product = np.array([alone(truth[i], values[i], cell)[0] for i in range(min(COMPARED, n))])
    return {**summary(covered), "differ": int((product != covered[: len(product)]).sum())}


def alone(truth: np.ndarray, values: np.ndarray, cell: Cell, is_true: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return True for covered counts, and the widths, of one table."""
    prior = negative_binomial(*cell[1:3]) if is_true else "auto"
    parents = np.append(np.full(cell[0], cell[0]), -1)
    posterior = table_posterior(values, Noise("gaussian", cell[3] * cell[2]), parents, prior, seen=cell[4])
    low, high = posterior.interval()
    for node in np.flatnonzero(low == high):
        support, p = posterior.pmf(int(node))
        certain = CERTAIN[int(low[node] > 0)]
        CERTAIN[int(low[node] > 0)] = min(certain, float(p[support == low[node]].sum()))
    return (low <= truth) & (truth <= high), high - low


def one_by_one(cell: Cell, n: int) -> dict[str, Any]:
    truth, values = draw(cell, n)
    fitted, true = (
        [alone(*both, cell, is_true) for both in zip(truth, values, strict=True)] for is_true in (False, True)
    )
    wide, narrow = (np.array([width for _, width in found]) for found in (fitted, true))
    parts = {"leaf": slice(0, -1), "total": slice(-1, None)}
    widths = {name: [float(np.median(one[:, at])) for one in (wide, narrow)] for name, at in parts.items()}
    return {**summary(np.array([covered for covered, _ in fitted])), "width": widths}


def summary(covered: np.ndarray) -> dict[str, Any]:
    """Return coverage of leaves and of the total with upper 99.9 % limits."""
    n, share = len(covered), covered[:, :-1].mean(axis=1)
    error = max(float(share.std(ddof=1)) if n > 1 else 1.0, 1.0 / n) / math.sqrt(n)
    hits = int(covered[:, -1].sum())
    limit = 1.0 if hits == n else float(stats.beta.ppf(0.999, hits + 1, n - hits))
    leaf = float(share.mean()), min(float(share.mean()) + float(special.ndtri(0.999)) * error, 1.0)
    return {"tables": n, "leaf": leaf, "total": (hits / n, limit)}


def cost(cell: Cell) -> float:
    """Return about the seconds of a cell."""
    leaves, _, mean, ratio, _ = cell
    if leaves <= 10:
        return TABLES[leaves] * leaves * (60.0 + 10.0 * ratio * mean) * 3e-5
    return TABLES[leaves] * leaves * (60.0 + 10.0 * ratio * mean) * 1e-4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--tables", type=int)
    for name, values in FACTORS.items():
        parser.add_argument(f"--{name}", type=type(values[0]), choices=values)
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    cells = sorted(itertools.product(LEAVES, SHAPES, MEANS, RATIOS, FORMATS), key=cost)
    chosen = [getattr(given, name) for name in FACTORS]
    cells = [cell for cell in cells if all(a in (None, b) for a, b in zip(chosen, cell, strict=False))]
    if given.smallest:
        cells, given.tables = [(2, 0.5, 3.0, 0.5, "value"), (40, 0.5, 3.0, 0.5, "clipped")], 1
    lines = given.results.read_text().splitlines() if given.results and given.results.exists() else []
    done = {tuple(json.loads(line)["cell"]) for line in lines}
    start = time.monotonic()
    for cell in cells:
        if cell in done:
            continue
        if time.monotonic() - start > given.seconds:
            break
        n, begin, CERTAIN[:] = given.tables or TABLES[cell[0]], time.process_time(), (1.0, 1.0)
        found = together(cell, n) if cell[0] <= 10 else one_by_one(cell, n)
        widths = found.get("width", {}).values()
        fails = min(found["leaf"][1], found["total"][1]) < 0.93 or any(a > 1.5 * max(b, 1.0) for a, b in widths)
        fails |= CERTAIN[0] < 0.975
        line = json.dumps(
            {"cell": cell, **found, "certain": CERTAIN, "fails": fails, "cpu": round(time.process_time() - begin, 1)}
        )
        print(line, flush=True)
        if given.results:
            with given.results.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()

"""Neighbouring tables of private records, and the doors by which records are released: commands and functions.

A door takes two tables that differ in one row. Up to the noise, everything that it shows must be equal; everything
later must follow from the release, so that a process without the records reproduces it.
"""

import contextlib
import copy
import io
import json
import os
import pickle
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import typer

from mechanisms import (
    LedgerFile,
    private_logistic,
    private_posterior,
    private_regression,
    publish_bounds,
    publish_counts,
    publish_sums,
)
from mechanisms.inference import private_posterior as posterior_module
from mechanisms.regression import private_regression as regression_module
from mechanisms.regression.width_forecast import WidthForecast
from mechanisms.release import ExactNoise
from studies import cli
from studies.own_data import estimates, partition, regression
from tests.conftest import parser_of

ROWS = 40
NUMBERS = (
    *("0", "-0.0", "5e-324", "-5e-324", "1e-161", "-1e-161", "1e-308", "1e140", "-1e140", "1.7e308", "-1.7e308"),
    *("1e400", "-1e999", "1e-999", "9223372036854775808", "18446744073709551617", "1e22", "0.5", "1", "1.0", "True"),
    *("9" * 400, "0." + 400 * "0" + "1", "007", "+3", "-2.50", "1e99999999999999999999"),
)
WORDS = ("NA", "None", "nan", "north", "south", "1", "1.0", "01", "1e0", "other", "ü", "'quoted'", "a b")
GIVEN = ("--epsilon", "1", "--yes")
LEDGER = ("--ledger", "l", "--budget", "1e6")


class DrawnError(BaseException):
    """End of a release at its first draw, which no code of the package catches."""


@dataclass
class Observation:
    """Everything that a door shows up to the noise."""

    code: object = None  # exit code or exception with its text
    texts: tuple[str, str] = ("", "")  # standard output and error output
    warned: list[str] = field(default_factory=list)
    entries: str = ""  # of the ledger, without times
    requests: list[tuple] = field(default_factory=list)  # draws of noise, with their public arguments


def draw_tables(rng, size=ROWS):
    """Return two tables of text that differ in one row, with columns of numbers and of words."""
    kind = rng.integers(4)
    ordinary = [f"{value!r}" for value in rng.normal(size=200).tolist()]

    def number():
        pool = ordinary if kind == 0 or (kind == 1 and rng.random() < 0.5) else NUMBERS
        return str(pool[rng.integers(len(pool))])

    rows = [[number(), number(), number(), str(rng.choice(WORDS))] for _ in range(size)]
    if kind == 3:  # constant columns, but for one row
        rows = [list(rows[0]) for _ in rows]
    other = [list(row) for row in rows]
    other[rng.integers(size)] = [number(), number(), number(), str(rng.choice(WORDS))]
    return rows, other


def write(rows, name="t.csv"):
    lines = [",".join(row) for row in rows]
    Path(name).write_text("a,b,y,word\n" + "\n".join(lines) + "\n")


def as_arrays(rows):
    """Return the columns of numbers as doubles, of which those beyond the range are the largest, shape (n, 3)."""
    largest = sys.float_info.max
    values = [[{"True": 1.0}.get(cell) or float(cell) for cell in row[:3]] for row in rows]
    return np.clip(np.array(values, dtype=float), -largest, largest)


_REGRESS = "regress t.csv --target y --features a,word --range a=-1:1 --range y=-1:1 --method normal-covariates"
_PARTITION, _QUANTILES = "partition t.csv --target y", "--allow-failure 1 --probabilities"
_LINES = {
    "mean": "mean t.csv --column a --range -3:3",
    "mean of a narrow range": "mean t.csv --column a --range 0:1e-9",
    "mean of a range to find": "mean t.csv --column a --range auto --bounds-epsilon 9",
    "proportion": "proportion t.csv --where word=1",
    "proportion of numbers": "proportion t.csv --where a>=1e-161",
    "count": "count t.csv --where word!=NA",
    "count of a public level": "count t.csv --where word=south --levels north,south",
    "count of a level without a row": "count t.csv --where word=absent --levels north,absent",
    "count of numbers": "count t.csv --where b<9223372036854775808",
    "histogram": "histogram t.csv --column word --categories NA,1,'01',north",
    "histogram of numbers": "histogram t.csv --column a --edges -1:0:5e-324:1",
    "regress": f"{_REGRESS} --levels word=NA,north,other",
    "regress on exhaustive levels with a guess": f"{_REGRESS} --levels word=NA,north --guess a=0:0.5 "
    "--guess word=north=0.1",
    "partition at cutoffs": f"{_PARTITION} --features a,b --coefficient a --partitions 5 --cutoffs 0,1e300",
    "partition at probabilities": f"{_PARTITION} --features a --coefficient a --partitions 10 "
    f"{_QUANTILES} 0.3,0.5 --no-intercept",
    "partition with a semi-conjugate prior": f"{_PARTITION} --features a,b --coefficient b --partitions 20 "
    f"{_QUANTILES} 0.5 --prior semi-conjugate:10 --method quantile",
}
COMMANDS = {name: tuple(line.split()) for name, line in _LINES.items()}
"""Commands, each with options that are independent of the records."""


def _counts(values):
    return np.bincount(np.searchsorted([-1e-161, 1.0], values), minlength=3)


FUNCTIONS = {
    "private_posterior": lambda x, **how: private_posterior(
        x[:, 0], "normal-unknown-variance", None, 1.0, bounds=(-3.0, 3.0), outside="clamp", **how
    ),
    "private_posterior of categories": lambda x, **how: private_posterior(
        _counts(x[:, 0]), "multinomial", (1, 1, 1), 1.0, n=len(x), **how
    ),
    "private_posterior of times": lambda x, **how: private_posterior(
        np.abs(x[:, 0]), "exponential", (2, 2), 1.0, bounds=(0.0, 1e-3), **how
    ),
    "private_regression": lambda x, **how: private_regression(
        x[:, :2], x[:, 2], {"a": (-1, 1), "b": (0, 1e-30), "y": (-2, 2)}, 9.0, method="normal-covariates", **how
    ),
    "private_logistic": lambda x, **how: private_logistic(x[:, :2], x[:, 2] > 0, 1.0, 1e-6, beta=0.1, **how),
    "publish_sums": lambda x, **how: publish_sums("normal", x[:, 0], 1.0, (-1e-3, 1e40), **how),
    "publish_sums of two moments": lambda x, **how: publish_sums(
        "normal-unknown-variance", x[:, 0], 1.0, (-1e-40, 1e-40), outside="clamp", **how
    ),
    "publish_sums of counts": lambda x, **how: publish_sums(
        "poisson", np.floor(np.abs(x[:, 0])), 1.0, (0, 9), outside="clamp", **how
    ),
    "publish_bounds": lambda x, **how: publish_bounds(x[:, 0], 9.0, **how),
    "publish_counts": lambda x, **how: publish_counts("geometric", _counts(x[:, 0]), 1.0, **how),
    "publish_counts by a lattice": lambda x, **how: publish_counts("k-norm", _counts(x[:, 0]), 1.0, **how),
}


def shorten_inference(monkeypatch):
    """Omit forecasts and rehearsals, which use public numbers only."""
    monkeypatch.setattr(posterior_module, "rehearse", lambda *_: 50)
    for module in (regression, regression_module):
        monkeypatch.setattr(
            module, "require_support", lambda box, *_, **__: WidthForecast(np.ones(box.p), np.ones(box.p))
        )


def stop_at_noise(monkeypatch):
    """Replace all exact draws; return the list of requested draws, of which the first ends the release."""
    requests = []

    def stop(name):
        def request(noise, *arguments):
            public = arguments if name != "noisy_sums" else (arguments[0].shape, *arguments[1:])
            requests.append((name, *public))
            raise DrawnError

        return request

    for name in ("laplace", "gaussian", "sum_zero", "noisy_sums"):
        monkeypatch.setattr(ExactNoise, name, stop(name))
    # the weights of a window depend on the records, and so does the bound of this draw from them
    monkeypatch.setattr(ExactNoise, "below", lambda noise, n: stop("below")(noise))
    return requests


def observe(requests, call):
    """Return what a door shows until it draws noise."""
    requests.clear()
    Path("l").unlink(missing_ok=True)
    shown = Observation()
    output, errors = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(output):
        warnings.simplefilter("always")
        with contextlib.redirect_stderr(errors):
            try:
                call()
            except DrawnError:
                shown.code = "draws"
            except SystemExit as stop:
                shown.code = stop.code
            except Exception as error:
                shown.code = f"{type(error).__name__}: {error}"
    shown.warned = sorted(f"{warning.category.__name__}: {warning.message}" for warning in caught)
    shown.texts, shown.requests = (output.getvalue(), errors.getvalue()), list(requests)
    if Path("l").exists():
        lines = [json.loads(line) for line in Path("l").read_text().splitlines()]
        shown.entries = json.dumps([{key: value for key, value in line.items() if key != "time"} for line in lines])
    return shown


def run_command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["dpstudies", *words])
    monkeypatch.setattr(typer.main, "get_command", parser_of)
    cli.main()


class PinnedReleases:
    """Releases by the functions that draw noise, recorded in one run and returned by these functions in another one."""

    PLACES = (
        (posterior_module, "release_sums"),
        (regression, "release_sums"),
        (estimates, "publish_bounds"),
        (partition, "publish_probabilities"),
        (partition, "publish_quantiles"),
    )

    def __init__(self, monkeypatch):
        self.released, self.is_replayed = [], False
        for module, name in self.PLACES:
            monkeypatch.setattr(module, name, self._wrap(name, getattr(module, name)))
        make_generator = np.random.default_rng
        # chains start from the entropy of the operating system
        monkeypatch.setattr(np.random, "default_rng", lambda seed=None: make_generator(7 if seed is None else seed))

    def _wrap(self, name, release):
        def pinned(*arguments, **options):
            if self.is_replayed and self.released[0][0] == name:  # another function only checks its arguments
                return self.released.pop(0)[1]
            result = release(*arguments, **options)
            self.released.append((name, copy.deepcopy(result)))  # a generator of chains changes as it draws
            return result

        return pinned


@contextlib.contextmanager
def opened_doors(monkeypatch, folder):
    """Yield a function that shows what a door does with a table until its noise, in a folder."""
    monkeypatch.chdir(folder)
    shorten_inference(monkeypatch)
    requests = stop_at_noise(monkeypatch)

    def show(name, rows):
        if name in COMMANDS:
            write(rows)
            return observe(requests, lambda: run_command(monkeypatch, *COMMANDS[name], *GIVEN, *LEDGER))
        ledger = LedgerFile("l", budget="1e6:0.5")
        return observe(requests, lambda: FUNCTIONS[name](as_arrays(rows), ledger=ledger))

    yield show


def check_pairs(door, name, n_pairs, seed):
    """Assert that a door gets to the noise of neighbours in silence, and shows the same before."""
    rng = np.random.default_rng([seed, [*COMMANDS, *FUNCTIONS].index(name)])
    for _ in range(n_pairs):
        first, second = (door(name, rows) for rows in draw_tables(rng))
        assert first.code == "draws", first
        assert (first.warned, first.texts[1]) == ([], "")
        assert first == second
        assert first.entries.count("epsilon") == 1


def run_pinned(monkeypatch, name, tables, released=None):
    """Return what a command prints for each table, its plot, and the releases; given releases are not drawn again."""
    shorten_inference(monkeypatch)
    pinned = PinnedReleases(monkeypatch)
    pinned.is_replayed = released is not None
    plot = () if name.startswith("partition") else ("--plot", "p.svg")
    shown = []
    for number, rows in enumerate(tables):
        write(rows)
        pinned.released = list(released[number]) if released is not None else []
        Path("p.svg").unlink(missing_ok=True)
        result = observe([], lambda: run_command(monkeypatch, *COMMANDS[name], *GIVEN, *plot))
        drawn = Path("p.svg").read_text() if Path("p.svg").exists() else ""
        shown.append((result, drawn, tuple(pinned.released)))
    return shown


def replay(folder, name):
    """Run a command on tables of zeros, given only the releases of other tables; write what it prints."""
    os.chdir(folder)
    released = pickle.loads(Path("released.pickle").read_bytes())
    zeros = [["0", "0", "0", "NA"]] * ROWS
    with pytest.MonkeyPatch.context() as monkeypatch:
        shown = run_pinned(monkeypatch, name, [zeros] * len(released), released)
    Path("shown.pickle").write_bytes(pickle.dumps([(result, plot) for result, plot, _ in shown]))


def check_replay(monkeypatch, folder, name, n_runs, processes):
    """Assert that a process with the releases alone prints what runs with the tables print; no fork has seen these."""
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(3)
    with monkeypatch.context() as patch:
        shown = run_pinned(patch, name, [draw_tables(rng)[0] for _ in range(n_runs)])
    assert all(result.code in (None, 3) for result, _, _ in shown), shown[0]  # 3: no range was found
    Path("released.pickle").write_bytes(pickle.dumps([released for _, _, released in shown]))
    process = processes.Process(target=replay, args=(folder, name))
    process.start()
    process.join()
    assert process.exitcode == 0
    replayed = pickle.loads(Path("shown.pickle").read_bytes())
    for (first, plot, _), (second, other) in zip(shown, replayed, strict=True):
        assert (first.code, first.texts, first.warned, plot) == (second.code, second.texts, second.warned, other)
    assert len({first.texts for first, _, _ in shown}) > n_runs // 2  # the releases differ

"""Tests that releases are entered in a ledger, on disk, before their noise is drawn, and only if they are valid."""

import inspect
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

import mechanisms
from mechanisms import (
    Guarantee,
    LedgerFile,
    Neighbouring,
    private_logistic,
    private_posterior,
    private_regression,
    publish_bounds,
    publish_counts,
    publish_sums,
)
from mechanisms.regression.partition_probability import partition_probability
from mechanisms.regression.partition_publish import publish_probabilities, publish_quantiles
from mechanisms.regression.partition_quantile import partition_quantile
from mechanisms.release import CheckedRelease, ExactNoise, Rehearsal
from tests.mechanisms.inference.laplace import BOUNDS
from tests.mechanisms.refusals import assert_refused

SECRET = 48151.62342
DRAWS = ("laplace", "gaussian", "below")
RNG = np.random.default_rng(1)
X = RNG.uniform(0, 1, 2_000)
Y = X + RNG.normal(0, 0.1, 2_000)
BOX = {"x": (0, 1), "y": (-1, 2)}
LOGISTIC = {"epsilon": 2.0, "delta": 1e-6, "beta": 0.01}
NORMALITY, HALF = partition_probability("normality", 3, 1.0), np.full((3, 1), 0.5)
WEAK, STRONG = (partition_quantile("quantile", 3, 2 * half, (half, half)) for half in (5e-5, 1.0))
DOUBLED = partition_quantile("quantile-centred", 50, 300.0, (100.0,) * 3, doublings=600)
NARROW = {"variance": 1e-12, "bounds": (0, 4)}
QUANTILE = partition_quantile("quantile-centred", 20, 3.0, (1.0, 1.0, 1.0))

# name: (release, its guarantee)
RELEASES = {
    "publish_sums": (partial(publish_sums, "binomial", [0, 1, 1], 1.0), (1.0, 0.0)),
    "publish_bounds": (partial(publish_bounds, np.ones(500), 1.0), (1.0, 0.0)),
    "publish_counts": (partial(publish_counts, "k-norm", [40, 25, 10], 1.0), (1.0, 0.0)),
    "clipped": (partial(publish_counts, "geometric", [40, 25, 10], 1.0), (1.0, 0.0)),
    "discrete-gaussian": (partial(publish_counts, "discrete-gaussian", [40, 25, 10], 1.0, 1e-6), (1.0, 1e-6)),
    "private_posterior": (partial(private_posterior, 3, "binomial", (1, 1), 1.0, n=10), (1.0, 0.0)),
    "sampler": (partial(private_posterior, X[:30], "normal-unknown-variance", epsilon=1.0, bounds=(0, 1)), (1.0, 0.0)),
    "private_regression": (partial(private_regression, X, Y, BOX, 1.0), (1.0, 0.0)),
    "gaussian-regression": (partial(private_regression, X, Y, BOX, 1.0, delta=1e-6), (1.0, 1e-6)),
    "private_logistic": (partial(private_logistic, X[:, None], X > 0.5, **LOGISTIC), (2.0, 1e-6)),
    "publish_probabilities": (
        partial(publish_probabilities, partition_probability("normality", 3, 0.1), np.full((3, 11), 0.5)),
        (1.1, 0.0),
    ),  # 11 x 0.1 is not 1.1 in doubles
    "publish_quantiles": (
        partial(publish_quantiles, QUANTILE, RNG.standard_normal((20, 2)), np.ones(20)),
        (5.0, 0.0),
    ),  # the scale is released once
}
REHEARSED = [name for name in RELEASES if name not in ("publish_probabilities", "publish_quantiles")]
LABELS = {"clipped": "publish_counts", "discrete-gaussian": "publish_counts", "sampler": "private_posterior"}
LABELS |= {"gaussian-regression": "private_regression"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def events(monkeypatch):
    """Return a list to which every draw, and every synchronisation of a file with the disk, adds its name."""
    seen = []

    def recorded(name, function):
        def call(*arguments):
            seen.append(name)
            return function(*arguments)

        return call

    for name in DRAWS:
        monkeypatch.setattr(ExactNoise, name, recorded("draw", getattr(ExactNoise, name)))
    monkeypatch.setattr(os, "fsync", recorded("fsync", os.fsync))
    return seen


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


@pytest.mark.parametrize("name", RELEASES)
def test_release_is_on_disk_before_its_first_draw(name, path, events):
    publish, (epsilon, delta) = RELEASES[name]
    contents = []

    def hook():
        contents.append(entries(path))
        events.append("hook")

    publish(ledger=LedgerFile(path, (9, 1e-3)), before_release=hook)
    assert events[:4] == ["fsync", "fsync", "hook", "draw"]  # the file, and its folder
    assert set(events[3:]) == {"draw"}
    (entry,) = contents[0]
    assert (entry["epsilon"], entry.get("delta", 0.0)) == (epsilon, delta)
    assert entry["release"] == LABELS.get(name, name)
    assert len(entries(path)) == 1


@pytest.mark.parametrize("name", RELEASES)
def test_ledger_with_too_little_left_refuses_before_any_draw_and_any_hook(name, path, events):
    publish, (_, delta) = RELEASES[name]
    ledger = LedgerFile(path, (1, 1e-7) if delta else 1)
    ledger.spend(Guarantee(0.9 if not delta else 1e-9), "earlier")
    before, events[:] = path.read_bytes(), []
    for how in (path, str(path), ledger):
        refuse = partial(publish, ledger=how, before_release=lambda: events.append("hook"))
        assert_refused(refuse, r"must be at most .*; nothing was released")
    assert path.read_bytes() == before
    assert events == []


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("place", ["noise", "hook"])
def test_entry_remains_after_an_error_of_the_noise_or_of_the_hook(name, place, path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    for draw in DRAWS:
        monkeypatch.setattr(ExactNoise, draw, fail if place == "noise" else None)
    with pytest.raises(KeyboardInterrupt):
        RELEASES[name][0](ledger=LedgerFile(path, (9, 1e-3)), before_release=fail if place == "hook" else None)
    assert len(entries(path)) == 1


@pytest.mark.parametrize("name", REHEARSED)
def test_rehearsal_enters_nothing_and_calls_no_hook(name, path, events):
    ledger = LedgerFile(path, 0.01)
    RELEASES[name][0](rehearsal_seed=1, ledger=ledger, before_release=lambda: events.append("hook"))
    assert not path.exists()
    assert events == []


@pytest.mark.parametrize(
    ("message", "publish"),
    [
        ("data must be", partial(publish_sums, "binomial", [0, SECRET], 1.0)),
        ("data must be an array of real", partial(publish_sums, "binomial", [str(SECRET)], 1.0)),
        ("bounds must be", partial(publish_sums, "poisson", [48151], 1.0)),
        ("outside must be", partial(publish_sums, "poisson", [48151], 1.0, (0, 2), outside="fold")),
        ("counts must be", partial(publish_counts, "k-norm", [48151, -3], 1.0)),
        ("counts must be", partial(publish_counts, "k-norm", [48151, 0.5], 1.0)),
        ("the noise scale must be at most 2^52", partial(publish_sums, "binomial", [0, 1], 1e-20)),
        ("data must be finite", partial(publish_bounds, np.append(np.ones(500), np.nan), 1.0)),
        (
            "bounds must be at least about 1.2 for 100 records, got 1",
            partial(publish_bounds, np.full(100, SECRET), 1.0),
        ),
        ("data must have shape", partial(publish_bounds, [], 1.0)),
        (
            "mechanism must have an exact sampler to release real data, one of geometric, .* got 'smooth'; choose",
            partial(publish_counts, "smooth", [40, 25, 10], 1.0),
        ),
        ("rejection sampling must need at most", partial(publish_counts, "k-norm", [40, 25, 10], 1e-7)),
        ("epsilon must be >= 1e-08", partial(publish_counts, "geometric-projected", [40, 25, 10], 1e-18)),
        (
            "delta must be >= 1e-250 for this noise, got 1e-260; choose",
            partial(publish_counts, "discrete-gaussian", [40, 25, 10], 1.0, 1e-260),
        ),
        ("data must be an integer between", partial(private_posterior, SECRET, "binomial", (1, 1), 1.0, n=10)),
        ("prior .* must be", partial(private_posterior, 3, "binomial", (-1, 1), 1.0, n=10)),
        ("records must be finite", partial(private_regression, X, np.append(Y[:-1], np.inf), BOX, 1.0)),
        ("2,000 records must be enough", partial(private_regression, X, Y, BOX, 1e-4)),
        ("labels must be 0 or 1", partial(private_logistic, X[:, None], X, **LOGISTIC)),
        (
            "the noise must have at most 48 bits",
            partial(private_logistic, X[:, None], X > 0.5, **LOGISTIC | {"delta": 1e-300}),
        ),
        ("probabilities must be in", partial(publish_probabilities, NORMALITY, 4 * HALF)),
        ("the noise scale must be", partial(publish_probabilities, partition_probability("normality", 3, 1e-9), HALF)),
        ("quantiles and spreads must have", partial(publish_quantiles, QUANTILE, np.zeros((2, 1)), np.ones(2))),
        ("epsilon of the bounds must be at least", partial(publish_quantiles, WEAK, np.zeros((3, 1)), np.ones(3))),
        ("c >= 1, got (2, 3, 1)", partial(publish_probabilities, NORMALITY, np.full((2, 3, 1), 0.5))),
        ("must have shape (M, c) with c >= 1, got (3, 0)", partial(publish_probabilities, NORMALITY, HALF[:, :0])),
        ("c >= 1, got (3, 0)", partial(publish_quantiles, STRONG, np.ones((3, 0)), np.ones(3))),
        ("masked", partial(publish_probabilities, NORMALITY, np.ma.array(HALF, mask=[[1], [0], [0]]))),
        ("doublings must be", partial(publish_quantiles, DOUBLED, np.full((50, 1), 0.5), np.full(50, 1.0))),
        ("in double precision", partial(private_posterior, 5, "binomial", (1e-308, 1e-308), 1.0, n=10)),
        ("[1e-50, 1e+50]", partial(private_posterior, X, "exponential", (1e-320, 1), 1.0, bounds=(0, 1))),
        ("mean at most 1e+50", partial(private_posterior, X, "normal", (1e300, 1), 1.0, variance=1, bounds=(0, 1))),
        ("at most 10,000 standard deviations", partial(private_posterior, X, "normal", (0, 1), 1.0, **NARROW)),
        ("RegressionPrior", partial(private_regression, X, Y, BOX, 9.0, prior=(1, 2))),
        ("1e+50 in size", partial(private_regression, X, Y, {"x": (1e308, 1.7e308), "y": (0, 1)}, 9.0)),
        ("apart", partial(private_regression, X, Y, {"x": (0, 1), "y": (0, 5e-324)}, 9.0)),
    ],
)
def test_invalid_release_is_refused_before_the_entry(message, publish, path, events, monkeypatch):
    monkeypatch.setattr(ExactNoise, "__init__", None)  # a call raises TypeError
    ledger = LedgerFile(path, (1e6, 1e-3))
    text = assert_refused(lambda: publish(ledger=ledger, before_release=lambda: events.append("hook")), message)
    assert "48151" not in text
    assert not path.exists()
    assert events == []


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"ledger": "absent.ledger"}, r"ledger must exist, got absent\.ledger; start it by LedgerFile"),
        ({"ledger": 3}, "ledger must be a LedgerFile or a path, got 3"),
        ({"ledger": mechanisms.Ledger()}, "ledger must be a LedgerFile or a path, got a Ledger"),
        ({"before_release": "x"}, "before_release must be a function, got 'x'"),
        ({"ledger": LedgerFile("absent.ledger", 0.5)}, r"epsilon must be at most 0\.5, the rest of the budget of 0\.5"),
    ],
)
def test_invalid_ledgers_and_hooks_are_refused_before_the_data_are_read(how, message, events):
    class Unread:
        def __array__(self, *_, **__):
            raise AssertionError("data were read")

    for publish in (
        lambda: publish_sums("binomial", Unread(), 1.0, **how),
        lambda: publish_bounds(Unread(), 1.0, **how),
        lambda: publish_counts("k-norm", Unread(), 1.0, **how),
        lambda: private_posterior(Unread(), "binomial", (1, 1), 1.0, **how),
        lambda: private_regression(Unread(), Unread(), BOX, 1.0, **how),
        lambda: private_logistic(Unread(), Unread(), **LOGISTIC, **how),
    ):
        assert_refused(publish, message)
    assert events == []


def test_label_of_the_ledger_is_the_text_of_its_lines(path):
    publish_counts("k-norm", [40, 25, 10], 1.0, ledger=LedgerFile(path, 3, label="votes"))
    publish_counts("k-norm", [40, 25, 10], 1.0, ledger=path)
    assert [entry["release"] for entry in entries(path)] == ["votes", "publish_counts"]


def test_exact_noise_needs_a_release_that_is_entered(path):
    with pytest.raises(TypeError):
        ExactNoise()
    for release in (None, Rehearsal(1), Guarantee(1.0)):
        with pytest.raises(AttributeError):
            ExactNoise(release)
    release = CheckedRelease(Guarantee(1.0), "x", LedgerFile(path, 1.5))
    assert not path.exists()
    release.enter()
    assert_refused(lambda: release.enter(), "nothing was released")
    assert len(entries(path)) == 1


def test_exported_functions_that_release_real_data_take_a_ledger_and_a_hook():
    """A function releases real data if it can be rehearsed; the other exported names with these verbs simulate."""
    functions = {name: value for name in mechanisms.__all__ if inspect.isfunction(value := getattr(mechanisms, name))}
    parameters = {name: inspect.signature(function).parameters for name, function in functions.items()}
    releasing = {name for name, given in parameters.items() if "rehearsal_seed" in given}
    named = {name for name in functions if name.startswith(("publish_", "private_"))}
    assert named - releasing == {"private_chain"}
    assert releasing <= named
    for name in releasing:
        for argument in ("ledger", "before_release"):
            assert parameters[name][argument].kind is inspect.Parameter.KEYWORD_ONLY, name
            assert parameters[name][argument].default is None, name
    assert releasing <= {LABELS.get(name, name) for name in RELEASES}


def spend(path):
    """Return the number of releases of ε = ¼ that a ledger allows, out of 4."""
    allowed = 0
    for _ in range(4):
        with suppress(ValueError):
            publish_counts("k-norm", [40, 25, 10], 0.25, ledger=LedgerFile(path, 5))
            allowed += 1
    return allowed


def test_threads_do_not_exceed_the_budget_together(path):
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, [path] * 8)) == 20
    assert len(entries(path)) == 20
    assert LedgerFile(path).check().epsilon == 0


@pytest.mark.slow
def test_processes_do_not_exceed_the_budget_together(path, forks):
    with forks.Pool(4) as pool:
        assert sum(pool.map_async(spend, [path] * 8, chunksize=2).get(120)) == 20
    assert len(entries(path)) == 20


@pytest.mark.parametrize("name", mechanisms.FAMILIES)
def test_release_under_add_remove_has_at_most_twice_its_loss_under_replacement(name):
    """The bound is attained by counts of categories."""
    family = mechanisms.FAMILIES[name]
    replaced, added = (family.sensitivity(BOUNDS.get(name), relation) for relation in Neighbouring)
    assert replaced <= 2 * added
    assert (replaced == 2 * added) is (name == "multinomial")


def test_release_under_add_remove_spends_twice_its_loss(path):
    def publish():
        publish_sums("multinomial", np.eye(3), 1.0, None, Neighbouring.ADD_OR_REMOVE_ONE, ledger=LedgerFile(path, 3.5))

    publish()
    publish_sums("multinomial", np.eye(3), 1.0, ledger=path)
    added, replaced = entries(path)
    assert (added["epsilon"], added["guarantee"]) == (2.0, "1-DP under add/remove")
    assert (replaced["epsilon"], "guarantee" in replaced) == (1.0, False)
    assert_refused(publish, r"at most 0\.5, .* got 2; nothing was released; an epsilon under add/remove")
    assert len(entries(path)) == 2

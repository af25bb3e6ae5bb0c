"""Neighbouring tables show the same until the noise, and everything later follows from the release, by all doors."""

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mechanisms
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import load_profile
from studies.cli import OWN_NUMBERS
from tests.studies.neighbouring import (
    COMMANDS,
    FUNCTIONS,
    GIVEN,
    NUMBERS,
    PinnedReleases,
    as_arrays,
    draw_tables,
    observe,
    run_command,
    shorten_inference,
    stop_at_noise,
    write,
)

DOORS = [*COMMANDS, *FUNCTIONS]


@pytest.fixture(scope="module")
def client():
    with connect(load_profile(None)) as opened:
        yield opened


@pytest.fixture
def door(monkeypatch, tmp_path, client):
    """Return a function that shows what a door does with a table until its noise."""
    monkeypatch.chdir(tmp_path)
    shorten_inference(monkeypatch, client)
    requests = stop_at_noise(monkeypatch)

    def show(name, rows):
        if name in COMMANDS:
            write(rows)
            return observe(requests, lambda: run_command(monkeypatch, *COMMANDS[name], *GIVEN))
        ledger = mechanisms.LedgerFile("l", budget="1e6:0.5")
        return observe(requests, lambda: FUNCTIONS[name](as_arrays(rows), ledger=ledger))

    return show


def check(door, name, n_pairs, seed):
    """Assert that a door gets to the noise of two neighbours in silence, and shows the same before."""
    rng = np.random.default_rng([seed, DOORS.index(name)])
    for _ in range(n_pairs):
        first, second = (door(name, rows) for rows in draw_tables(rng))
        assert first.code == "draws", first
        assert (first.warned, first.texts[1]) == ([], "")
        assert first == second
        assert first.entries.count("epsilon") == 1


@pytest.mark.parametrize("name", DOORS)
def test_neighbours_show_the_same_until_the_noise(door, name):
    check(door, name, 5 if name in COMMANDS else 25, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_many_neighbours_show_the_same_until_the_noise(door, name):
    check(door, name, 100 if name in COMMANDS else 340, seed=2)  # 5,040 pairs in all


@pytest.mark.parametrize("name", ["mean", "count", "histogram of numbers", "regress", "partition at cutoffs"])
def test_a_row_that_is_refused_shows_a_difference(door, name):
    """Negative control: text in a column of numbers, and a missing cell, are no valid records."""
    rows, _ = draw_tables(np.random.default_rng(1))
    assert door(name, [["x", "x", "x", ""], *rows[1:]]) != door(name, rows)


def test_a_warning_about_a_record_shows_a_difference(door, monkeypatch):
    """Negative control: a door whose arithmetic overflows for one record is seen."""
    rows, _ = draw_tables(np.random.default_rng(1))
    others = [["1.7e308", *rows[0][1:]], *rows[1:]]
    square = {"publish_bounds": lambda x, **how: mechanisms.publish_bounds(np.minimum(x[:, 0] ** 2, 9.0), 9.0, **how)}
    monkeypatch.setitem(FUNCTIONS, "publish_bounds", square["publish_bounds"])
    ordinary = [["1", "1", "1", "a"]] * 40
    assert door("publish_bounds", ordinary).warned == []
    assert door("publish_bounds", [others[0], *ordinary[1:]]).warned != []


def test_every_command_and_function_that_releases_is_a_door():
    """Functions with a seed of rehearsals release real data, and so do the commands for own numbers but `infer`."""
    exported = {name: getattr(mechanisms, name) for name in mechanisms.__all__}
    functions = {name: value for name, value in exported.items() if inspect.isfunction(value)}
    releasing = {name for name, value in functions.items() if "rehearsal_seed" in inspect.signature(value).parameters}
    assert releasing == {name.split()[0] for name in FUNCTIONS}
    assert OWN_NUMBERS
    assert {words[0] for words in COMMANDS.values()} == {
        *("mean", "proportion", "histogram", "count", "regress", "partition")
    }


def run_pinned(monkeypatch, client, name, tables, released=None):
    """Return what a command prints for each table, its plot, and the releases; given releases are not drawn again."""
    shorten_inference(monkeypatch, client)
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
    zeros = [["0", "0", "0", "NA"]] * 40
    with pytest.MonkeyPatch.context() as monkeypatch, connect(load_profile(None)) as opened:
        shown = run_pinned(monkeypatch, opened, name, [zeros] * len(released), released)
    Path("shown.pickle").write_bytes(pickle.dumps([(result, plot) for result, plot, _ in shown]))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_process_with_the_release_alone_prints_the_same(monkeypatch, tmp_path, client, name):
    """A process that never sees the tables prints the same lines, warnings and plots as 50 runs that do."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    with monkeypatch.context() as patch:
        shown = run_pinned(patch, client, name, [draw_tables(rng)[0] for _ in range(50)])
    assert all(result.code in (0, 3) for result, _, _ in shown), shown[0]
    Path("released.pickle").write_bytes(pickle.dumps([released for _, _, released in shown]))
    code = f"from tests.studies.test_neighbouring import replay; replay({str(tmp_path)!r}, {name!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600, cwd=Path(__file__).parents[2])
    replayed = pickle.loads(Path("shown.pickle").read_bytes())
    for (first, plot, _), (second, other) in zip(shown, replayed, strict=True):
        assert (first.code, first.texts, first.warned, plot) == (second.code, second.texts, second.warned, other)
    assert len({first.texts for first, _, _ in shown}) > 25  # the releases differ


def test_numbers_of_the_tables_are_valid():
    assert all(np.isfinite(as_arrays([[number] * 3 + [""]])).all() for number in NUMBERS)

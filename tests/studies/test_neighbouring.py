"""Neighbouring tables show the same until the noise, and everything later follows from the release, by all doors."""

import inspect

import numpy as np
import pytest

import mechanisms
from tests.studies.neighbouring import (
    COMMANDS,
    FUNCTIONS,
    NUMBERS,
    as_arrays,
    check_pairs,
    check_replay,
    draw_tables,
    opened_doors,
)

DOORS = [*COMMANDS, *FUNCTIONS]


@pytest.fixture
def door(monkeypatch, tmp_path):
    """Return a function that shows what a door does with a table until its noise."""
    with opened_doors(monkeypatch, tmp_path) as show:
        yield show


@pytest.mark.parametrize("name", DOORS)
def test_neighbours_show_the_same_until_the_noise(door, name):
    """`bench_neighbours.py` compares 5,000 pairs."""
    check_pairs(door, name, 5 if name in COMMANDS else 25, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_process_with_the_release_alone_prints_the_same(monkeypatch, forks, tmp_path, name):
    """A process that never sees the tables prints the same lines, warnings and plots as the runs that do."""
    check_replay(monkeypatch, tmp_path, name, n_runs=2 if name.startswith("regress") else 3, processes=forks)


@pytest.mark.parametrize("name", ["mean", "count", "histogram of numbers", "regress", "partition at cutoffs"])
def test_a_row_that_is_refused_shows_a_difference(door, name):
    """Negative control: text in a column of numbers, and a missing cell, are no valid records."""
    rows, _ = draw_tables(np.random.default_rng(1))
    assert door(name, [["x", "x", "x", ""], *rows[1:]]) != door(name, rows)


def test_a_warning_about_a_record_shows_a_difference(door, monkeypatch):
    """Negative control: a door whose arithmetic overflows for one record is seen."""

    def publish(x, **how):
        return mechanisms.publish_bounds(np.minimum(x[:, 0] ** 2, 9.0), 9.0, **how)

    monkeypatch.setitem(FUNCTIONS, "publish_bounds", publish)
    ordinary = [["1", "1", "1", "a"]] * 40
    extreme = [["1.7e308", "1", "1", "a"], *ordinary[1:]]
    assert (door("publish_bounds", ordinary).warned, door("publish_bounds", extreme).warned != []) == ([], True)


def test_every_command_and_function_that_releases_is_a_door():
    """Functions with the seed of a rehearsal release real data, and so do the commands for own numbers but `infer`."""
    exported = {name: getattr(mechanisms, name) for name in mechanisms.__all__}
    functions = {name: value for name, value in exported.items() if inspect.isfunction(value)}
    releasing = {name for name, value in functions.items() if "rehearsal_seed" in inspect.signature(value).parameters}
    assert releasing == {name.split()[0] for name in FUNCTIONS}
    assert {words[0] for words in COMMANDS.values()} == {
        *("mean", "proportion", "histogram", "count", "regress", "partition")
    }


def test_numbers_of_the_tables_are_valid():
    assert all(np.isfinite(as_arrays([[number] * 3 + [""]])).all() for number in NUMBERS)

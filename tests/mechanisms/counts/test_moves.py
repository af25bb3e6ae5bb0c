"""Tests of the number of calls from module to module that one build makes."""

import pytest

from tests.benchmarks.bench_moves import GOALS, build_moves, count_moves


@pytest.mark.parametrize("name", GOALS)
def test_a_build_moves_rarely_between_modules(name):
    moves = build_moves(name)
    assert 0 < moves.total() <= GOALS[name], moves


def test_calls_within_other_packages_are_no_moves():
    assert count_moves(lambda: sum(range(3))).total() == 0

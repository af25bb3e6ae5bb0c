"""Tests of random streams: draws depend on the identity of the trial only."""

import hashlib
import pickle
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.declare.seed_states import seed_states
from pipeline.declare.streams import Streams, canonical_json
from tests.statistical import assert_frequencies, assert_mean_within

VALUES = {"n": 100, "epsilon": 0.5, "prior": (1.0, 1.0)}


def streams(trials=range(1), seed=1, study="s", panel="p", role="data", values=VALUES):
    return Streams(seed, study, panel, role, values, trials)


def numpy_bit_generator(its, trial, *labels):
    """Return the bit generator of a stream as NumPy seeds it from the hash of the whole key."""
    key = canonical_json([its.seed, its.study, its.panel, its.role, sorted(its.values.items()), trial, *labels])
    words = np.frombuffer(hashlib.sha256(key.encode()).digest(), "<u4")
    return np.random.PCG64DXSM(np.random.SeedSequence([int(word) for word in words]))


def draw_with_generators(its, label=None):
    """Draw a different number of values in each trial, as rejection sampling does."""
    return [rng.normal(size=rng.integers(1, 5)).tolist() for rng in its.generators(label=label)]


@given(st.sets(st.integers(1, 39)), st.integers(1, 4), st.sampled_from([None, "noise"]))
def test_draws_do_not_depend_on_the_division_of_trials(cuts, n_uniforms, label):
    bounds = [0, *sorted(cuts), 40]
    parts = [streams(range(start, stop)) for start, stop in pairwise(bounds)]
    whole = streams(range(40))
    np.testing.assert_array_equal(
        np.concatenate([part.uniforms(n_uniforms, label) for part in parts]), whole.uniforms(n_uniforms, label)
    )
    assert [row for part in parts for row in draw_with_generators(part, label)] == draw_with_generators(whole, label)


@pytest.mark.parametrize("label", [None, "noise"])
def test_single_trial(label):
    whole = streams(range(20))
    alone = streams(range(5, 9)).single(13)
    assert alone.trials == range(13, 14)
    np.testing.assert_array_equal(alone.uniforms(3, label), whole.uniforms(3, label)[13:14])
    assert draw_with_generators(alone, label) == draw_with_generators(whole, label)[13:14]


def draw_uniforms(its, **label):
    return its.uniforms(2, **label).ravel().tolist()


def draw_from_generators(its, **label):
    return [rng.random() for rng in its.generators(**label)]


@pytest.mark.parametrize("draw", [draw_uniforms, draw_from_generators])
def test_second_draw_requires_a_label(draw):
    """A second draw from a stream without a new label, which would repeat the first draw, raises an error."""
    its = streams(range(3))
    first = draw(its)
    with pytest.raises(ValueError, match="label"):
        draw(its)
    second, third = draw(its, label="second"), draw(its, label="third")
    assert len({*first, *second, *third}) == 3 * len(first)
    with pytest.raises(ValueError, match="'second'"):
        draw(its, label="second")
    assert draw(streams(range(3))) == first
    assert draw(streams(range(3)), label="second") == second


def test_second_draw_raises_immediately():
    """A second call of `generators` raises an error at once, not when a generator is first used."""
    its = streams(range(3))
    its.generators()
    with pytest.raises(ValueError, match=r"Streams\.generators was called twice in role 'data' of panel p"):
        its.generators()
    its.uniforms(2)
    with pytest.raises(ValueError, match=r"Streams\.uniforms"):
        its.uniforms(3)
    for label in ("", 0):
        with pytest.raises(ValueError, match="non-empty string"):
            its.uniforms(1, label=label)


@pytest.mark.parametrize("d", [1, 3, 7])
def test_rows_of_uniforms_are_the_advanced_stream(d):
    """The uniforms of a trial equal those of the common generator, advanced by NumPy's `advance`."""
    rows = streams(range(1000)).uniforms(d)
    assert rows.shape == (1000, d)
    for trial in (0, 1, 17, 999):
        bit_generator = streams()._common_bit_generator()
        bit_generator.advance(trial * d)
        np.testing.assert_array_equal(rows[trial], np.random.Generator(bit_generator).random(d))


def test_late_trials_need_no_earlier_draws():
    assert streams(range(10**15, 10**15 + 2)).uniforms(5).shape == (2, 5)


def test_order_of_names_does_not_matter():
    backwards = dict(reversed(VALUES.items()))
    assert list(backwards) != list(VALUES)
    np.testing.assert_array_equal(streams(values=backwards).uniforms(4), streams().uniforms(4))
    assert draw_with_generators(streams(values=backwards)) == draw_with_generators(streams())


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"study": "t"},
        {"panel": "q"},
        {"role": "gibbs"},
        {"values": {**VALUES, "n": 101}},
        {"values": {**VALUES, "epsilon": 0.5000000000000001}},
        {"values": {**VALUES, "prior": (1.0, 2.0)}},
        {"values": {**VALUES, "prior": (1.0, 1.0, 0.0)}},
        {"values": {"n": 100, "epsilon": 0.5}},
        {"values": {"m": 100, "epsilon": 0.5, "prior": (1.0, 1.0)}},
        {"study": "sp", "panel": ""},
        {"study": "p", "panel": "s"},
        {"values": {"n": 0.5, "epsilon": 100, "prior": (1.0, 1.0)}},
    ],
    ids=str,
)
def test_every_part_of_the_key_changes_the_stream(other):
    assert not np.isin(streams(**other).uniforms(8), streams().uniforms(8)).any()
    ours, theirs = (next(its.generators()).random(8) for its in (streams(), streams(**other)))
    assert not np.isin(ours, theirs).any()


def test_no_collisions_over_a_grid_of_keys():
    """The first 64-bit words of about 4,000 streams are distinct; by chance, two would agree with probability 1e-12."""
    first = []
    vectors = [(1.0,), (1.0, 2.0), (1.0, 2.0, 0.0), (2.0, 1.0), (12.0,), (0.0, 1.0, 2.0)]
    for seed, panel, role, n, vector in product((0, 1, 2**40), "ab", ("data", "m"), range(5), vectors):
        its = streams(range(10), seed, "s", panel, role, {"n": n, "v": vector})
        bit_generators = [its._common_bit_generator(), *(rng.bit_generator for rng in its.generators())]
        first += [bit_generator.random_raw() for bit_generator in bit_generators]
    assert len(first) == 3 * 2 * 2 * 5 * 6 * 11
    assert len(set(first)) == len(first)


def test_trials_and_the_common_stream_are_separate():
    whole = streams(range(50))
    singles = [rng.random() for rng in whole.generators()]
    assert not np.isin(singles, whole.uniforms(4)).any()


def test_golden_numbers():
    """Streams have known numbers; other numbers would invalidate stored results and require new versions of studies."""
    its = Streams(7, "study", "panel", "role", {"n": 100, "a": (1.0, 0.5), "e": 1e-8, "k": "x"}, range(2, 4))
    key = canonical_json([7, "study", "panel", "role", sorted(its.values.items()), 2])
    assert key == '[7,"study","panel","role",[["a",[1.0,0.5]],["e",1e-08],["k","x"],["n",100]],2]'
    assert its.uniforms(2).tolist() == GOLDEN_UNIFORMS
    assert [rng.random() for rng in its.generators()] == GOLDEN_GENERATORS
    assert [int(rng.integers(2**63)) for rng in replace(its).generators()] == GOLDEN_INTEGERS


GOLDEN_UNIFORMS = [[0.07423123640390461, 0.782440972316299], [0.8694703698508658, 0.006620410458785808]]
GOLDEN_GENERATORS = [0.08604291518630203, 0.577973715485601]
GOLDEN_INTEGERS = [793605817898806085, 5330866605446950443]


LONG = "a study whose name has many more characters than the blocks of the hash function, which are of 64 bytes " * 3
BOUNDARIES = [range(13), range(95, 105), range(2**32 - 3, 2**32 + 3), range(2**64 - 3, 2**64 + 3), range(7, 8)]


@pytest.mark.parametrize("labels", [(), ("second",), ('é "quoted"',)], ids=str)
@pytest.mark.parametrize("trials", BOUNDARIES, ids=str)
@pytest.mark.parametrize(
    "key",
    [{}, {"study": LONG}, {"panel": "Größe ≤ ½", "role": "名前"}, {"values": {}}, {"values": {"x": -0.0, "k": "\\"}}],
    ids=["short", "long", "not-ascii", "no-values", "escapes"],
)
def test_bit_generators_equal_those_that_numpy_seeds(key, trials, labels):
    its = streams(trials, **key)
    states = [rng.bit_generator.state for rng in its.generators(*labels)]
    assert states == [numpy_bit_generator(its, trial, *labels).state for trial in trials]
    common = numpy_bit_generator(its, None, *labels)
    np.testing.assert_array_equal(
        streams(range(2), **key).uniforms(3, *labels), np.random.Generator(common).random((2, 3))
    )


def test_seeds_equal_the_first_word_of_the_whole_key():
    its = streams(range(98, 102))
    for label in ("", "é"):
        keys = [canonical_json([1, "s", "p", "data", sorted(VALUES.items()), k, "seeds", label]) for k in its.trials]
        first = [int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little") for key in keys]
        assert its.seeds(label or None) == [1 + word % (2**31 - 1) for word in first]


def assert_many_keys_agree_with_numpy(n_keys):
    """Compare seeded states of random words, words with extreme values, and streams of trials, with those of NumPy."""
    rng = np.random.default_rng(1)
    words = rng.integers(2**32, size=(n_keys, 8), dtype=np.uint32)
    words[: n_keys // 2][rng.random((n_keys // 2, 8)) < 0.3] = 0
    words[: n_keys // 4][rng.random((n_keys // 4, 8)) < 0.3] = 2**32 - 1
    words[:9] = np.tri(9, 8, -1, dtype=np.uint32)  # zero as the last words, and as all of them
    expected = [np.random.SeedSequence(entropy.tolist()).generate_state(4, np.uint64) for entropy in words]
    np.testing.assert_array_equal(seed_states(words), expected)
    its = streams(range(10**9, 10**9 + n_keys))
    for trial, found in zip(its.trials, its.generators(), strict=True):
        assert found.bit_generator.state["state"] == numpy_bit_generator(its, trial).state["state"]


def test_ten_thousand_keys_have_the_states_of_numpy():
    assert_many_keys_agree_with_numpy(10**4)


@pytest.mark.exhaustive
def test_a_million_keys_have_the_states_of_numpy():
    assert_many_keys_agree_with_numpy(10**6)


def test_spawned_and_copied_generators_equal_those_of_numpy():
    """Generators of trials spawn children, and can be copied and sent to processes, as those that NumPy seeds."""
    its = streams(range(5, 6))
    ours, numpys = next(its.generators()), np.random.Generator(numpy_bit_generator(its, 5))
    assert [child.random() for child in ours.spawn(2)] == [child.random() for child in numpys.spawn(2)]
    assert ours.bit_generator.seed_seq.entropy == numpys.bit_generator.seed_seq.entropy
    for copied in (deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert copied.bit_generator.state == numpys.bit_generator.state
        assert copied.spawn(1)[0].random() == np.random.Generator(deepcopy(numpys.bit_generator)).spawn(1)[0].random()
    for dtype in (np.uint32, np.uint64, "uint64"):
        states = [rng.bit_generator.seed_seq.generate_state(4, dtype) for rng in (ours, numpys)]
        np.testing.assert_array_equal(*states)


def test_uniforms_are_uniform():
    draws = streams(range(20_000)).uniforms(2)
    assert draws.min() >= 0
    assert draws.max() < 1
    for column in draws.T:
        assert_mean_within(column, 0.5)
        assert_mean_within((column - 0.5) ** 2, 1 / 12)
        assert_frequencies(np.bincount((column * 20).astype(int), minlength=20), np.full(20, 0.05))
    assert_mean_within((draws[:, 0] - 0.5) * (draws[:, 1] - 0.5), 0.0)
    with pytest.raises(AssertionError):  # negative control: 5 % wrong
        assert_mean_within(draws[:, 0] * 1.05, 0.5)


@pytest.mark.parametrize("of", ["trials", "cells"])
def test_streams_of_trials_and_of_cells_are_independent(of):
    """First draws of consecutive trials, or cells, are uniform, and those of neighbours are not correlated."""
    if of == "trials":
        first = np.array([rng.random() for rng in streams(range(20_000)).generators()])
    else:
        first = np.array([streams(values={"n": n}).uniforms(1)[0, 0] for n in range(5_000)])
    assert stats.kstest(first, "uniform").pvalue > 1e-6
    assert_mean_within((first[1:] - 0.5) * (first[:-1] - 0.5), 0.0)


def test_canonical_json_is_plain_and_strict():
    assert canonical_json({"b": (1, 2.5), "a": "é"}) == '{"a":"\\u00e9","b":[1,2.5]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))

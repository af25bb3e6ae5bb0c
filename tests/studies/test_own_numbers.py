"""Tests of the commands that release a user's own numbers, of their ledger, and of their refusals."""

import json
import math
import re
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special

from mechanisms import Guarantee, LedgerFile, posterior_from_release, private_posterior
from mechanisms.core.noise import Noise
from mechanisms.release import Loss
from pipeline.errors import BadInputError
from studies.own_data import estimates, spending
from studies.own_data.conditions import (
    divide_range,
    encode_bins,
    encode_categories,
    label_bins,
    label_categories,
    parse_categories,
    parse_edges,
)
from studies.own_data.estimate_output import Question
from studies.own_data.estimates import Spending, estimate, release_histogram, release_number
from studies.own_data.private_table import read_column
from tests.statistical import assert_mean_within
from tests.studies.test_output import Full

SECRET = "48151.62342"
COLOURS = ["red", "green", "blue", "mauve"]


@pytest.fixture
def file(tmp_path):
    """Return a CSV file of 40 private records."""
    rng = np.random.default_rng(1)
    incomes, ages = rng.lognormal(10.4, 0.6, 40).round(2), rng.integers(18, 90, 40)
    rows = (f"{income},{age},{COLOURS[j % 4]}" for j, (income, age) in enumerate(zip(incomes, ages, strict=True)))
    path = tmp_path / "people.csv"
    path.write_text("income, age, colour\n" + "\n".join(rows) + "\n")
    return path


MEAN = ("mean", "people.csv", "--column", "income", "--range", "0:200000")
AUTO = (*MEAN[:4], "--range", "auto", "--bounds-epsilon")
LEDGER = ("--ledger", "l", "--budget", "3", "--yes")
COUNT = ("count", "people.csv", "--where", "age>=65")
PROPORTION = ("proportion", "people.csv", "--where", "colour=red")
DIVISION = ("partition", "r.csv", "--target", "y", "--coefficient", "x", "--partitions", 20, "--cutoffs", "1")
PARTITION = ("partition", "people.csv", "--target=age", "--coefficient=income", "--partitions=9", "--cutoffs=1")
HISTOGRAM = ("histogram", "people.csv", "--column", "colour", "--categories", "red,green")


def count_rows(holds, spending):
    """Return the estimate of the number of rows that satisfy a condition."""
    question = Question("count", "x")
    return estimate(question, release_number(holds, question, spending).infer())


def numbers(out):
    """Return the numbers in the rows of the printed table, by label."""
    rows = re.findall(r"^(.+?) +(-?[\d,.]+) +(-?[\d,.]+) +(-?[\d,.]+) *$", out, re.MULTILINE)
    return {label.strip(): [float(value.replace(",", "")) for value in values] for label, *values in rows}


@pytest.mark.parametrize("words", [MEAN, COUNT, PROPORTION, HISTOGRAM], ids=lambda words: words[0])
def test_release_prints_interval_guarantee_and_ledger_and_draws_a_plot(printed, refused, file, words):
    out = printed(*words, "--epsilon", 2, "--ledger", "l", "--budget", 3, "--yes", "--plot", "p.svg")
    assert all(low <= estimate <= high for estimate, low, high in numbers(out).values())
    assert "guarantee: 2-DP (proved)\n" in out
    assert "neighbours: one row is replaced; the number of rows, 40, is public\n" in out
    assert out.endswith("ledger: l, 1 of the budget left\nplot: p.svg\n")
    assert Path("p.svg").read_text().startswith("<svg")
    entries = [json.loads(line) for line in Path("l").read_text().splitlines()]
    assert [entry.get("budget", entry.get("epsilon")) for entry in entries] == [3, 2]
    message = "epsilon must be at most 1, the rest of the budget of 3 in the ledger l, got 1.001"
    refused(*words, "--epsilon", 1.001, "--ledger", "l", "--yes", message=message)


@pytest.mark.slow
def test_search_for_the_range_is_entered_before_the_mean_and_counts_in_the_guarantee(command, printed, file):
    account = ("--epsilon", 2, "--ledger", "l", "--budget", 10)
    out = printed(*AUTO, 8, *account, "--yes")
    assert "guarantee: 10-DP (proved), of which 8 for the range\n" in out
    assert out.endswith("ledger: l, 0 of the budget left\n")
    low, high = re.match(r"released range: (\S+) to (\S+), found with --bounds-epsilon 8; --range \1:\2 ", out).groups()
    assert f"range: values outside {float(low):,g} to {float(high):,g} count as" in out
    entries = [json.loads(line) for line in Path("l").read_text().splitlines()]
    named = [("range for the mean of income from people.csv", 8), ("mean of income from people.csv", 2)]
    assert [(entry["release"], entry["epsilon"]) for entry in entries[1:]] == named
    assert command(*AUTO, 8, "--epsilon", 2, "--seed", 1)[1] == command(*AUTO, 8, *account, "--seed", 1)[1]


def test_failed_search_spends_its_loss_only(command, file, monkeypatch):
    monkeypatch.setattr(
        estimates, "publish_bounds", lambda records, epsilon, seed, ledger: ledger.spend(Guarantee(epsilon), "")
    )
    code, out, err = command(*AUTO, 8, "--epsilon", 2, "--ledger", "l", "--budget", 10, "--yes")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "no range was found with --bounds-epsilon 8, and no mean was released; 8 is spent on it" in err
    assert LedgerFile("l").check().epsilon == 2


@pytest.mark.parametrize("kind", [(), ("--json",)])
def test_found_range_is_printed_before_the_mean_which_another_release_may_prevent(command, file, monkeypatch, kind):
    """The other release enters the ledger while the range is searched for."""

    def publish(records, epsilon, seed, ledger):
        ledger.spend(Guarantee(epsilon), "range")
        ledger.spend(Guarantee(2), "of another process")
        return 0.0, 2.0**18

    monkeypatch.setattr(estimates, "publish_bounds", publish)
    code, out, err = command(*AUTO, 8, "--epsilon", 2, "--ledger", "l", "--budget", 10, "--yes", *kind)
    line, _, err = f"{err if kind else out + err}".partition("\n")
    assert (code, line.split(",")[0], err.count("\n")) == (2, "released range: 0.0 to 262144.0", 1)
    assert not kind or not out
    assert "the budget of 10 in the ledger l is spent, got a loss of 2; no mean was released, but the range is" in err
    assert "nothing was released" not in err


def test_mean_that_cannot_be_released_is_refused_before_the_search(refused, file):
    words = (*AUTO, 8, "--epsilon", 1e-9, "--ledger", "l", "--budget", 10, "--yes")
    refused(*words, message="the noise scale must be at most 2^52 units")


def test_partition_enters_all_values_in_the_ledger(command, printed, refused, tmp_path):
    rng = np.random.default_rng(3)
    table = np.column_stack([rng.normal(size=200), rng.normal(size=200)])
    np.savetxt("t.csv", table, delimiter=",", header="y,x", comments="")
    words = ("partition", "t.csv", "--target", "y", "--coefficient", "x", "--partitions", 20, "--cutoffs", "0,1,2")
    account = ("--ledger", "l", "--budget", "0.3")
    assert "rehearsal" in command(*words, "--epsilon", 0.1, *account, "--seed", 1)[1]
    assert not Path("l").exists()
    refused(*words, "--epsilon", 0.1, *account, message="pass --yes, or --seed to rehearse")
    out = printed(*words, "--epsilon", 0.1, *account, "--yes")
    assert out.endswith("ledger: l, 0 of the budget left\n")  # in doubles 3 x 0.1 > 0.3
    message = "the budget of 0.3 in the ledger l is spent, got a loss of 0.3; nothing was released"
    refused(*words, "--epsilon", 0.1, "--ledger", "l", message=message)
    refused(*words, "--epsilon", 0.1, "--budget", 3, message="--ledger must be given with --budget")


@pytest.fixture
def regression(tmp_path):
    """Return the words of a regression on a table of 2,000 rows, whose response depends on one column."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, 2000)
    np.savetxt("r.csv", np.column_stack([x + rng.normal(0, 0.1, 2000), x]), delimiter=",", header="y,x", comments="")
    return ("regress", "r.csv", "--target", "y", "--range", "y=-1:2", "--range", "x=0:1", "--epsilon", 1)


@pytest.mark.parametrize("name", ["mean", "count", "proportion", "histogram", "regress", "partition"])
def test_release_is_printed_before_the_posterior_as_text_or_as_json(command, file, regression, name):
    words = {"mean": MEAN, "count": COUNT, "proportion": PROPORTION, "histogram": HISTOGRAM, "partition": DIVISION}
    words = (*words[name], "--epsilon", 3.3) if name in words else (*regression[:-1], 3.3)
    shown = {}
    for kind in ((), ("--json",)):
        code, *shown[kind] = command(*words, "--seed", 1, *kind)
        assert code == 0
    (out, err), (as_json, other) = shown.values()
    assert err == ""
    text = next(line for line in out.splitlines() if line.startswith("release: "))
    assert re.fullmatch(r"release: .* -?[\d.e+-]+; noise: .+", text)
    assert "{" not in out + other
    assert {"noise", "guarantee", "n"} <= json.loads(as_json).keys()
    printed = re.findall(r" (-?\d[\d.e+-]*)(?=[,;])", text.partition("; noise")[0] + ";")
    assert all(number.removesuffix(".0") in as_json for number in printed)  # no digit is omitted
    scales = [] if name == "partition" else [json.loads(as_json)["noise"]["scale"]]
    assert list(map(float, re.findall(r"; noise: laplace of scale (\S+)$", text))) == scales
    assert out.replace(f"{text}\n", "") == other
    after = out.partition(text)[2]
    assert after.index("\nguarantee: none: a rehearsal") < after.index(
        "\nneighbours: one row is replaced; the number of"
    )


@pytest.mark.parametrize("kind", [(), ("--json",)])
@pytest.mark.parametrize(
    ("stream", "expected", "message"), [(Full(), 3, "dpstudies: cannot write the output: No space left"), (None, 0, "")]
)
def test_release_that_cannot_be_written_to_standard_output_is_left_on_standard_error(
    command, file, monkeypatch, kind, stream, expected, message
):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        code, _, err = command(*PROPORTION, "--epsilon", 4, "--ledger", "l", "--budget", 4, "--yes", *kind)
    assert (code, err.splitlines()[-1].startswith(message)) == (expected, True)
    Path("r.txt").write_text(err)
    assert command("proportion", "--release", "r.txt")[0] == 0


@pytest.mark.parametrize("kind", [(), ("--json",)])
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (ValueError("chains are short"), 2)])
@pytest.mark.parametrize("words", [PROPORTION, HISTOGRAM], ids=lambda words: words[0])
def test_inference_that_ends_early_leaves_a_release_that_can_be_repeated(
    command, file, monkeypatch, words, error, code, kind
):
    def end(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("mechanisms.inference.private_posterior.infer_by", end)
        *printed, err = command(*words, "--epsilon", 4, "--ledger", "l", "--budget", 4, "--yes", *kind)
    assert printed[0] == code
    assert printed[1].startswith("{" if kind else "release: ")
    assert "the release is valid: pass its line in a file to --release FILE" in err
    Path("r.txt").write_text(printed[1] if kind else err)
    again, out, _ = command(words[0], "--release", "r.txt")
    assert (again, kind or printed[1] in out) == (0, kind or True)


@pytest.mark.parametrize("words", [COUNT, DIVISION], ids=lambda words: words[0])
def test_error_of_the_ledger_after_the_draw_does_not_end_the_output(printed, file, regression, monkeypatch, words):
    def fail(*_):
        raise ValueError("cannot use the ledger")

    monkeypatch.setattr(LedgerFile, "describe", fail)
    out = printed(*words, "--epsilon", 4, "--ledger", "l", "--budget", 4, "--yes")
    assert "release: " in out
    assert out.endswith(
        "warning: the ledger l, which has this release, cannot be read; restore it before another one\n"
    )


@pytest.mark.parametrize("words", [MEAN, COUNT, PROPORTION, HISTOGRAM], ids=lambda words: words[0])
def test_printed_release_gives_the_estimate_again_and_spends_nothing(command, file, words):
    """Exact posteriors are the same; the mean, from chains, agrees within a tenth of its interval."""
    account = ("--epsilon", 4, "--ledger", "l", "--budget", 4, "--yes")
    unit = ("--unit", "EUR") if words is MEAN else ()
    code, out, first = command(*words, *unit, *account, "--json")
    assert code == 0
    Path("r.txt").write_text(json.dumps(json.loads(out.removeprefix("release: ")), sort_keys=True))
    code, repeated, again = command(words[0], "--release", "r.txt", "--json", "--plot", "p.svg")
    assert (code, repeated) == (0, out)
    assert Path("p.svg").read_text().startswith("<svg")
    expected = first.replace("ledger: l, 0 of the budget left", "plot: p.svg")
    if words is MEAN:
        (label,) = numbers(first)
        before, after = np.array(numbers(first)[label]), np.array(numbers(again)[label])
        assert np.abs(before - after).max() < (before[2] - before[1]) / 10
        row = re.compile(r"^mean .*$", re.MULTILINE)
        expected, again = row.sub("", expected), row.sub("", again)
    assert again == expected
    assert "guarantee: 4-DP (proved)" in again
    assert Path("l").read_text().count("epsilon") == 1


@pytest.mark.parametrize(("categories", "is_warned"), [("red,green,blue", False), ("Red,Green", True)])
def test_histogram_warns_if_most_rows_count_as_other(command, printed, file, categories, is_warned):
    """A quarter of the rows are mauve, and none is Red; neither note nor warning of edges, which divide all values."""
    words = ("histogram", "people.csv", "--epsilon", 5, "--seed", 1, "--column")
    out = printed(*words, "colour", "--categories", categories)
    assert (
        "\ncategories: all other cells count as other; whether cells of a category exist is not checked, which" in out
    )
    assert ("warning: more than half of the rows count as other, by a noisy share of " in out) is is_warned
    out = command(*words, "age", "--edges", "900:1000")[1]
    assert ("warning" in out, "not checked" in out) == (False, False)


@pytest.mark.slow
@pytest.mark.parametrize(("high", "is_resolved"), [(200_000, True), (2_000_000, False)])
def test_mean_states_that_the_release_does_not_resolve_the_variance(printed, high, is_resolved):
    """Records have a standard deviation of 20,000; the noisy sum alone, in their unit, is the released one."""
    records = np.random.default_rng(2).normal(50_000, 20_000, 800).round()
    Path("wide.csv").write_text("income\n" + "\n".join(map(str, records)) + "\n")
    words = ("mean", "wide.csv", "--column", "income", "--range", f"0:{high}", "--unit", "EUR", "--seed", 1)
    out = printed(*words, "--epsilon", 1)
    assert ("does not resolve the variance" in out) is not is_resolved
    assert ("warning: the noisy mean of income is near the end 0 EUR" in out) is not is_resolved
    if not is_resolved:
        alone, std = re.findall(r"sum alone gives (\S+) EUR, with noise of standard deviation (\S+) EUR;", out)[0]
        sum_of_scaled, scale = re.findall(r"scaled values (\S+),.* of scale (\S+)", out)[0]
        assert float(alone.replace(",", "")) == pytest.approx(high / 2 * (1 + float(sum_of_scaled) / 800), abs=100)
        std_of_mean = high / 2 * math.sqrt(2) * float(scale) / 800
        assert float(std.replace(",", "")) == pytest.approx(std_of_mean, rel=0.05)


@pytest.mark.slow
def test_noisy_mean_near_an_end_of_its_range_gives_a_warning(printed, regression):
    """Means of x and y of r.csv are 1/2."""
    words = ["y=-9:0" if word == "y=-1:2" else word for word in regression]
    out = printed(*words, "--seed", 1)
    limits = "range: values outside 0 to 1 (x), -9 to 0 (y) count as the nearest end; clamped responses bias the coeff"
    assert limits in out
    warned = re.findall("warning: the noisy mean of .*range,", out)
    assert warned == ["warning: the noisy mean of y is near the end 0 of its range,"]


@pytest.mark.slow
def test_release_with_a_search_states_both_losses_again(command, file):
    Path("r.txt").write_text(command(*AUTO, 8, "--epsilon", 2, "--yes", "--json")[1])
    assert "guarantee: 10-DP (proved), of which 8 for the range\n" in command("mean", "--release", "r.txt")[1]


BAD_RELEASES = {
    "count --release r.txt": "r.txt must contain a release of count, got one of proportion; pass it to",
    "proportion --release r.txt --epsilon 1": "--epsilon must be omitted with --release, which",
    "proportion --release r.txt --seed 1": "--seed must be omitted with --release",
    "proportion people.csv --where colour=red --release r.txt": "FILE and --where must be omitted with --release",
    "proportion --release none.txt": "none.txt",
    "proportion --release people.csv": "people.csv must contain the release that proportion --json prints",
    "proportion --release bad.txt": "bad.txt must contain the release that proportion --json prints",
    "proportion people.csv": "FILE, --where, --epsilon must be given, or --release alone, got no --where,",
    "mean": "FILE, --column, --epsilon must be given, or --release alone, got no FILE, --column, --epsilon",
    "count people.csv --where colour=rde --levels red,green --epsilon 1 --yes": "where must compare colour with one of "
    "its public levels red, green, got rde; did you mean red? check",
    "count people.csv --where colour!='1' --levels '1.0',2 --epsilon 1 --yes": "where must compare colour with one of "
    "its public levels 1.0, 2, got 1; ",
}


@pytest.mark.parametrize("line", BAD_RELEASES)
def test_release_that_does_not_suit_and_levels_without_the_value_are_refused(command, refused, file, line):
    printed = command(*PROPORTION, "--epsilon", 1, "--seed", 1, "--json")[1]
    Path("r.txt").write_text(printed)
    Path("bad.txt").write_text(printed.replace('"laplace"', '"normal"'))
    refused(*line.split(), message=BAD_RELEASES[line])


@pytest.mark.parametrize("where", ["colour=red", "colour != green", "age>=65", "age=20.0"])
def test_levels_do_not_change_a_release_of_a_public_value(command, printed, file, where):
    """Levels decide about the condition alone: the release is the same, whether or not a cell has the value."""
    words = (*COUNT[:2], "--where", where, "--epsilon", 1, "--seed", 1)
    levels = "red,green,purple" if "colour" in where else "20,30"
    out = printed(*words, "--levels", levels)
    condition = re.compile(r"^condition: .*\n", re.MULTILINE)
    assert condition.sub("", out) == condition.sub("", command(*words)[1])
    assert f"; public levels: {levels}\n" in out


@pytest.mark.slow
def test_regression_enters_epsilon_and_delta_in_the_ledger(command, printed, refused, regression):
    account = ("--ledger", "l", "--budget", "3:1.5e-6")
    assert "ledger" not in command(*regression, *account, "--seed", 1)[1]
    refused(*regression, *account, message="pass --yes, or --seed to rehearse", is_first=False)
    code, out, _ = command(*regression, "--delta", 1e-3)
    assert (code, "warning: delta 0.001 is not below 1/n = 0.0005: publishing one of 2,000 records" in out) == (2, True)
    out = printed(*regression, "--delta", 1e-6, *account, "--yes")
    assert "warning: delta" not in out
    left = "ledger: l, 2 of the budget left, and 5e-07 of its delta; epsilons add up, and so do deltas\n"
    assert out.endswith(left)
    message = "delta must be at most 5e-07, the rest of the budget of 1.5e-06 in the ledger l, got 1e-06; nothing"
    refused(*regression, "--delta", 1e-6, "--ledger", "l", "--yes", message=message)
    assert command(*regression, "--ledger", "l", "--yes")[0] == 0  # pure noise spends no delta
    entries = [json.loads(line) for line in Path("l").read_text().splitlines()]
    assert [(entry["epsilon"], entry.get("delta")) for entry in entries[1:]] == [(1, 1e-6), (1, None)]
    assert {entry["release"] for entry in entries[1:]} == {"regression of y from r.csv"}
    assert printed(*regression, "--seed", 1, "--plot", "r.svg").endswith("plot: r.svg\n")
    drawn = re.findall(r">(intercept|x|error_variance)<", Path("r.svg").read_text())
    assert drawn == ["intercept", "x", "error_variance"]
    refused("regress", "--release", "r.txt", "--ledger", "l", message="--ledger must be omitted with --release")


@pytest.mark.slow
def test_ledger_without_delta_refuses_a_guarantee_with_delta(refused, regression):
    message = "delta must be at most 0, the rest of the budget of 0 in the ledger l, got 1e-06"
    err = refused(*regression, "--delta", 1e-6, "--ledger", "l", "--budget", 3, "--yes", message=message)
    assert "choose a delta of 0, or start the ledger of other records with a delta, 3:1e-6" in err


def test_regression_is_in_the_ledger_before_its_noise_is_drawn(command, regression, monkeypatch):
    def draw(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("mechanisms.release.ExactNoise.laplace", draw)
    assert command(*regression, "--ledger", "l", "--budget", 3, "--yes")[0] == 130
    assert LedgerFile("l").check().epsilon == 2


@pytest.mark.slow
def test_rehearsal_is_reproducible_and_spends_nothing(printed, file):
    words = (*MEAN, "--epsilon", 2, "--seed", 5, "--unit", "EUR")
    out = printed(*words, "--ledger", "l", "--budget", 1)
    assert out == printed(*words)
    assert not Path("l").exists()
    assert "guarantee: none: a rehearsal" in out
    assert re.match(r"release: sum of scaled values \S+, .*; noise: laplace of scale \S+\nmean of income \(EUR\)", out)


_OF_INCOME, _MEAN, _AUTO, _LEDGER = (" ".join(words) for words in (MEAN[:4], MEAN, AUTO, LEDGER))
_LOW_HIGH = "range must be LOW:HIGH with LOW < HIGH and a finite width, in numbers such as 1000 or -0.5, got"
BAD = {
    f"{_OF_INCOME} --range 5:1 --yes": f"{_LOW_HIGH} '5:1'",
    f"{_OF_INCOME} --range 0:2_0 --yes": f"{_LOW_HIGH} '0:2_0'",
    f"{_OF_INCOME} --range auto --yes": "--range auto needs --bounds-epsilon E, got none",
    f"{_MEAN} --bounds-epsilon 1 --yes": "--bounds-epsilon must be given with --range auto only, got 1.0",
    f"{_AUTO} -1 --yes": "bounds-epsilon: epsilon must be a finite number > 0, got -1",
    f"{_AUTO} 2_0 --yes": "--bounds-epsilon must be a number, got '2_0'; see 'dpstudies mean --help'",
    f"{_AUTO} 1 {_LEDGER}": "epsilon of the bounds must be at least about 3 for 40 records, got 1",
    f"{_AUTO} 9 {_LEDGER}": "epsilon must be at most 3, the rest of the budget of 3 in the ledger l, got 10",
    "mean . --column income --range 0:9 --yes": "a table must end in .zarr, .parquet, .csv, .csv.gz, got .",
    "mean folder.csv --column income --range 0:9 --yes": "cannot read folder.csv as csv: not a regular file; check",
    "mean missing.csv --column income --range 0:9 --yes": "in every row, got a missing cell in data row 2",
    "mean short.csv --column income --range 0:9 --yes": "by no further field, got something else in data row 1",
    f"{_MEAN} --ledger l --budget 1e400 --yes": "budget must be finite and > 0, got Infinity",
    f"{_MEAN} --ledger l --budget 1e-400 --yes": "budget must be finite and > 0, got 0.0",
    f"{_MEAN} --ledger l --yes": "a budget must be given for the new ledger l, got none",
    f"{_MEAN} --ledger l --budget much --yes": "budget must be a number > 0, got 'much'",
    f"{_MEAN} --ledger l --budget -1 --yes": "budget must be finite and > 0, got -1",
    f"{_MEAN} --ledger l --budget 3_0 --yes": "budget must be a number > 0, got '3_0'",
    f"{_MEAN} --ledger l --budget 3:1:2 --yes": "budget must be a number > 0, got '3:1:2'; pass",
    f"{_MEAN} --ledger l --budget 3:1 --yes": "delta of the budget must be in [0, 1), got 1",
    f"{_MEAN} --ledger l --budget 3:nan --yes": "delta of the budget must be in [0, 1), got NaN",
    f"{_MEAN} --ledger . --budget 3 --yes": "cannot use the ledger .: Is a directory",
    _MEAN: "a release must be confirmed, but there is no terminal to ask; pass --yes",
    f"{_MEAN} --seed 1_0": "--seed must be an integer, got '1_0'; see 'dpstudies mean --help'",
    "count people.csv --where age": "where must have the form COLUMN=VALUE, or !=, <, <=, >, >=, got",
    "count people.csv --where age>old": "where must compare with a number for >, got 'age>old'",
    "count people.csv --where age=!5": "where must have a value without ! or a quote at its start, got",
    "count people.csv --where age='5": "where must have a value without ! or a quote at its start, got",
    "histogram people.csv --column colour --categories a,a": "distinct, got 'a' and 'a', which equal the same cells",
    "histogram people.csv --column colour --categories a --range 0:9": "be given, got --categories and --range",
    "histogram people.csv --column age --edges 40:20": "edges must be ascending numbers, such as 1000 or -0.5, got '4",
    "histogram people.csv --column age --edges 0:1e999999999": "edges must be ascending numbers, such as 1000 or",
    f"{' '.join(PARTITION)} --prior zellner:1_0": "got zellner:1_0: a number has no underscores",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_refused_on_one_line_before_anything_is_spent(refused, file, line):
    Path("missing.csv").write_text(f"income\n{SECRET}\n\n")
    Path("short.csv").write_text(f"income,age\n{SECRET},1,2\n")
    Path("folder.csv").mkdir()
    assert SECRET not in refused(*line.split(), "--epsilon", 1, message=BAD[line])


@pytest.mark.parametrize("words", [MEAN, COUNT, PROPORTION, HISTOGRAM, (*AUTO, 8)])
@pytest.mark.parametrize(
    ("account", "message"),
    [
        (("--budget", 3), "--ledger must be given with --budget"),
        (("--ledger", "l", "--budget", 0.5), "epsilon must be at most 0.5, the rest of the budget of 0.5 in the led"),
        (("--plot", "p.gif"), "plot must be a .svg or .png file"),
        ((), "OpenDP must be installed"),
    ],
)
def test_public_options_are_refused_before_cells_are_read(refused, file, monkeypatch, words, account, message):
    def absent():
        raise ModuleNotFoundError("OpenDP must be installed")

    monkeypatch.setattr("studies.own_data.private_table.read_part", None)  # a call would fail with TypeError
    monkeypatch.setattr(estimates, "require_opendp", absent if not account else lambda: None)
    refused(*words, "--epsilon", 1, "--yes", *account, message=message)


@pytest.mark.parametrize("words", [MEAN, COUNT, PROPORTION, HISTOGRAM, (*AUTO, 8), "regression", DIVISION])
def test_epsilon_and_sizes_are_refused_before_the_ledger_is_written(refused, file, regression, words):
    """Limits of numbers are checked before a table is read: the message about a missing one does not appear."""
    words = regression[:-2] if words == "regression" else words
    for epsilon in (0, -1, "nan", "inf", 1e-300, 1e200, 1e-9):
        for table in (words[1], "missing.csv")[: 1 if epsilon == 1e-9 else 2]:
            budget = ("--ledger", "l", "--budget", 3, "--yes")
            message = "" if epsilon == 1e-9 else "epsilon must be "
            refused(words[0], table, *words[2:], "--epsilon", epsilon, *budget, message=message)
    if words is HISTOGRAM:
        refused(*words, "--epsilon", 1e61, "--ledger", "l", "--budget", 1e70, "--yes")
    if "auto" in words:
        for epsilon in (0, 1e-300, 1e200):
            words = ("mean", "missing.csv", *AUTO[2:], epsilon, "--epsilon", 1, "--yes")
            refused(*words, message="bounds-epsilon: epsilon must be ")


def test_answer_on_the_terminal_decides(command, file, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in (False, True):
        monkeypatch.setattr(spending.typer, "confirm", lambda question, err, answer=answer: answer)
        code, _, err = command(*COUNT, "--epsilon", 1)
        assert code == (0 if answer else 2)
        assert ("nothing was released" in err) is not answer


def test_partition_shows_the_size_of_its_noise_before_it_asks(command, regression, monkeypatch):
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(spending.typer, "confirm", lambda question, err: asked.append(question))
    words = (*DIVISION[:-2], "--epsilon", 4)
    assert command(*words, *DIVISION[-2:])[0] == 2
    low, high = map(float, re.findall(r"of 0\.5 to (\S+) \.\.\. (\S+) in 95 %", asked[0])[0])
    assert asked[0].endswith("\nRelease the partition of r.csv, coefficient x of y, with a privacy loss of 4?")
    score = math.sqrt(40) * special.ndtri(0.5 - math.log(20) / (20 * 4))  # Pr[|noise| > log(20)/(Mε)] = 1/20
    assert (low, high) == pytest.approx((special.ndtr(score), special.ndtr(-score)), rel=0.05)
    assert command(*words, "--probabilities", "0.5", "--allow-failure", 1)[0] == 2
    assert asked[1].startswith("noise: about 0.63 posterior standard deviations per quantile\n")  # 4√2/(2√20)
    assert command(*words, "--probabilities", "0.5", "--allow-failure", 1, "--method", "quantile")[0] == 2
    assert asked[2].startswith("noise: a standard deviation of 0.071 half-widths of the interval of a quantile")


def test_range_of_a_histogram_has_ten_bins_of_equal_width(command, file):
    histogram = ("histogram", "people.csv", "--column", "age", "--epsilon", 1, "--seed", 1)
    edges = ":".join(map(str, range(0, 101, 10)))
    found = command(*histogram, "--range", "0:100")
    assert found == command(*histogram, "--edges", edges)
    assert list(numbers(found[1])) == ["< 0", *(f"{low} to {low + 10}" for low in range(0, 100, 10)), ">= 100"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("1e30:1.00001e30", ["< 1.00000e+30", "1.00000e+30 to 1.000001e+30", "1.000001e+30 to 1.000002e+30"]),
        ("1e30:2e30", ["< 1e+30", "1e+30 to 1.1e+30", "1.1e+30 to 1.2e+30"]),
    ],
)
def test_long_edges_have_as_many_digits_as_distinct_labels_need(text, first):
    labels = label_bins(divide_range(*parse_edges(text), 10))
    assert list(labels[:3]) == first
    assert len(set(labels)) == 12


def test_posterior_of_a_count_equals_enumeration():
    """The posterior given y is ∝ exp(−|y − c|·ε) on 0, …, n; intervals have the exact probability of at least 95 %."""
    holds = np.arange(30) < 12
    found = count_rows(holds, Spending(0.4, seed=3))
    y, c = found.posterior.release[0], np.arange(31)
    pmf = np.exp(-0.4 * abs(y - c))
    pmf /= pmf.sum()
    _, median, low, high = found.rows[0]
    assert pmf[c < median].sum() < 0.5 <= pmf[c <= median].sum()
    assert pmf[c < low].sum() <= 0.025 < pmf[c <= low].sum()
    assert pmf[c < high].sum() < 0.975 <= pmf[c <= high].sum()
    assert found.density @ np.diff(found.edges) == pytest.approx(1.0, abs=2e-3)


def test_numbers_of_rows_are_printed_as_integers():
    (row,) = count_rows(np.arange(30) < 12, Spending(2.0, seed=3)).formatted()
    assert [text for text in row if "." in text] == []


def test_intervals_of_counts_cover_the_count():
    """Given a uniform count, Bayesian intervals contain it with the posterior probability of the interval."""
    rng = np.random.default_rng(4)
    inside, stated = [], []
    for seed in range(400):
        count = int(rng.integers(0, 51))
        found = count_rows(np.arange(50) < count, Spending(0.5, seed=seed))
        c, (_, _, low, high) = np.arange(51), found.rows[0]
        pmf = np.exp(Noise("laplace", 2.0).log_weight(found.posterior.release[0] - c))
        inside.append(low <= count <= high)
        stated.append(pmf[(c >= low) & (c <= high)].sum() / pmf.sum())
    difference = np.array(inside) - np.array(stated)
    assert_mean_within(difference, 0.0, wrong=0.1)


def test_undeclared_categories_and_outer_bins_keep_every_row():
    words = pd.Series(["red", "green", "blue", "mauve", "red"], name="colour")
    literals = parse_categories("categories", "red,green")
    assert label_categories(literals) == ("red", "green", "other")
    assert encode_categories(words, literals).tolist() == [0, 1, 2, 2, 0]
    declared = parse_categories("categories", "other,red")
    assert (label_categories(declared), encode_categories(words, declared).tolist()) == (
        ("other", "red"),
        [1, 0, 0, 0, 1],
    )
    edges = parse_edges("0:10")
    codes = encode_bins(pd.Series(["-1", "0", "9.9", "10.0", "2.5e1"], name="x"), edges)
    assert (label_bins(edges), codes.tolist()) == (("< 0", "0 to 10", ">= 10"), [0, 1, 1, 2, 2])
    question = Question("histogram", "x", labels=label_bins(edges))
    found = estimate(question, release_histogram(codes.astype(int), question, Spending(50.0, seed=1)).infer())
    assert [row[0] for row in found.rows] == list(label_bins(edges))
    assert sum(row[1] for row in found.rows) == pytest.approx(1.0)


def test_numbers_are_read_without_shifted_or_lost_rows(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text('a, b\n1,"2"\n 3e2 ,4\n')
    assert (read_column(str(path), "a").tolist(), read_column(str(path), "b").tolist()) == ([1, 300], [2, 4])
    for text in ("a\n1\n\n2\n", "a,b\n1\n2,3\n", "a\n1\ninf\n", "a\n1\nNA\n"):
        path.write_text(text)
        with pytest.raises(BadInputError, match="in data row"):
            read_column(str(path), "b" if "b" in text else "a")


def test_another_budget_than_that_of_the_ledger_is_refused(tmp_path):
    LedgerFile(tmp_path / "l", 0.3).spend(Guarantee(0.1), "x")
    with pytest.raises(ValueError, match=r"budget must be 0\.3, .* got 4; omit it"):
        LedgerFile(tmp_path / "l", 4).check()


@pytest.mark.parametrize("spent", [[(1e-20, 1e-40), (1, 1e-6)], [(1, 1e-6), (1, 1e-40)]])
def test_ledger_adds_numbers_of_all_magnitudes_without_rounding(tmp_path, spent):
    ledger = LedgerFile(str(tmp_path / "l"), Loss(Decimal(3), Decimal("1e-6")))
    ledger.spend(Guarantee(*spent[0]), "x")
    with pytest.raises(ValueError, match="nothing was released"):
        ledger.spend(Guarantee(*spent[1]), "x")


def test_budget_with_more_digits_than_a_double_can_be_repeated(command, file):
    words = (*MEAN, "--epsilon", 1, "--ledger", "l", "--budget", "3.00000000000000000001", "--yes")
    assert [command(*words)[0] for _ in range(2)] == [0, 0]


def test_ledger_keeps_every_complete_entry_after_a_crash_at_any_byte(tmp_path):
    """A cut off entry is dropped, as its noise was not drawn; an entry without its line end is counted."""
    path = tmp_path / "l"
    ledger = LedgerFile(str(path), Loss(Decimal(3)))
    ledger.spend(Guarantee(1.0), "first")
    before = path.read_bytes()
    ledger.spend(Guarantee(1.0), "second")
    after = path.read_bytes()
    for size in range(len(before), len(after) + 1):
        path.write_bytes(after[:size])
        complete = size >= len(after) - 1
        assert ledger.check().epsilon == (1 if complete else 2)
        ledger.spend(Guarantee(1.0), "third")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line.get("release") for line in lines] == [None, "first", *["second"] * complete, "third"]


@pytest.mark.parametrize(
    "text",
    [
        "{}\n",
        '{"epsilon": 1}\n',
        '{"budget": 3}\n{"epsilon": -1}\n',
        '{"budget": 3}\n[]\n',
        '{"budget": NaN}\n',
        '{"budget": 3, "delta": 1}\n',
        '{"budget": 3}\n{"epsilon": 1, "delta": "0"}\n',
        '{"budget": 3}\n{"epsilon": 1e9999999999999999999999}\n',
        pytest.param('{"budget": 3}\n' + 100_000 * "[" + "\n", id="too-deep"),
    ],
)
def test_damaged_ledger_is_refused(tmp_path, text):
    path = tmp_path / "l"
    path.write_text(text + '{"epsilon": 1}\n')
    with pytest.raises(ValueError, match=r"line \d of the ledger"):
        LedgerFile(str(path)).spend(Guarantee(0.5), "x")
    assert path.read_text() == text + '{"epsilon": 1}\n'


def test_labels_and_units_reach_arviz_and_plots():
    rng = np.random.default_rng(1)
    posterior = posterior_from_release([41, 39, 22], "multinomial", (1, 1, 1), n=100, epsilon=1.0)
    named = posterior.labelled(["red", "green", "blue"])
    assert named.to_arviz(rng).posterior.theta.sel(category="green").sizes == {"chain": 4, "draw": 1000}
    assert [axes.get_xlabel() for axes in named.plot().axes] == ["red", "green", "blue"]
    records = np.linspace(0, 1, 30)
    both = private_posterior(
        records, "normal-unknown-variance", epsilon=5.0, bounds=(0, 1), outside="clamp", rehearsal_seed=1
    ).labelled(["mean income", "variance"], "EUR")
    found = both.to_arviz().posterior
    assert (found["mean"].attrs, found["variance"].attrs["units"]) == (
        {"long_name": "mean income", "units": "EUR"},
        "EUR²",
    )
    assert [axes.get_xlabel() for axes in both.plot().axes] == ["mean income (EUR)", "variance (EUR²)"]
    for labels in (["a"], ["a", "a", "b"], "abc", [1, 2, 3]):
        with pytest.raises(ValueError, match="labels must be 3 distinct strings"):
            posterior.labelled(labels)

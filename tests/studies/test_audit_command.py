"""Tests of the command ``audit``: verdicts, exit codes, custom mechanisms and distributions, and errors."""

import re
import shlex

import numpy as np
import pytest

from mechanisms import GLM_CHAINS, MECHANISMS, audit_counts, laplace_counts

FILE = """
from dataclasses import replace

from mechanisms import MECHANISMS, Guarantee, Mechanism, OutputDistributions, laplace_counts
from mechanisms.counts.noise import NoisyCounts
import numpy as np

def noise(sensitivity):
    def release(prior, counts, epsilon, delta):
        return laplace_counts(prior, counts, sensitivity / epsilon)

    return Mechanism("mine", release=release, guarantee=lambda epsilon, delta: Guarantee(epsilon))

def crash(prior, counts, epsilon, delta):
    return 1 / 0

WRONG, RIGHT = noise(1), noise(2)
CRASH = Mechanism("crash", release=crash, guarantee=lambda epsilon, delta: Guarantee(epsilon))
SILENT = Mechanism("silent", release=WRONG.release, guarantee=lambda epsilon, delta: None)
DISTRIBUTIONS = OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], pairs=[[0, 1]])
RARE = OutputDistributions.from_table([[1 - 1e-9, 1e-9], [1, 0]], pairs=[[0, 1]])
class Truth(NoisyCounts):
    def from_uniforms(self, uniforms):
        return np.tile(self.counts, (len(uniforms), 1))

class Crashing(NoisyCounts):
    def from_uniforms(self, uniforms):
        return 1 / 0

GEOMETRIC = MECHANISMS["geometric"]

def drawn_by(kind):
    def release(prior, counts, epsilon, delta):
        right = GEOMETRIC.release(prior, counts, epsilon, delta)
        return kind(right.prior, right.counts, right.noise, right.in_order)

    return replace(GEOMETRIC, name="drawn", release=release)

TRUTH, CRASHING = drawn_by(Truth), drawn_by(Crashing)
SILENT_TRUTH = replace(TRUTH, guarantee=lambda epsilon, delta: None)
ZEROS = np.zeros(2)
NO_DISTRIBUTION = OutputDistributions(ZEROS, ZEROS, np.array([[0, 1]]), lambda i: np.log([0.5, 0.4]))
NO_SHAPE = OutputDistributions(ZEROS, ZEROS, np.array([[0, 1]]), lambda i: np.log([0.5, 0.25, 0.25]))
PATH = np.column_stack([np.arange(200_000), np.arange(1, 200_001)])
LARGE = OutputDistributions(np.zeros(200_001), np.zeros(200_000), PATH, lambda i: ZEROS)
"""
AT = ("--prior", "1:1:1", "--n", "5", "--epsilon", "1")


@pytest.fixture
def audit(command, tmp_path):
    """Return a function that runs ``dpstudies audit`` in a folder with the file `mine.py`."""
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "lender.py").write_text(FILE)  # a module name that no other test imports
    (tmp_path / "borrowed.py").write_text("from lender import RIGHT\n")
    return lambda *words: command("audit", *words)


def row(out, name):
    """Return the cells of a mechanism's row in the printed table."""
    (line,) = [line for line in out.splitlines() if line.split()[:1] == [name]]
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.slow
def test_all_registered_mechanisms(audit, monkeypatch):
    """Each registered mechanism has a row with its audit; under a uniform prior, all guarantees hold."""
    monkeypatch.setattr("studies.audits._DRAWS_SECONDS", 0.0)  # draws are not compared
    code, out, err = audit("all", "--prior", "1:1", "--n", "20", "--epsilon", "1", "--at", "0.2,0.5", "--order", "2,8")
    assert (code, err) == (0, "")
    for name in MECHANISMS:
        found = audit_counts(name, (1, 1), 20, 1.0, epsilons=(0.2, 0.5), orders=(2, 8))
        loss, delta, slack, verdict, *more = row(out, name)[2:]
        assert float(loss) == pytest.approx(found.epsilon, rel=1e-5)
        assert float(delta) == pytest.approx(found.deltas[1.0], rel=1e-2, abs=1e-15)
        assert float(slack.removesuffix(" nats")) == pytest.approx(1 - found.epsilon, rel=1e-3, abs=2e-9)
        assert verdict == ("within" if name != "local" else "within here")
        expected = [found.deltas[0.2], found.deltas[0.5], found.renyi[2.0], found.renyi[8.0]]
        np.testing.assert_allclose([float(each) for each in more], expected, rtol=1e-2, atol=1e-15)
    assert f"audited: {len(MECHANISMS)}, broken: 0" in out


def test_local_is_not_private_at_a_skewed_prior(audit):
    """The mechanism `local`, which has no guarantee, is reported as not private; its loss is 1.10 times ε."""
    code, out, _ = audit("local", "smooth", "--prior", "0.01:100", "--n", "300", "--epsilon", "0.1")
    assert code == 1
    assert row(out, "local")[1] == "nothing (compared with 0.1-DP)"
    assert row(out, "local")[-1] == "NOT PRIVATE"
    assert row(out, "smooth")[-1] == "within"
    assert "local: not private: loses 0.1103 at [2, 298] against [1, 299], output [2, 298]" in out


@pytest.mark.slow
def test_custom_mechanism_with_a_wrong_sensitivity_is_broken(audit):
    """With a wrong sensitivity, a custom mechanism is BROKEN, with a counterexample; with the right one, it passes."""
    code, out, _ = audit("mine.py:WRONG", *AT)
    assert code == 1
    assert row(out, "mine.py:WRONG")[-1] == "BROKEN"
    pattern = r"stated 1-DP, loses ([\d.]+) at \[(.*)\] against \[(.*)\], output \[(.*)\]"
    loss, *vectors = re.search(pattern, out).groups()
    dataset, neighbour, output = (np.array([int(x) for x in vector.split(",")]) for vector in vectors)
    assert abs(dataset - neighbour).sum() == 2
    n = dataset.sum()
    distributions = [laplace_counts((1, 1, 1), counts, 1.0).log_pmf() for counts in (dataset, neighbour)]
    candidates = [(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)]
    place = candidates.index(tuple(output))
    assert distributions[0][place] - distributions[1][place] == pytest.approx(float(loss), abs=1e-4)
    assert float(loss) > 1.9
    code, out, _ = audit("mine.py:RIGHT", "laplace", *AT)
    assert (code, row(out, "mine.py:RIGHT")[1:]) == (0, row(out, "laplace")[1:])
    assert audit("mine.py:SILENT", "mine.py:RIGHT", *AT)[0] == 1


DRAWS = "draws agree: 200,000 at each of 5 data sets, level 1e-06"


@pytest.mark.slow
def test_draws_that_do_not_follow_the_stated_distribution_are_broken(audit):
    """A mechanism with the pmf of `geometric` that returns the true counts is broken; `geometric` itself is not."""
    at = ("--prior", "1:1", "--n", "20", "--epsilon", "1")
    for name in ("TRUTH", "SILENT_TRUTH", "CRASHING"):
        code, out, err = audit(f"mine.py:{name}", "geometric", *at)
        assert (code, err) == (1, "")
        assert (row(out, f"mine.py:{name}")[-1], row(out, "geometric")[-1]) == ("BROKEN", "within")
        wrong, right = (line for line in out.splitlines() if line.startswith((f"mine.py:{name}: ", "geometric: ")))
        start = "broken: draws do not follow the stated distribution at [20, 0] and 4 others: from_uniforms "
        how = "raises ZeroDivisionError: division by zero"
        how = how if name == "CRASHING" else "draws output [20, 0] in 100,000 of 100,000 draws, stated 73.11 %"
        assert wrong.startswith(f"mine.py:{name}: {start}{how} (200,000 draws at each of 5 data sets, level 1e-06); ")
        assert right.endswith(f"(20 pairs on 21 outputs, exact); {DRAWS}")
        assert "audited: 2, broken: 1" in out


def test_draws_of_a_broken_distribution_and_of_tables_are_not_compared(audit):
    assert "draws" not in audit("mine.py:WRONG", *AT)[1]
    assert "draws" not in audit("mine.py:DISTRIBUTIONS", "--epsilon", "1.1")[1]
    assert DRAWS in audit("mine.py:RIGHT", *AT)[1]


def test_audit_without_time_says_that_draws_were_not_compared(audit, monkeypatch):
    monkeypatch.setattr("studies.audits._DRAWS_SECONDS", 0.0)
    code, out, _ = audit("mine.py:TRUTH", "--prior", "1:1", "--n", "20", "--epsilon", "1")
    assert (code, row(out, "mine.py:TRUTH")[-1]) == (0, "within")
    assert "; draws not compared: a comparison of 1,000 draws by each sampler at 5 data sets takes more than 0 s" in out


def test_custom_distributions(audit):
    """Custom output distributions are compared with ``--epsilon`` and ``--delta`` (0 by default)."""
    code, out, _ = audit("mine.py:DISTRIBUTIONS", "--epsilon", "1", "--at", "0.5", "--order", "1,2")
    assert code == 1
    assert "mine.py:DISTRIBUTIONS: broken: stated 1-DP, loses 1.0986 at 0 against 1, output 0" in out
    expected = [np.log(3), 0.75 - 0.25 * np.e, 0.75 - 0.25 * np.exp(0.5), 0.5 * np.log(3), np.log(0.75 * 3 + 0.25 / 3)]
    numbers = row(out, "mine.py:DISTRIBUTIONS")
    np.testing.assert_allclose([float(numbers[i]) for i in (2, 3, 6, 7, 8)], expected, rtol=1e-2)
    assert audit("mine.py:DISTRIBUTIONS", "--epsilon", "1.1")[0] == 0
    code, out, _ = audit("mine.py:DISTRIBUTIONS", "--epsilon", "1", "--delta", "0.1")
    assert (code, "warning: delta 0.1 is large: publishing one of 10 records has this delta; choose" in out) == (
        0,
        True,
    )
    code, out, _ = audit("mine.py:RARE", "--epsilon", "1")
    assert (code, row(out, "mine.py:RARE")[2]) == (1, "inf")
    assert audit("mine.py:RARE", "--epsilon", "1", "--delta", "1e-8")[0] == 0


@pytest.mark.slow
def test_all_leaves_out_mechanisms_that_do_not_apply(audit, monkeypatch):
    monkeypatch.setattr(
        "studies.audits.MECHANISMS", {name: MECHANISMS[name] for name in ("laplace", "geometric", "optimal")}
    )
    for prior, n in (("1:1", "200"), ("0.5:2", "120")):
        code, out, _ = audit("all", "--prior", prior, "--n", n, "--epsilon", "1")
        assert (code, "omitted: optimal: there must be at most 10,000 variables of the linear program" in out) == (
            0,
            True,
        )
        assert audit("optimal", "--prior", prior, "--n", n, "--epsilon", "1")[0] == 2
    assert "audited: 2, broken: 0" in out


AT_FIVE = "--prior 1:1:1 --n 5 --epsilon 1"
BAD = {
    f"smoth {AT_FIVE}": "did you mean smooth",
    f"mine.py {AT_FIVE}": "an object of mine.py must be named, got none",
    f"mine.py:WRNG {AT_FIVE}": "did you mean WRONG",
    f"mine.py:FILE {AT_FIVE}": "Allowed: WRONG, RIGHT, CRASH, SILENT, DISTRIBUTIONS, RARE, GEOMETRIC, TRUTH",
    f"borrowed.py:MINE {AT_FIVE}": "unknown object of borrowed.py 'MINE'; it defines nothing to audit either",
    f"mine.py:noise {AT_FIVE}": "must be a mechanisms.Mechanism or mechanisms.OutputDistributions, got function",
    f"mine.py:CRASH {AT_FIVE}": "mine.py:CRASH cannot be evaluated: ZeroDivisionError",
    f"absent.py:X {AT_FIVE}": "No such file or directory; correct the path",
    f"absent_module:X {AT_FIVE}": "cannot load absent_module:X",
    "mine.py:NO_DISTRIBUTION --epsilon 1": "probabilities must sum to 1",
    "mine.py:NO_SHAPE --epsilon 1": "a distribution must have shape (2,), got (3,)",
    "mine.py:LARGE --epsilon 1": "at most 20,000,000,000 pairs times outputs",
    "mine.py:DISTRIBUTIONS --epsilon -1": "epsilon must be a finite number > 0",
    "mine.py:DISTRIBUTIONS --epsilon 1 --delta 2": "delta must be in (0, 1)",
    "smooth --prior 1:1 --n 10": "--epsilon",
    "smooth --epsilon 1": "--prior 1:1 --n 100",
    "all --n 5 --epsilon 1": "--prior 1:1 --n 100",
    "smooth --prior 1:x --n 5 --epsilon 1": "prior must be finite numbers separated by ':'",
    "smooth --prior 1 --n 5 --epsilon 1": "at least 2 categories",
    "smooth --prior 1:0 --n 5 --epsilon 1": "prior must have positive",
    "smooth --prior 1:1 --n 0 --epsilon 1": "n must be >= 1, got 0",
    "smooth --prior 1:1 --n 5 --epsilon 0": "epsilon must be",
    "smooth --prior 1:1 --n 5 --epsilon nan": "epsilon must be",
    "smooth --prior 1:1 --n 5 --epsilon 1 --delta 0": "delta must be in (0, 1)",
    "optimal --prior 1:1 --n 3 --epsilon 1000": "epsilon must be at most 20 for optimal",
    "smooth --prior '' --n 3 --epsilon 1": "--prior 1:1 --n 100",
    "smooth-exact --prior 1e300:1e300 --n 3 --epsilon 1": "prior must have entries <= 1e+12",
    f"hamming-exact --prior {':'.join('1' * 20)} --n 2 --epsilon 1": "there must be at most 16 categories",
    f"smooth {AT_FIVE} --at x": "at must be a finite number",
    f"smooth {AT_FIVE} --at -1": "epsilons must be finite and >= 0",
    f"smooth {AT_FIVE} --order 0.5": "orders must be finite and >= 1",
    "smooth --prior 1:1:1 --n 1000 --epsilon 1": "(n = 1000, k = 3); use fewer records",
    "all --prior 1:1:1 --n 1000 --epsilon 1": "at most 20,000,000,000 combinations of pairs",
    "optimal --prior 1:1:1 --n 40 --epsilon 1": "variables of the linear program",
    "diffused --prior 6:12 --n 9 --epsilon 1": "give one, e.g. --order 2",
    "diffused --prior 6:12 --n 9 --epsilon 1 --order 0.5": "order must be a finite number",
    "gaussian --prior 1:1:1 --n 9 --epsilon 1 --order 2": "2 categories, got 3",
    "diffused --epsilon 1 --order 2": "an audit of a mechanism needs --prior and --n",
    "difused --prior 6:12 --n 9 --epsilon 1": "did you mean diffused",
    "laplace --prior 1:1 --n 4 --epsilon 1 --relation add-one": "unknown relation 'add-one'",
    "gaussian --prior 1:1 --n 4 --epsilon 1 --order 2 --relation add-remove": "must be replace-one for gaussian",
    **{f"{name} {AT_FIVE}": "mechanisms.sampled_bound" for name in GLM_CHAINS},  # chains and draws of weights
    f"glm-gdp {AT_FIVE}": "mechanisms.audit_replacements",
}


@pytest.mark.slow
@pytest.mark.usefixtures("audit")
@pytest.mark.parametrize("line", BAD)
def test_bad_input_gives_a_one_line_error(refused, line):
    err = refused("audit", *shlex.split(line), message=BAD[line], longest=2000)
    assert "glm-" not in line or "unknown" not in err


@pytest.mark.parametrize("name", ["diffused", "concentrated", "gaussian-tight"])
def test_mechanisms_that_state_a_renyi_divergence(audit, name):
    """At the first order, Rényi mechanisms attain the stated divergence; divergences at other orders are printed."""
    code, out, err = audit(name, "--prior", "6:12", "--n", "30", "--epsilon", "0.15", "--order", "2,3")
    assert (code, err) == (0, "")
    stated, loss, delta, slack, verdict, at_two, at_three = row(out, name)[1:]
    assert (stated, loss, delta, verdict) == ("(2, 0.15)-RDP", "inf", "not computed", "within")
    assert float(slack.removesuffix(" nats")) == pytest.approx(0, abs=1e-8)
    assert float(at_two) == pytest.approx(0.15, rel=1e-3)
    assert float(at_three) > 0.2


def test_direct_sampling_states_no_guarantee(audit):
    """Direct sampling has no guarantee; under P3's prior, its divergence is infinite from the order 7 on."""
    code, out, _ = audit("direct", "--prior", "6:12", "--n", "100", "--epsilon", "0.2", "--order", "2,5,6.9,7.1")
    assert code == 0
    assert row(out, "direct")[-5:] == ["within here", "0.1913", "0.6171", "1.393", "inf"]
    code, out, _ = audit("direct", "--prior", "6:12", "--n", "100", "--epsilon", "0.1", "--order", "2")
    assert code == 1
    assert "direct: not private: loses 0.1913 at" in out


def test_counts_have_no_guarantee_if_their_sum_is_private(audit):
    code, out, err = audit("all", "--prior", "1:1", "--n", "4", "--epsilon", "1", "--relation", "add-remove")
    assert (code, err) == (1, "")
    for name in MECHANISMS:
        assert row(out, name)[1:4] == ["nothing (compared with 1-DP under add/remove)", "inf", "1"]
        assert row(out, name)[-1] == "NOT PRIVATE"
    assert "neighbours: add or remove one record; the number of records is private\n" in out
    assert f"audited: {len(MECHANISMS)}, broken: {len(MECHANISMS)}" in out
    _, out, _ = audit("laplace", *AT)
    assert "neighbours: replace one record; the number of records is public\n" in out

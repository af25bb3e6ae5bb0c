"""Tests of the declaration of claims: a check reads what its claim declares, and is not called on fewer data."""

import pickle
import re
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr

from pipeline import (
    EVERY_PANEL,
    BadInputError,
    Factor,
    Finding,
    Look,
    Measure,
    Method,
    Panel,
    Statistic,
    Study,
    claim,
    verdict,
)
from pipeline.precision.goals import ClaimsGoal
from pipeline.results.verdicts import judge
from tests.pipeline.helpers import OtherError, refusal

MEASURES = (Measure("x", "a number"),)
METHODS = (Method("a", lambda data, setting, streams: {"x": data}), Method("b", lambda data, setting, streams: {}))
SIZES = (Factor("n", (1, 2), "size"),)


def panel(name):
    return Panel(name, name, lambda cell, streams: np.zeros(3), METHODS, MEASURES, SIZES, trials=100)


STUDY = Study("s", "S", "To test claims.", (panel("p"), panel("q"), panel("r")), seed=1)


def summary(n_ok=100, n_pending=0, mean=1.0):
    """Return the summary of a panel with equal numbers in each cell and setting."""
    values = {"n_ok": n_ok, "n_failed": 0, "n_pending": n_pending, "x_mean": mean}
    arrays = {name: (("n", "algorithm"), np.full((2, 2), value)) for name, value in values.items()}
    return xr.Dataset(arrays, {"n": [1, 2], "algorithm": ["a", "b"]})


def judged(declared, summaries):
    """Return verdict and evidence of one claim."""
    ((_, finding),) = judge(replace(STUDY, claims=(declared,)), summaries)
    return finding.verdict, finding.evidence


def declare(needs=None, **options):
    """Return a claim that the means of panels `p` and `q` are equal; it reads `q` after a value of `p`."""

    @claim("late", "Both means are equal.", kind="self-check", needs=needs, **options)
    def late(look):
        first = float(look["p"]["x_mean"].mean())
        return verdict(first == float(look["q"]["x_mean"].mean()), f"The first mean is {first}.")

    return late


def test_panel_that_is_read_after_another_one_is_needed_like_the_first():
    late = declare({"p": {}, "q": {}})
    assert judged(late, {"p": summary(), "q": summary()}) == ("passed", "The first mean is 1.0.")
    few = "A method of panel q has 5 ok trials, needed: 100."
    assert judged(late, {"p": summary(), "q": summary(5)}) == ("undecided", few)
    assert judged(late, {"p": summary(), "q": summary(95, 5)}) == ("undecided", "20 trials of panel q are pending.")
    assert judged(late, {"p": summary()}) == ("undecided", "The store has no panel q.")


@pytest.mark.parametrize("summaries", [{"p": summary(), "q": summary(5)}, {"p": summary()}], ids=["few", "absent"])
def test_undeclared_panel_is_refused_instead_of_read(summaries):
    name, evidence = judged(declare({"p": {}}), summaries)
    assert name == "undecided"
    assert "claim late reads panel q, which it does not declare; add the panel" in evidence


def test_presence_of_an_undeclared_panel_is_not_told():
    look = Look(declare({"p": {}}), {"p": summary(), "q": summary()})
    assert (list(look), len(look)) == (["p"], 1)
    with pytest.raises(BadInputError, match="reads panel q"):
        _ = "q" in look
    with pytest.raises(BadInputError, match="reads panel q"):
        look.get("q")


def test_panels_that_are_read_if_stored_are_complete_if_they_are_stored():
    @claim("positive", "All means are positive.", kind="self-check", needs={"p": {}}, also=("q",))
    def positive(look):
        return verdict(all((ds["x_mean"] > 0).all() for ds in look.values()), ", ".join(look))

    assert judged(positive, {"p": summary(), "r": summary(0, 100)}) == ("passed", "p")
    assert judged(positive, {"p": summary(), "q": summary(mean=-1.0)}) == ("failed", "p, q")
    assert judged(positive, {"p": summary(), "q": summary(99, 1)})[0] == "undecided"
    assert judged(positive, {"q": summary()}) == ("undecided", "The store has no panel p.")


def test_claim_about_every_panel_needs_all_that_are_stored():
    @claim("positive", "All means are positive.", kind="self-check", also=EVERY_PANEL)
    def positive(look):
        return verdict(all((ds["x_mean"] > 0).all() for ds in look.values()), ", ".join(look))

    assert judged(positive, {"r": summary(), "q": summary()}) == ("passed", "r, q")
    assert judged(positive, {"r": summary(), "q": summary(99, 1)})[0] == "undecided"
    assert judged(positive, {}) == ("undecided", "The store has no panel that the claim reads.")


def other(needs, read):
    """Return a claim with a function that reads the data."""

    @claim("other", "All means are 1.", kind="self-check", needs=needs)
    def check(look):
        return verdict((read(look) == 1).all(), f"{read(look).size} means.")

    return check


def of_sizes(**by_size):
    """Return the summary of a panel with other numbers at n = 2."""
    ds = summary()
    return ds.assign({name: ds[name].where(ds.n == 1, value) for name, value in by_size.items()})


@pytest.mark.parametrize("needed", [1, (1,)], ids=["value", "tuple"])
def test_check_reads_the_declared_values_only(needed):
    """A check cannot decide a claim by values whose trials nothing counts."""
    few = {"p": of_sizes(n_ok=5, x_mean=-1.0)}
    whole = other({"p": {"n": needed}}, lambda look: look["p"]["x_mean"])
    assert judged(whole, few) == ("passed", "2 means.")
    assert judged(other({"p": {}}, lambda look: look["p"]["x_mean"]), few)[0] == "undecided"
    by_name = other({"p": {"n": needed}}, lambda look: look["p"]["x_mean"].sel(n=2))
    by_position = other({"p": {"n": needed}}, lambda look: look["p"]["x_mean"].isel(n=1))
    for undeclared, kind in ((by_name, "KeyError"), (by_position, "IndexError")):
        name, evidence = judged(undeclared, few)
        assert name == "undecided"
        assert re.match(
            f"The check raised {kind}: .*; a check reads what its needs declare only: declare the", evidence
        )
    look = Look(whole, few)
    assert [ds.n.values.tolist() for ds in (*look.values(), *dict(look).values(), look.get("p"))] == [[1]] * 3


def test_declared_values_are_read_in_the_stored_order_and_selected_in_the_declared_one():
    look = Look(other({"p": {"n": (2, 1), "algorithm": "b"}}, lambda look: 1), {"p": summary()})
    assert look["p"].x_mean.dims == ("n", "algorithm")
    assert look["p"].n.values.tolist() == [1, 2]
    assert look.select("p").x_mean.dims == ("n",)
    assert look.select("p").n.values.tolist() == [2, 1]


def test_check_reads_all_values_of_a_dimension_on_demand_if_they_are_complete():
    declared = other({"p": {"n": (1, ...), "algorithm": ("a",)}}, lambda look: look["p"]["x_mean"])
    assert declared.needs == {"p": {"n": (1,), "algorithm": ("a",)}}
    assert judged(declared, {"p": summary()}) == ("passed", "2 means.")
    assert judged(declared, {"p": of_sizes(x_mean=-1.0)}) == ("failed", "2 means.")
    few = "A method of panel p has 5 ok trials, needed: 100."
    assert judged(declared, {"p": of_sizes(n_ok=5)}) == ("undecided", few)
    assert judged(declared, {"p": summary().isel(n=[1])}) == ("undecided", "Panel p has no n = 1.")
    look = Look(declared, {"p": summary()})
    assert look.select("p").x_mean.shape == (2, 1)


UNDECLARED = "claim c must declare the panels that it reads, got none; add needs="
NO_MAPPING = "needs of claim c must map panels to mappings of dimensions to values, got"
NO_VALUES = "claim c must need at least one value of n of panel p, got none; add values, or omit n to read all"
NO_NUMBERS = "claim c must need numbers or texts of n of panel p, or a tuple of them"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"needs": None}, UNDECLARED),
        ({"needs": {}}, UNDECLARED),
        ({"needs": "p"}, f"{NO_MAPPING} 'p'; write"),
        ({"needs": {"p": ("a", "b")}}, NO_MAPPING),
        *(({"needs": {"p": {"n": values}}}, NO_VALUES) for values in ((), [], ...)),
        *(
            ({"needs": {"p": {"n": values}}}, NO_NUMBERS)
            for values in ({1, 2}, {1: 2}, None, (k for k in (1, 2)), True, np.nan, (1, None), ("a", 1j), b"a", [[]])
        ),
        ({"kind": "zzz"}, "kind of claim c must be one of conclusion, addition, self-check, got 'zzz'"),
        ({"kind": []}, "kind of claim c must be one of"),
        ({"min_trials": None}, "min_trials of claim c must be an integer, got None"),
        ({"min_trials": -5}, "min_trials of claim c must be >= 0, got -5"),
        ({"level": 2}, "level of claim c must be None or a number in"),
        ({"level": np.nan}, "level of claim c must be None or a number in"),
        ({"level": "0.1"}, "level of claim c must be None or a number in"),
        ({"short": 81 * "a"}, "short of claim c must be a text of at most 80 characters"),
        ({"also": "q"}, "also of claim c must be a tuple of names of panels, got 'q'"),
    ],
)
def test_invalid_declarations_are_refused(options, message):
    with refusal(message, error=ValueError):
        claim("c", "C.", **{"kind": "self-check", "needs": {"p": {}}, **options})(_keep)


def test_unknown_dimension_is_refused():
    message = "claim late needs an unknown dimension of panel p 'algorithms'"
    with pytest.raises(BadInputError, match=message):
        judged(declare({"p": {"algorithms": ("a",)}, "q": {}}), {"p": summary(), "q": summary()})
    study = replace(STUDY, claims=(declare({"p": {"algorithms": ("a",)}, "q": {}}),))
    with pytest.raises(BadInputError, match=message):
        ClaimsGoal(study)


def test_claim_without_level_has_no_level_to_test_at():
    with pytest.raises(BadInputError, match="claim late must declare a level to test at one, got none; add level="):
        _ = Look(declare({"p": {}}), {}).level


def test_thresholds_do_not_depend_on_other_looks_in_progress():
    """A look carries its share: a check that is called within another one has its own thresholds."""

    @claim("outer", "Outer.", kind="self-check", level=0.01, needs={"p": {}})
    def outer(look):
        inner = declare({"p": {}, "q": {}}, level=0.05)
        return verdict(True, f"{look.level} {Look(inner, {}).level} {Look(inner, {}).critical(3)}")

    assert outer.judge({}, share=0.5).evidence == "0.005 0.05 3"


def _keep(look):
    """Judge panel p."""
    return verdict(True, "It is.")


def test_claims_with_importable_checks_can_be_pickled():
    kept = claim(kind="self-check", needs={"p": {"n": 1}})(_keep)
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert kept.needs == {"p": {"n": (1,)}}


@pytest.mark.parametrize("needs", [{"p": {}}, {"p": {"n": (1, 2)}}, {"p": {"n": (1, ...)}}], ids=repr)
def test_check_cannot_change_the_numbers_of_another_claim(needs):
    """All claims of a study are judged on the same summaries."""

    @claim("first", "First.", kind="self-check", needs=needs)
    def first(look):
        look["p"]["x_mean"].values[...] = -1.0
        look["p"].n.attrs["unit"] = "m"
        look["p"]["n_ok"] = look["p"]["n_ok"] * 0
        return verdict(True, "Changed.")

    @claim("second", "Second.", kind="self-check", needs={"p": {}})
    def second(look):
        return verdict((look["p"]["x_mean"] == 1).all() and not look["p"].n.attrs, "Unchanged.")

    summaries = {"p": summary()}
    assert [found.verdict for _, found in judge(replace(STUDY, claims=(first, second)), summaries)] == [
        "passed",
        "passed",
    ]
    assert summaries["p"].identical(summary())


@pytest.mark.parametrize(
    ("check", "evidence"),
    [
        (Mock(side_effect=SystemExit(0)), "The check raised SystemExit: 0."),
        (Mock(side_effect=OtherError("a\nb")), "The check raised OtherError: a b."),
        (Mock(side_effect=ValueError("\udcff")), "The check raised ValueError: \\udcff."),
        (Mock(side_effect=StopIteration()), "The check raised StopIteration."),
        (lambda look: None, "a check must return a Finding, got None; return verdict"),
        (lambda look: True, "a check must return a Finding, got True; return verdict"),
        (
            lambda look: Finding("yes", "All."),
            "a verdict must be one of holds, does not hold, corrected, undecided, got",
        ),
        (lambda look: Finding("holds", 3), "the evidence of a finding must be a text, got 3"),
        (lambda look: verdict(look["p"]["x_mean"] > 0, "All."), "a verdict must be True, False or None, got"),
        (lambda look: verdict(1.0, "All."), "a verdict must be True, False or None, got 1.0"),
        (lambda look: verdict("no", "All."), "a verdict must be True, False or None, got 'no'"),
    ],
)
def test_failed_check_is_undecided_and_others_are_judged(check, evidence):
    claims = (
        claim("broken", "Broken.", kind="self-check", needs={"p": {}})(check),
        claim("kept", "Kept.", kind="self-check", needs={"p": {}})(_keep),
    )
    (_, broken), (_, kept) = judge(replace(STUDY, claims=claims), {"p": summary()})
    assert (broken.verdict, kept.verdict) == ("undecided", "passed")
    assert evidence in broken.evidence
    assert len(broken.evidence.splitlines()) == 1


def test_interrupt_of_a_check_is_raised():
    with pytest.raises(KeyboardInterrupt):
        judged(
            claim("c", "C.", kind="self-check", needs={"p": {}})(Mock(side_effect=KeyboardInterrupt())),
            {"p": summary()},
        )


def test_evidence_can_be_written():
    found = claim("c", "C.", kind="self-check", needs={"p": {}})(lambda look: verdict(True, "file \udcff"))
    assert judged(found, {"p": summary()}) == ("passed", "file \\udcff")


@pytest.mark.parametrize(
    ("holds", "name"),
    [
        (np.nan, "undecided"),
        (xr.DataArray(np.nan), "undecided"),
        (None, "undecided"),
        (xr.DataArray(True), "holds"),
        (np.array([False]), "does not hold"),
        (np.True_, "holds"),
    ],
)
def test_verdict_on_a_scalar(holds, name):
    assert verdict(holds, "Evidence.").verdict == name


@pytest.mark.parametrize(
    "values",
    [range(1, 3), np.array([1, 2]), [np.int64(1), np.array(2)], (1, 2, 1)],
    ids=lambda values: str(type(values)),
)
def test_needed_values_are_plain_and_distinct(values):
    needs = declare({"p": {"n": values}, "q": {}}).needs["p"]["n"]
    assert needs == (1, 2)
    assert {type(value) for value in needs} == {int}
    vectors = declare({"p": {"prior": [[1.0, 2.0]]}, "q": {}})
    assert vectors.needs["p"]["prior"] == ((1.0, 2.0),)
    assert declare({"p": {"n": np.float64(0.5)}, "q": {}}).declared["p"]["n"] == 0.5


def test_text_is_no_value_of_a_factor_of_numbers():
    late = declare({"p": {"n": (1, "2")}, "q": {}})
    with pytest.raises(BadInputError, match="claim late must need numbers of n of panel p, got the text '2'"):
        replace(STUDY, claims=(late,))


def test_check_must_be_a_function_or_have_a_name():
    for check in (5, partial(_keep)):
        with pytest.raises(BadInputError, match="the check of a claim must be a function, or a callable with a name"):
            claim(kind="self-check", needs={"p": {}})(check)
    with pytest.raises(ValueError, match="claim c must have a statement"):
        claim("c", kind="self-check", needs={"p": {}})(partial(_keep))
    assert claim("c", "C.", kind="self-check", needs={"p": {}})(partial(_keep)).name == "c"


RAGGED = replace(
    panel("p"),
    measures=(Measure("x", "a number", ragged=True), Measure("y", "another number", ragged=True)),
    statistics=(Statistic("largest", "x", "largest", np.max, axis=Factor("part", (0, 1), "part")),),
)
READS = {
    "mean": lambda p: p["x_mean"],
    "all statistics": lambda p: p.where(p["algorithm"] == "a", drop=True)["y_mean"],
    "declared statistic": lambda p: p["x_largest"].sel(part=1),
    "mean at n = 1": lambda p: p.sel(n=1)["x_mean"],
    "mean of a": lambda p: p["x_mean"].sel(algorithm=["a"]),
    "position by position": lambda p: [float(number) for number in p["x_mean"].values.flat],
    "copy": lambda p: p.copy(deep=True)["x_mean"],
    "other measure": lambda p: p["y_mean"],
    "counts": lambda p: p["x_n_values"],
}


def of_values(rows, read, min_trials=100, min_values=None, ragged=RAGGED):
    """Judge a check that reads statistics of x, with these numbers of values of each method at n = 1 and 2."""

    @claim("read", "It reads.", kind="self-check", needs={"p": {}}, min_trials=min_trials, min_values=min_values)
    def reads(look):
        np.asarray(read(look["p"]))
        return verdict(True, "It is.")

    dims = ("n", "algorithm")
    counted = summary().assign(
        x_n_values=(dims, rows),
        y_n_values=(dims, np.full((2, 2), 100)),
        y_mean=(dims, np.ones((2, 2))),
        x_largest=((*dims, "part"), np.ones((2, 2, 2))),
    )
    ((_, finding),) = judge(replace(STUDY, panels=(ragged,), claims=(reads,)), {"p": counted})
    return finding.verdict, finding.evidence


@pytest.mark.parametrize(
    ("read", "n_values"),
    [
        ("mean", 1), ("all statistics", 7), ("declared statistic", 1), ("mean at n = 1", None), ("mean of a", 7),
        ("position by position", 1), ("copy", 1), ("other measure", None), ("counts", None),
    ],
)  # fmt: skip
def test_claim_is_undecided_if_its_check_reads_a_statistic_of_few_values(read, n_values):
    few = ("undecided", f"x of panel p has {n_values} values at a position, needed: 100.")
    assert of_values([[100, 100], [7, 1]], READS[read]) == (few if n_values else ("passed", "It is."))
    assert of_values([[100, 100], [7, 1]], READS[read], min_trials=1) == ("passed", "It is.")


def test_positions_without_values_do_not_apply_unless_all_are():
    passed, few = ("passed", "It is."), "x of panel p has {} values at a position, needed: 100."
    assert of_values([[100, 0], [100, 0]], READS["mean"]) == passed
    assert of_values([[0, 100], [0, 0]], READS["position by position"]) == passed
    assert of_values([[0, 99], [0, 0]], READS["mean"]) == ("undecided", few.format(99))
    assert of_values([[0, 0], [0, 0]], READS["mean"]) == ("undecided", few.format(0))
    assert of_values([[0, 100], [0, 100]], READS["mean of a"]) == ("undecided", few.format(0))


@pytest.mark.parametrize("rows", [[[1, 1], [1, 0]], [[0, 0], [0, 0]]])
def test_panel_without_trials_has_exact_values(rows):
    assert of_values(rows, READS["mean"], ragged=replace(RAGGED, trials=None)) == ("passed", "It is.")


@pytest.mark.parametrize(("min_values", "verdict_of_claim"), [(20, "passed"), (0, "passed"), (21, "undecided")])
def test_claim_declares_the_number_of_values_of_a_measure_of_some_trials(min_values, verdict_of_claim):
    assert of_values([[20, 20], [20, 0]], READS["mean"], min_values=min_values)[0] == verdict_of_claim


def test_check_can_change_its_copy_of_statistics_of_few_values():
    def change(p):
        p["x_mean"][0, 0] = 5.0
        p["x_mean"].values[0, 1] = 6.0
        assert p["x_mean"].values[0].tolist() == [5.0, 6.0]
        return p["x_mean"]

    assert of_values([[100, 100], [100, 1]], change)[1].startswith("x of panel p has 1 values")

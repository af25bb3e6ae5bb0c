"""Tests of the configuration and specification of studies."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pipeline import Factor, Measure, Method, Panel, Study, open_results, resume, run, summarise
from pipeline.declare.factors import Statistic
from pipeline.declare.streams import canonical_json
from pipeline.declare.study import differences
from pipeline.errors import BadInputError
from pipeline.runs.estimate import make_plan
from tests.pipeline.helpers import assert_contained, compute_into, evaluate_all, make_study, read_arrays, refusal
from tests.pipeline.toy import MEANS, SINGLE, STUDY, TABLE

ONLY_MEANS = {"panels": ["means"]}
TOO_MANY = "^panel means must have at most 10,000,000 blocks, got [0-9,]+: [0-9,]+ cells and settings with 1,000,000,"


def refused(message, **arguments):
    with refusal() as caught:
        STUDY.configure(**arguments)
    assert caught.match(message)


@pytest.mark.parametrize(("trials", "expected"), [({"means": 3, "table": 4}, [3, 12, None, 5]), (3, [3, 3, None, 3])])
def test_trials_are_given_for_all_panels_or_by_panel(trials, expected):
    """Panels that a mapping does not name keep their number, and panels without trials have none."""
    configured = STUDY.configure(trials=trials, seed=0)
    assert [panel.trials for panel in configured.panels] == expected
    assert (configured.seed, STUDY.seed) == (0, 7)


def test_iterators_of_values_serve_every_panel():
    assert STUDY.configure(values={"n": iter([6, 7])}) == STUDY.configure(values={"n": [6, 7]})
    assert STUDY.extended(STUDY, None, {"n": iter([60])}) == STUDY.extended(STUDY, None, {"n": [60]})


def test_values_by_panel():
    configured = STUDY.configure(values={"n": {"means": [6]}})
    assert configured.panel("means") == STUDY.configure(values={"n": [6]}).panel("means")
    assert configured.panel("faults") == STUDY.panel("faults")


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("n", ["12", 3.0], (12, 3)),
        ("epsilon", ["2", "4"], (2.0, 4.0)),
        ("level", ["0.25"], (0.25,)),
        ("prior", ["2:2:2"], ((2.0, 2.0, 2.0),)),
        ("delta", [0.5], (0.5,)),
    ],
)
def test_configure_factors_outputs_and_constants(name, given, expected):
    panel = STUDY.configure(panels=["means"], values={name: given}).panel("means")
    assert panel.settable()[name].values == expected
    assert panel.settable()[name].meaning == MEANS.settable()[name].meaning
    for other, axis in MEANS.settable().items():
        assert other == name or panel.settable()[other] == axis


def test_configure_list_of_methods():
    configured = STUDY.configure(panels=["means"], values={"algorithm": ["chain", "plain"]})
    assert [method.name for method in configured.panel("means").methods] == ["chain", "plain"]
    assert configured.panel("means").methods[1] is MEANS.methods[0]


def test_configure_changes_every_panel_with_the_name():
    configured = STUDY.configure(values={"n": [6], "order": [3]})
    assert [configured.panel(name).factors[0].values for name in ("means", "faults", "table")] == [(6,), (6,), (3.0,)]
    only = STUDY.configure(panels=["faults"], values={"n": [6]})
    assert [panel.name for panel in only.panels] == ["faults"]


KINDS = replace(
    SINGLE,
    name="kinds",
    method_dim="algorithm",
    methods=(*MEANS.methods[:1], *SINGLE.methods),
    factors=(Factor("kind", ("odd", "even"), "a category"), Factor("file", ("a.csv",), "a path")),
)
CHOICES = replace(STUDY, panels=(MEANS, TABLE, KINDS, replace(KINDS, name="odd").with_values("kind", ["odd"])))


@pytest.mark.parametrize(
    ("values", "kept", "left_out"),
    [
        ({"algorithm": ["plain"]}, "means kinds odd", "without algorithm=plain are left out: table"),
        ({"algorithm": ["coin", "chain"]}, "means kinds odd", "without algorithm=coin,chain are left out: table"),
        ({"n": [6]}, "means", "without n=6 are left out: table, kinds, odd"),
        ({"n": [6], "kind": ["even"]}, "means kinds odd", "without n=6 and kind=even are left out: table"),
        ({"n": [6], "algorithm": ["plain"]}, "means kinds odd", "are left out: table"),
        ({"file": ["b.csv"]}, "kinds odd", "left out: means, table"),
        ({"n": {"means": [6]}}, "means table kinds odd", ""),
        ({"n": {"means": [6]}, "order": [3]}, "means table", "left out: kinds, odd"),
    ],
    ids=str,
)
def test_values_select_the_panels_that_have_them(caplog, values, kept, left_out):
    caplog.set_level("INFO", "pipeline")
    configured = CHOICES.configure(values=values)
    assert [panel.name for panel in configured.panels] == kept.split()
    assert len(caplog.messages) == bool(left_out)
    assert left_out in caplog.text


def test_panels_take_the_methods_that_they_have():
    configured = CHOICES.configure(values={"algorithm": ["coin", "chain", "plain"]})
    methods = {panel.name: [method.name for method in panel.methods] for panel in configured.panels}
    assert methods == {"means": ["chain", "plain"], "kinds": ["coin", "plain"], "odd": ["coin", "plain"]}
    larger = CHOICES.configure(values={"algorithm": ["plain"]}).extended(CHOICES, None, {"algorithm": ["coin"]})
    assert [len(panel.methods) for panel in larger.panels] == [1, 2, 2]


def test_panels_keep_the_order_of_the_study():
    assert [panel.name for panel in STUDY.configure(panels=["table", "means", "table"]).panels] == ["means", "table"]


def with_demand(*names):
    """Return the toy study in which the named panels are computed only on demand."""
    panels = (replace(panel, on_demand=panel.name in names) for panel in STUDY.panels)
    return replace(STUDY, panels=tuple(panels))


def test_values_of_a_panel_on_demand_that_is_left_out_are_refused():
    study = with_demand("table")
    with refusal("order belongs to panel table, which is computed on demand only; add --panel table"):
        study.configure(panels=("means",), values={"order": [4]})
    with refusal("unknown factor 'ordre'"):
        study.configure(values={"ordre": [4]})


def test_panels_on_demand_are_checked_only_if_named():
    """Values of a panel on demand, which may be invalid by default, are checked only if the panel is selected."""

    def refuse(cell, setting):
        raise ValueError("give a file")

    panels = (STUDY.panels[0], replace(TABLE, on_demand=True, validate=refuse))
    study = replace(STUDY, panels=panels)
    study.configure()
    with pytest.raises(BadInputError, match="panel table, order=2: give a file"):
        study.configure(panels=["table"])


@pytest.mark.parametrize(
    ("on_demand", "arguments", "kept"),
    [
        ("", {}, "means faults table single"),
        ("table single", {}, "means faults"),
        ("table single", {"panels": ["table", "means"]}, "means table"),
        ("table single", {"panels": "single"}, "single"),
        ("table", {"panels": ["table"], "values": {"order": [4]}}, "table"),
        ("table", {"values": {"order": [4]}}, "table"),
        ("faults", {"values": {"n": [6]}}, "means"),
        ("means faults table single", {"panels": ["table"]}, "table"),
        ("means faults table single", {"values": {"order": [4]}}, "table"),
    ],
    ids=str,
)
def test_panels_on_demand_are_kept_if_they_or_their_values_are_named(on_demand, arguments, kept):
    """They stay in the study when `run` configures it again."""
    configured = with_demand(*on_demand.split()).configure(**arguments)
    assert configured == configured.configure() == STUDY.configure(**{**arguments, "panels": kept.split()})


def test_study_with_only_panels_on_demand_requires_a_name():
    study = with_demand(*(panel.name for panel in STUDY.panels))
    with refusal("study toy ", " on demand only; select one with --panel: means, faults, table"):
        study.configure()


def test_on_demand_is_not_in_the_spec():
    """The spec of a study does not contain `on_demand`, so stores can be resumed after a change of this attribute."""
    study = with_demand("table", "single")
    assert study.spec() == STUDY.spec()
    chosen = study.configure(panels=["table"], values={"order": [3, 4]})
    stored = json.loads(json.dumps(chosen.spec()))
    assert study.from_spec(stored) == chosen
    assert STUDY.from_spec(stored) == chosen
    assert differences(stored, study.from_spec(stored).spec()) == []


def test_a_panel_on_demand_from_plan_to_summary(tmp_path):
    study = with_demand("means", "faults", "single")
    assert [plan.panel for plan in make_plan(study.configure())] == ["table"]
    store = run(study, tmp_path / "s.zarr", panels=["single"], trials=4)
    assert run(study.configure(panels=["single"], trials=4), tmp_path / "s.zarr").url == store.url
    tree = open_results(store)
    assert list(tree.children) == ["single"]
    assert summarise(tree["single"].to_dataset()).n_ok.values.tolist() == [4]
    assert resume(store.url, study=study).spec == store.spec


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("trials must be .*>= 1.*, got 0", {"trials": 0}),
        ("trials must be .*>= 1.*, got -3", {"trials": -3}),
        ("trials must be", {"trials": {"means": 0}}),
        ("did you mean means", {"trials": {"mean": 3}}),
        ("seed must be .*>= 0.*, got -1", {"seed": -1}),
        (r"unknown panel 'mean'; did you mean means\? Allowed: means, faults, table, single", {"panels": ["mean"]}),
        (r"unknown factor 'epsilom'; did you mean epsilon\?", {"values": {"epsilom": [1]}}),
        ("unknown factor 'trial'", {"values": {"trial": [1]}}),
        (
            "unknown factor 'epsilon'; allowed: order, point, power",
            {"panels": ["table"], "values": {"epsilon": [1]}},
        ),
        ("panel with n.*did you mean means", {"values": {"n": {"mean": [6]}}}),
        ("panel with n.*means, faults", {"values": {"n": {"table": [6]}}}),
        ("n must be an integer, got 'x'", {"values": {"n": ["x"]}}),
        ("n must have at least one value", {"values": {"n": []}}),
        ("n must have distinct values, got 4, 4", {"values": {"n": ["4", 4.0]}}),
        ("delta must have one value, got 2", {"values": {"delta": [0.1, 0.2]}}),
        ("delta must have one value, got 0", {"values": {"delta": []}}),
        (r"unknown algorithm.* 'plan'; did you mean plain\?", {**ONLY_MEANS, "values": {"algorithm": ["plan"]}}),
        (
            "algorithm must have distinct values, got plain, plain",
            {**ONLY_MEANS, "values": {"algorithm": ["plain"] * 2}},
        ),
        ("algorithm must have at least one value, got none", {**ONLY_MEANS, "values": {"algorithm": []}}),
        ("^panel means, n=0, scale=2: n must be >= 1, got 0$", {**ONLY_MEANS, "values": {"n": [4, 0]}}),
        ("^panel means, n=9, scale=2: epsilon must be > 0, got -1.0$", {"values": {"epsilon": [1, -1]}}),
        (TOO_MANY, {**ONLY_MEANS, "trials": 10**9}),
        (
            TOO_MANY,  # before the cells are enumerated
            {**ONLY_MEANS, "trials": 10**9, "values": {"n": range(5, 10), "epsilon": [1], "scale": [1, 2]}},
        ),
        ("panel single must have at most", {"panels": ["single"], "trials": 10**9}),
    ],
    ids=str,
)
def test_invalid_configuration_is_refused_in_one_line(message, arguments):
    refused(message, **arguments)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"unknown algorithm 'coyn'; did you mean coin\? Allowed: plain, noisy, chain, coin", {"algorithm": ["coyn"]}),
        ("unknown kind 'prime'; allowed: odd, even", {"kind": ["prime"]}),
    ],
    ids=str,
)
def test_values_of_no_panel_are_refused(message, arguments):
    with pytest.raises(BadInputError, match=message):
        CHOICES.configure(values=arguments)
    with pytest.raises(BadInputError, match=message):
        CHOICES.extended(CHOICES, None, arguments)


def test_values_that_no_panel_has_together_are_refused():
    prime = Factor("kind", ("prime",), "a category", categories=("prime",))
    other = replace(KINDS, name="other", methods=SINGLE.methods, factors=(prime,))
    with refusal("no panel of study toy has kind=prime and algorithm=plain; select panels"):
        replace(STUDY, panels=(KINDS, other)).configure(values={"kind": ["prime"], "algorithm": ["plain"]})
    other = replace(other, factors=(Factor("extra", (1, 2), "a number"),))
    with refusal("no panel of study toy with extra=1 and algorithm=plain has extra=1; omit"):
        replace(STUDY, panels=(KINDS, other)).configure(values={"extra": [1], "algorithm": ["plain"]})


def test_too_many_blocks_of_an_extension_are_rejected():
    few = STUDY.configure(panels=["single"], trials=4)
    with pytest.raises(BadInputError, match="panel single must have at most 10,000,000 blocks"):
        few.extended(STUDY, 10**9, {})
    block = STUDY.panel("single").block_trials
    assert STUDY.configure(panels=["single"], trials=10**7 * block).panel("single").trials == 10**7 * block
    refused("got 10,000,001: 1 cells", panels=["single"], trials=10**7 * block + 1)


def test_cells_and_settings():
    panel = STUDY.configure(values={"scale": [1, 2]}).panel("means")
    assert panel.cells() == [{"n": n, "scale": scale} for n in (9, 4) for scale in (1.0, 2.0)]
    assert [setting.label for setting in panel.settings()] == [
        "plain",
        *(f"noisy(epsilon={e})" for e in ("0.5", "2")),
        *(f"chain(epsilon={e}, steps={s})" for e in ("0.5", "2") for s in (3, 5)),
    ]
    assert STUDY.panel("single").cells() == [{}]


def test_applies():
    *_, short, long = MEANS.settings()
    assert MEANS.applies({"n": 9, "scale": 1.0}, long)
    assert MEANS.applies({"n": 4, "scale": 1.0}, short) is True
    assert MEANS.applies({"n": 4, "scale": 1.0}, long) is False


def test_validate_receives_constants_and_the_method():
    seen = []

    def validate(cell, setting):
        seen.append((dict(cell), dict(setting)))
        return True

    replace(TABLE, validate=validate, constants=(Factor("c", (3,), ""),), factors=()).check()
    fixed = {"c": 3.0, "point": (1, 2, 3)}
    assert seen == [(fixed, {**fixed, "power": name}) for name in ("square", "cube")]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"trials": 3, "seed": 1},
        {
            "panels": ["means"],
            "values": {"prior": ["3:2:1"], "algorithm": ["chain", "plain"], "n": [1, 100], "level": [0.3]},
        },
        {"panels": ["table", "single"], "values": {"order": ["1e-3"], "point": [5]}},
    ],
    ids=str,
)
def test_spec_roundtrip(arguments):
    configured = STUDY.configure(**arguments)
    stored = json.loads(json.dumps(configured.spec()))
    again = STUDY.from_spec(stored)
    assert again == configured
    assert canonical_json(again.spec()) == canonical_json(configured.spec())
    assert differences(stored, configured.spec()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda study: replace(study, version=2),
        lambda study: replace(study, seed=8),
        lambda study: replace(study, name="other"),
        *(
            lambda study, change=change: replace(study, panels=(change(study.panels[0]), *study.panels[1:]))
            for change in (
                lambda panel: replace(panel, version=2),
                lambda panel: replace(panel, trials=7),
                lambda panel: replace(panel, block_trials=3),
                lambda panel: replace(panel, name="other"),
                lambda panel: replace(panel, methods=(replace(panel.methods[0], version=2), *panel.methods[1:])),
                lambda panel: replace(panel, methods=panel.methods[::-1]),
                lambda panel: panel.with_values("n", [9, 4, 5]),
                lambda panel: panel.with_values("n", [4, 9]),
                lambda panel: panel.with_values("steps", [3]),
                lambda panel: panel.with_values("level", [0.5]),
                lambda panel: panel.with_values("prior", [(1.0, 0.25)]),
                lambda panel: replace(panel, measures=panel.measures[1:]),
            )
        ),
    ],
)
def test_spec_contains_everything_that_affects_values_or_layout(change):
    changed = change(STUDY)
    assert differences(STUDY.spec(), changed.spec())
    assert canonical_json(changed.spec()) != canonical_json(STUDY.spec())


def test_spec_does_not_depend_on_descriptions():
    reworded = replace(STUDY, title="x", aim="y", panels=(replace(MEANS, meaning="z"), *STUDY.panels[1:]))
    assert reworded.spec() == STUDY.spec()


def test_spec_contains_integer_versions_only():
    assert sorted(STUDY.spec()) == ["panels", "seed", "study", "version"]


def test_from_spec_reports_missing_names():
    spec = json.loads(canonical_json(STUDY.spec()))
    without_method = replace(STUDY, panels=(replace(MEANS, methods=MEANS.methods[:2]), *STUDY.panels[1:]))
    with pytest.raises(BadInputError, match=r"unknown algorithm.* 'chain'"):
        without_method.from_spec(spec)
    with pytest.raises(BadInputError, match="unknown panel 'table'"):
        replace(STUDY, panels=tuple(panel for panel in STUDY.panels if panel != TABLE)).from_spec(spec)
    without_factor = replace(STUDY, panels=(replace(MEANS, constants=MEANS.constants[:1]), *STUDY.panels[1:]))
    with pytest.raises(BadInputError, match=r"unknown factor.* 'delta'"):
        without_factor.from_spec(spec)


def test_differences():
    one = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": 0}
    assert differences(one, one) == []
    assert differences(one, {"a": 2, "b": {"c": [1, 2, 3], "f": 1}, "e": 0}) == [
        "a: stored 1, now 2",
        "b.c: stored [1, 2], now [1, 2, 3]",
        "b.d: stored, now absent",
        "b.f: not stored, now present",
    ]
    assert differences({"a": {"b": 1}}, {"a": 1}) == ["a: stored {'b': 1}, now 1"]
    long = list(range(2000))
    assert differences(long, long) == []
    text = "a: stored 2,000 values, now 3; number 3 is the first other one"
    assert differences({"a": long}, {"a": [0, 1, 9]}) == [text]


@pytest.mark.parametrize(
    ("values", "n_more"),
    [
        ({"n": [5, 9, 100, 4]}, 2 * 7),
        ({"n": [4, 9]}, 0),
        ({"scale": [3, 2]}, 2 * 7),
        ({"epsilon": [8, 2, 0.5]}, 2 * 3),
        ({"steps": [5, 4, 3]}, 2 * 2),
        ({"algorithm": ["chain", "noisy", "plain"]}, 0),
    ],
    ids=str,
)
def test_extended_or_reordered_grid_keeps_all_values(values, n_more):
    old = evaluate_all(STUDY, "means")
    new = evaluate_all(STUDY.configure(panels=["means"], values=values), "means")
    assert_contained(old, new)
    assert len(new) == len(old) + n_more


@pytest.mark.parametrize("change", [{"seed": 8}, {"name": "tow"}])
def test_different_seed_or_study_changes_all_values(change):
    """Another seed, or another name of the study, changes all values (negative control)."""
    old, new = evaluate_all(STUDY, "means"), evaluate_all(replace(STUDY, **change), "means")
    for key, arrays in old.items():
        assert not np.isin(arrays["quantile"][arrays["status"] == 1], new[key]["quantile"]).any()


@pytest.mark.parametrize(("method", "label"), [(MEANS.methods[0], ""), (MEANS.methods[1], "(epsilon=2)")])
def test_methods_use_the_same_data_and_draw_their_own_noise(method, label):
    """A renamed copy of `plain`, which draws no numbers, has the same values, and one of `noisy` has others."""
    panel = replace(MEANS, methods=(method, replace(method, name="copy")))
    found = evaluate_all(replace(STUDY, panels=(panel,)), "means")
    for cell in {cell for cell, _ in found}:
        one, other = (found[cell, f"{name}{label}"]["estimate"] for name in (method.name, "copy"))
        assert np.array_equal(one, other) if method.name == "plain" else not np.isin(one, other).any()


def uniforms(*_):
    raise AssertionError("a refused study is not evaluated")


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("got duplicates: n", {"factors": (Factor("n", (1,), ""),), "constants": (Factor("n", (1,), ""),)}),
        ("got duplicates: x", {"outputs": (Factor("x", (1,), ""),)}),
        ("got duplicates: algorithm", {"factors": (Factor("algorithm", (1,), ""),)}),
        ("'method', a parameter of xarray's sel", {"factors": (Factor("method", (1,), ""),)}),
        ("'tolerance', a parameter of xarray's sel", {"method_dim": "tolerance"}),
        ("distinct stream keys, got n, n", {"factors": (Factor("n", (1,), ""), Factor("m", (1,), "", stream_key="n"))}),
        ("got duplicates: trial", {"factors": (Factor("trial", (1,), ""),)}),
        ("got duplicates: status", {"measures": (Measure("status", ""),)}),
        ("got duplicates: x", {"measures": (Measure("x", ""), Measure("x", ""))}),
        ("trials must be .*>= 1.*, got 0", {"trials": 0}),
        ("block_trials must be .*>= 1.*, got 0", {"block_trials": 0}),
        ("one method .*, got m, o", {"method_dim": None, "methods": (Method("m", uniforms), Method("o", uniforms))}),
        ("m", {"methods": (Method("m", uniforms), Method("m", uniforms))}),
        ("epsilon", {"methods": (Method("m", uniforms, uses=("epsilon",)),)}),
        ("level", {"measures": (Measure("x", "", dims=("level",)),)}),
        ("evaluate of method m must be callable, got 3", {"methods": (Method("m", 3),)}),
        ("simulate of panel p must be callable, got None", {"simulate": None}),
        ("of at most 255 bytes", {"name": "\u5dde" * 90}),
        # the noise of a method named "data" would have the numbers of the simulated data
        ("data", {"methods": (Method("data", uniforms),), "trials": 4}),
    ],
)
def test_invalid_declarations_are_rejected(message, changes):
    methods, measures = (Method("m", uniforms),), (Measure("x", ""),)
    valid = {"name": "p", "meaning": "", "simulate": uniforms, "methods": methods, "measures": measures}
    Study("s", "", "", (Panel(**valid),), seed=1).configure()
    with pytest.raises(BadInputError, match=message):
        Panel(**{**valid, **changes})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("panel", {"factors": (Factor("panel", (1, 2), ""),)}),
        ("x_sd", {"measures": (Measure("x", ""), Measure("x_sd", ""))}),
        ("n_ok", {"measures": (Measure("x", ""), Measure("n_ok", "", per_trial=False))}),
        ("stopped", {"measures": (Measure("x", ""), Measure("stopped", "", dtype="bool"))}),
        ("x_mean", {"factors": (Factor("x_mean", (1,), ""),)}),
        (
            "n",
            {
                "factors": (Factor("n", (1, 2), ""),),
                "statistics": (Statistic("ecdf", "x", "", uniforms, axis=Factor("n", (3, 4), "")),),
            },
        ),
    ],
)
def test_names_that_readers_would_confuse_are_refused_in_new_stores(tmp_path, name, changes):
    """Stores of earlier versions that have them can be read."""
    valid = {"simulate": uniforms, "methods": (Method("m", uniforms),), "measures": (Measure("x", ""),)}
    study = Study("s", "", "", (Panel("p", "", **{**valid, **changes}),), seed=1)
    with pytest.raises(BadInputError, match=f"panel p must not name a measure, factor or axis '{name}'"):
        run(study, tmp_path / "s.zarr", progress=False)
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize(
    ("message", "declare"),
    [
        ("values of tails must be a tuple, got 'heavy'; add a comma", lambda: Factor("tails", ("heavy"), "")),
        ("dims of measure cov must be distinct, got j, j", lambda: Measure("cov", "", dims=("j", "j"))),
        ("uses of method m must be distinct, got a, a", lambda: Method("m", uniforms, uses=("a", "a"))),
        ("n=1: .*raised KeyError: 'm'; correct it", lambda: applied(lambda cell, _: cell["m"] > 0)),
        ("n=1: .*must return True or False, got None; add a return", lambda: applied(lambda *_: None)),
        ("a method must apply to a cell of p, got none", lambda: applied(lambda *_: False)),
    ],
)
def test_declarations_without_numbers_are_refused(message, declare):
    with pytest.raises(BadInputError, match=message):
        declare()


def applied(validate):
    factors, methods = (Factor("n", (1,), ""),), (Method("m", uniforms),)
    panel = Panel("p", "", uniforms, methods, (Measure("x", ""),), factors, validate=validate)
    Study("s", "", "", (panel,), seed=1).configure()


def test_duplicate_panel_names_are_rejected():
    with pytest.raises(BadInputError, match="single"):
        replace(STUDY, panels=(SINGLE, replace(SINGLE, meaning="another"))).configure()


@pytest.mark.parametrize(
    "dtype", [np.float64, float, np.dtype("f8"), "longdouble", "ulonglong", None, "complex128", "U3", "M8[s]"]
)
def test_unsupported_dtype_is_rejected(dtype):
    with pytest.raises(BadInputError, match="must have the name of a boolean, integer or floating dtype"):
        Measure("x", "a number", dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        *(("float64", "f8"), ("f8", "f8"), ("float32", "f8"), ("f2", "f8")),
        *(("int8", "i4"), ("uint64", "u8"), (">i4", "i4"), ("bool", "i4")),
    ],
)
def test_supported_dtype(tmp_path, dtype, stored):
    """Stores have 32 or 64 bits, so that they can mark missing values."""
    measures = (replace(SINGLE.measures[0], dtype=dtype),)
    study = replace(STUDY, panels=(replace(SINGLE, measures=measures),))
    compute_into(tmp_path / "s.zarr", study)
    assert read_arrays(tmp_path / "s.zarr")["single/heads"].dtype == np.dtype(stored)


def keyed_study(n="n", size_key=None, draw="draw", draw_key=None):
    def simulate(cell, streams):
        return cell[n] + streams.uniforms(1)[:, 0]

    def evaluate(data, setting, streams):
        return {"x": data + setting["scale"] * streams.uniforms(1)[:, 0]}

    factors = (Factor(n, (1, 2), "", "int", stream_key=size_key),)
    scales = (Factor("scale", (1.0, 3.0), ""),)
    method = Method(draw, evaluate, uses=("scale",), stream_key=draw_key)
    return make_study(method, simulate=simulate, factors=factors, method_factors=scales, trials=5)


def test_renamed_factors_and_methods_keep_their_numbers_by_their_stream_key():
    def numbers(study):
        return np.array([results["x"] for results in evaluate_all(study, "p").values()])

    before = numbers(keyed_study())
    after = numbers(keyed_study(n="size", size_key="n", draw="sample", draw_key="draw"))
    np.testing.assert_array_equal(after, before)
    for renamed in (keyed_study(n="size"), keyed_study(draw="sample")):
        assert (numbers(renamed) != before).all()


def test_stream_keys_are_part_of_the_spec():
    found = differences(keyed_study().spec(), keyed_study(size_key="m").spec())
    assert found == ["panels.p.stream_keys.n: not stored, now present"]

"""Tests of the lines that figures show at first: none of the hidden ones is better at any point."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mechanisms import MECHANISMS
from studies.counts.hellinger_accuracy import accuracy
from studies.figures import Axis, Plot, describe_hidden, describe_outside
from studies.figures import plot as plot_module
from studies.figures.labels import at_line_ends
from studies.figures.vega import other_scale, records, specify_small
from studies.styles import MECHANISM_STYLES, Look, complete_styles
from tests.studies.first_lines_check import hidden_winners, six_in_turn

LOOKS = {
    **{f"ours-{i}": Look("red", origin="ours") for i in range(9)},
    "published": Look("red", origin="paper"),
    "laplace": Look("red", origin="baseline"),
    "not-private": Look("red", origin="paper", is_private=False),
}


def draw(means, looks=LOOKS, **options):
    """Return a plot of means by series, one per point."""
    rows = [{"series": name, "x": x, "y": y} for name, values in means.items() for x, y in enumerate(values)]
    return Plot(rows=pd.DataFrame(rows), looks=looks, **{"best": "lowest", **options})


def means_of(**changed):
    return {name: changed.get(name.replace("-", "_"), (5.0, 5.0)) for name in LOOKS}


def test_best_line_of_each_point_is_shown_at_first():
    means = means_of(ours_7=(1.0, 9.0), ours_8=(2.0, 4.0), not_private=(0.5, 9.0))
    plot = draw(means)
    assert {"ours-7", "ours-8", "not-private", "published", "laplace"} <= set(plot.shown)
    assert len(plot.shown) == 8
    hidden = describe_hidden([plot])
    assert hidden.sentence == (
        "4 of 12 lines are hidden at first. At no point does a hidden line have a lower estimate than every shown line."
    )
    assert hidden.note == "4 more lines on the interactive page, none with a lower estimate at any point"
    assert not hidden_winners([plot])


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ((0.86, 1.0), "Outside of the axis: 2 points of ours-0, 1 point of laplace."),
        ((0.1, None), ""),
        ((None, 0.5), "Outside of the axis: 22 points of 12 lines."),
    ],
)
def test_points_outside_of_an_axis_are_counted(limits, sentence):
    means = dict.fromkeys(LOOKS, (0.95, 0.9)) | {
        "ours-0": (0.2, 0.6),
        "laplace": (0.95, 0.4),
        "published": (0.9, 1.0),
    }
    means["ours-1"] = (0.9, 0.9)
    assert describe_outside([draw(means, best="", y=Axis(limits=limits))]) == sentence


def test_lines_of_a_measure_without_a_direction_are_of_all_origins():
    plot = draw(means_of(ours_8=(0.0, 0.0)), best="")
    assert plot.shown == (*(f"ours-{i}" for i in range(5)), "published", "laplace", "not-private")
    hidden = describe_hidden([plot])
    assert hidden.sentence == f"4 of 12 lines are hidden at first: {', '.join(hidden.hidden)}."


@pytest.mark.parametrize(("best", "shown"), [("highest", {"ours-8"}), ("extreme", {"ours-8", "ours-7"})])
def test_direction_decides_which_lines_are_best(best, shown):
    plot = draw(means_of(ours_8=(9.0, 9.0), ours_7=(1.0, 1.0)), best=best)
    assert set(plot.shown) & {"ours-7", "ours-8"} == shown


def test_declared_lines_leave_room_for_the_best_ones():
    """The declared lines are shown; a line is added for each point, and one of each declared origin."""
    plot = draw(means_of(ours_8=(1.0, 1.0)), first=("ours-0", "laplace", "published"))
    assert set(plot.shown) == {"ours-0", "ours-8", "laplace", "published"}
    many = {f"ours_{i}": tuple(0.0 if x == i else 5.0 for x in range(9)) for i in range(9)}
    plot = draw({**dict.fromkeys(LOOKS, (5.0,) * 9), **{f"ours-{i}": many[f"ours_{i}"] for i in range(9)}})
    assert set(plot.shown) == {*(f"ours-{i}" for i in range(9)), "published", "laplace"}


def test_added_lines_are_shown_besides_the_others():
    """Three added lines do not displace eight chosen ones, nor the best ones of a larger collection."""
    added = {name: Look("red", origin="added") for name in ("a", "b", "c")}
    names = list(LOOKS)[:8]
    plot = draw(dict.fromkeys((*names, *added), (5.0, 5.0)), {**LOOKS, **added})
    assert set(plot.shown) == {*names, *added}
    plot = draw({**means_of(ours_8=(1.0, 9.0), laplace=(9.0, 1.0)), **dict.fromkeys(added, (0.0, 0.0))}, LOOKS | added)
    assert {*added, "ours-0", "published", "laplace"} <= set(plot.shown)


def test_broken_line_does_not_hide_the_best_private_one():
    looks = {**LOOKS, "bad": Look("red", origin="broken")}
    plot = draw({**means_of(ours_8=(1.0, 1.0)), "bad": (0.0, 0.0)}, looks)
    assert {"bad", "ours-8"} <= set(plot.shown)


def test_statement_about_hidden_lines_is_computed(monkeypatch):
    """A rule that does not look at the results hides the best lines, and the caption names them."""
    monkeypatch.setattr(plot_module, "choose_first_lines", six_in_turn)
    plot = draw(means_of(ours_7=(1.0, 9.0), ours_8=(9.0, 4.0)))
    assert hidden_winners([plot]) == {"ours-7", "ours-8"}
    hidden = describe_hidden([plot])
    assert hidden.sentence.endswith("At some points, ours-7, ours-8 have a lower estimate than every shown line.")
    assert hidden.note.endswith(", 2 with a lower estimate at some point")


def _summary(names, best):
    values = np.tile(np.arange(2.0, 2.0 + len(names)), (2, 1))
    values[1, names.index(best)] = 1.0
    means = dict.fromkeys(("hellinger_mean", "hellinger_mcse", "expected_hellinger"), (("n", "mechanism"), values))
    return {"k2": xr.Dataset(means, {"n": [100, 500], "mechanism": list(names)})}


@pytest.mark.parametrize("best", MECHANISMS)
def test_mechanism_that_is_best_at_one_size_only_is_shown(best, monkeypatch):
    summaries = _summary([name for name in MECHANISMS if name != "optimal" or best == "optimal"], best)
    plots = accuracy("k2")(summaries)
    assert best in plots[0].shown
    assert not hidden_winners(plots)
    monkeypatch.setattr(plot_module, "choose_first_lines", six_in_turn)
    plots = accuracy("k2")(summaries)
    assert (best in hidden_winners(plots)) is (best not in accuracy("k2").first)


def test_added_mechanisms_have_a_colour_and_a_marker_each():
    """Broken ones have a crossed marker, also if their own marker is the name of a shape."""
    added = [f"mine-{i}" for i in range(4)]
    looks = complete_styles(MECHANISM_STYLES, [*MECHANISMS, *added], ["mine-3", "laplace"])
    markers = [look.marker for look in MECHANISM_STYLES.values()]
    assert len({looks[name].color for name in added}) == len({looks[name].marker for name in added}) == 4
    assert not {looks[name].marker for name in added} & set(markers)
    assert [looks[name].origin for name in added] == ["added", "added", "added", "broken"]
    for name in ("mine-3", "laplace"):
        assert looks[name].marker.endswith("M-1.2,-1.2L1.2,1.2M-1.2,1.2L1.2,-1.2")
        assert (looks[name].fill, looks[name].dash) == ("transparent", (1, 4))
    assert looks["laplace"].color == MECHANISM_STYLES["laplace"].color


def test_figure_of_several_plots_counts_its_lines_once():
    plot = draw(means_of(ours_8=(1.0, 1.0)), best="", y=Axis("probability"))
    other = replace(plot, best="lowest", y=Axis("sum"))
    hidden = describe_hidden([plot, other])
    assert len(hidden.hidden) == 12 - len({*plot.shown, *other.shown}) == 3
    assert hidden.sentence.endswith("a hidden line have a lower estimate of the sum than every shown line.")


def test_line_that_ends_before_the_right_edge_has_no_label_there():
    """Such lines are in a legend, as all others."""
    whole = draw(dict.fromkeys(("ours-0", "laplace"), (1.0, 2.0)), columns=1, height=100)
    assert set(at_line_ends(whole)["series"]) == {"ours-0", "laplace"}
    assert at_line_ends(draw({"ours-0": (1.0, 2.0), "laplace": (3.0,)}, columns=1, height=100)).empty
    short = draw(dict.fromkeys(("ours-0", "laplace"), (1.0,))).rows
    for share_x, n_labels in ((True, 0), (False, 2)):
        rows = pd.concat([whole.rows.assign(axes="a"), short.assign(axes="b")])
        assert len(at_line_ends(replace(whole, rows=rows, columns=2, share_x=share_x))) == n_labels


@pytest.mark.parametrize("ends", [(2.0, 3.0), (2.0, 2.2)])
def test_both_scales_name_the_lines_at_the_same_places(ends):
    """The second line of the first axes may end above the linear axis: its label is on the other scale only."""
    parts = [draw({"ours-0": (1.0, 2.0), "laplace": (1.0, end)}).rows.assign(axes=f"{end}") for end in ends]
    plot = replace(draw(means_of()), rows=pd.concat(parts), y=Axis(limits=(0.0, 2.5)), columns=1, height=100)
    for shown in (plot, replace(plot, rows=plot.rows[plot.rows["axes"] == f"{ends[1]}"])):
        (other,) = other_scale([shown])
        assert at_line_ends(other).empty == at_line_ends(shown).empty
        for column, drawn in (("label_linear", shown), ("label_log", other)):
            labels = at_line_ends(drawn).set_index(["axes", "series"])["y"]
            places = {(row["axes"], row["series"]): row[column] for row in records(shown) if column in row}
            assert places == pytest.approx(labels.to_dict(), rel=1e-4)


def test_title_of_a_small_image_is_wrapped_and_not_cut():
    plot = replace(draw(means_of()), y=Axis("distance of the quantiles to the uniform distribution"), note="n = 100")
    (view,) = [part for part in specify_small(plot)["vconcat"] if "title" in part]
    assert view["title"] == ["distance of the quantiles to the uniform", "distribution, n = 100"]
    (view,) = [part for part in specify_small(replace(plot, y=Axis("loss")))["vconcat"] if "title" in part]
    assert view["title"] == "loss, n = 100"

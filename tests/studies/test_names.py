"""Tests that no dimension, coordinate or variable of a study has the name of an attribute or argument of xarray."""

import inspect

import pytest
import xarray as xr

from pipeline.declare.panel import SEL_PARAMETERS
from studies import STUDIES

QUERIES = [xr.Dataset.sel, xr.Dataset.mean, xr.Dataset.quantile, xr.Dataset.rank]
PARAMETERS = {name for method in QUERIES for name in inspect.signature(method).parameters}
PANELS = {f"{study.name}/{panel.name}": panel for study in STUDIES.values() for panel in study.panels}
KEPT = {"rank"}
"""Named as in the literature on simulation-based calibration, although datasets have a method `rank`."""


def collisions(panel):
    names = {axis.name for axis in panel.settable().values()} | {measure.name for measure in panel.measures}
    return {name for name in names if name in PARAMETERS or hasattr(xr.Dataset, name)}


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_names_are_not_those_of_xarray(panel):
    assert collisions(panel) <= KEPT


def test_collisions_are_found():
    panel = PANELS["calibration/binomial"]
    assert "rank" in collisions(panel)


def test_parameters_of_sel_are_those_of_the_installed_xarray():
    parameters = inspect.signature(xr.Dataset.sel).parameters.values()
    assert {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} == SEL_PARAMETERS

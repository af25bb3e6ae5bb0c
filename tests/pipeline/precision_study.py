"""Study of normal draws with known standard deviations, for tests of runs until a precision; also a study file."""

import numpy as np
import xarray as xr

from pipeline import (
    Factor,
    Finding,
    Measure,
    Method,
    Panel,
    Statistic,
    Study,
    claim,
    claims_in,
    two_sided_level,
    verdict,
)

SDS = {"wide": 1.0, "narrow": 0.2, "constant": 0.0}


def simulate(cell, streams):
    return np.array([rng.normal(0.5, cell["sd"]) for rng in streams.generators()])


def draw(name):
    def evaluate(data, setting, streams):
        noise = np.array([rng.normal(0, 0.1) for rng in streams.generators()]) * (SDS[name] > 0)
        return {"x": 0.5 + SDS[name] * (data - 0.5) + SDS[name] * noise, "exact": 0.5}

    return evaluate


def tabulate(data, setting, streams):
    return {"total": 3.0}


PANEL = Panel(
    name="p",
    meaning="normal draws",
    simulate=simulate,
    methods=tuple(Method(name, draw(name)) for name in SDS),
    measures=(Measure("x", "a draw"), Measure("exact", "its mean", per_trial=False)),
    factors=(Factor("sd", (0.5, 1.0, 2.0), "standard deviation"),),
    statistics=(Statistic("above", "x", "fraction above 0.5", lambda x: np.mean(x > 0.5)),),
    trials=1000,
    block_trials=50,
)
TABLE = Panel(
    name="table",
    meaning="no chance",
    simulate=lambda cell, streams: None,
    methods=(Method("table", tabulate),),
    measures=(Measure("total", "a number"),),
)


def _deviations(summary: xr.Dataset, method: str, mean: float) -> xr.DataArray:
    one = summary.sel(algorithm=method)
    return (one["x_mean"] - mean) / one["x_mcse"]


@claim(
    "positive",
    "Narrow draws have positive means.",
    kind="self-check",
    needs={"p": {"algorithm": ("narrow",)}},
    level=two_sided_level(4),
)
def positive(look) -> Finding:
    far = _deviations(look["p"], "narrow", 0.0)
    return verdict(True if bool((far > look.critical(4)).all()) else None, f"Smallest: {float(far.min()):.1f} errors.")


@claim(
    "unbiased",
    "Wide draws have mean 0.5.",
    kind="self-check",
    needs={"p": {"algorithm": ("wide",)}},
    level=two_sided_level(5),
)
def unbiased(look) -> Finding:
    far = abs(_deviations(look["p"], "wide", 0.5))
    holds = bool((far < look.critical(5)).all())
    return verdict(holds, f"Largest: {float(far.max()):.1f} errors.", is_settled=not holds)


@claim("table", "The total is 3.", kind="self-check", level=0, min_trials=1, needs={"table": {}})
def total(look) -> Finding:
    return verdict(bool((look["table"]["total"] == 3).all()), "The total is 3.")


STUDY = Study(
    name="precision-toy",
    title="Normal draws",
    aim="Test runs until a precision.",
    panels=(PANEL, TABLE),
    seed=1,
    claims=claims_in(globals()),
)

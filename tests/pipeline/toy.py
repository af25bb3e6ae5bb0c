"""Toy study with every feature of studies, for tests of the pipeline; also used as a study file.

Panel `means` has data factors, method factors that only some methods use, an output, constants of which one is a
vector, measures per trial and per cell, and a setting that does not apply to a cell. `faults` has one method per kind
of failure. `table` is deterministic, and `single` has no factors.
"""

import os
import signal
from dataclasses import replace

import numpy as np

from pipeline import Factor, Measure, Method, Panel, Study


def simulate_sample(cell, streams):
    return {"sample": cell["scale"] * streams.uniforms(cell["n"]), "scale": cell["scale"]}


def measure_sample(data, estimate, setting):
    return {
        "estimate": estimate,
        "n_above": (data["sample"] > estimate[:, None]).sum(axis=1),
        "quantile": np.quantile(data["sample"], setting["level"], axis=1).T,
        "exact": data["scale"] / 2,
        "exact_quantile": data["scale"] * np.array(setting["level"]),
    }


def plain(data, setting, streams):
    shrunk = np.column_stack([data["sample"], np.tile(setting["prior"], (len(data["sample"]), 1))])
    return measure_sample(data, shrunk.mean(axis=1), setting)


def noisy(data, setting, streams):
    noise = (streams.uniforms(1)[:, 0] - 0.5) / setting["epsilon"]
    return measure_sample(data, data["sample"].mean(axis=1) + noise, setting)


def chain(data, setting, streams):
    noise = [rng.normal(size=(rng.poisson(3) + setting["steps"])).mean() for rng in streams.generators()]
    return measure_sample(data, data["sample"].mean(axis=1) + np.array(noise) / setting["epsilon"], setting)


def accept_means(cell, setting):
    if cell["n"] < 1:
        raise ValueError(f"n must be >= 1, got {cell['n']}")
    if setting.get("epsilon", 1.0) <= 0:
        raise ValueError(f"epsilon must be > 0, got {setting['epsilon']}")
    return not (setting["algorithm"] == "chain" and setting["steps"] > cell["n"])


MEANS = Panel(
    name="means",
    meaning="means of uniform numbers",
    simulate=simulate_sample,
    methods=(
        Method("plain", plain),
        Method("noisy", noisy, uses=("epsilon",), note="Not private: noise of finite range", is_private=False),
        Method("chain", chain, uses=("epsilon", "steps")),
    ),
    measures=(
        Measure("estimate", "estimated mean", unit="m"),
        Measure("n_above", "entries above the estimate", dtype="int64"),
        Measure("quantile", "sample quantiles", dims=("level",)),
        Measure("exact", "true mean", per_trial=False),
        Measure("exact_quantile", "true quantiles", dims=("level",), per_trial=False),
    ),
    factors=(Factor("n", (9, 4), "entries of a sample", "int"), Factor("scale", (2.0,), "largest entry", unit="m")),
    method_factors=(Factor("epsilon", (0.5, 2.0), "privacy loss"), Factor("steps", (3, 5), "length of a chain", "int")),
    outputs=(Factor("level", (0.5, 0.1, 0.9), "level of a quantile"),),
    constants=(Factor("prior", ((1.0, 0.5),), "prior guesses", "vector"), Factor("delta", (1e-6,), "slack")),
    trials=6,
    block_trials=4,
    validate=accept_means,
)


def simulate_numbers(cell, streams):
    return streams.uniforms(cell["n"]).sum(axis=1)


def fine(data, setting, streams):
    return {"x": data + streams.uniforms(1)[:, 0], "mean": 0.5}


def reports(data, setting, streams):
    error = ["too unlucky" if trial % 3 == 1 else "" for trial in streams.trials]
    return {**fine(data, setting, streams), "error": error}


def raises(data, setting, streams):
    for trial in streams.trials:
        if trial in setting["failing"]:
            raise ArithmeticError(f"no result for trial {trial}")
    return fine(data, setting, streams)


def always(data, setting, streams):
    raise LookupError("never works")


def undefined(data, setting, streams):
    return {"x": np.where(np.array(streams.trials) % 4 == 2, np.nan, data), "mean": 0.5}


def deadly(data, setting, streams):
    if setting["killer"] in streams.trials:
        os.kill(os.getpid(), signal.SIGKILL)
    return fine(data, setting, streams)


FAULTS = Panel(
    name="faults",
    meaning="ways to fail",
    simulate=simulate_numbers,
    methods=tuple(Method(f.__name__, f) for f in (fine, reports, raises, always, undefined, deadly)),
    measures=(Measure("x", "a number"), Measure("mean", "its exact mean", per_trial=False)),
    factors=(Factor("n", (3, 5), "summands", "int"),),
    constants=(
        Factor("failing", ((3, 5, 9),), "trials for which raises raises", "vector"),
        Factor("killer", (-1,), "trial for which deadly kills its process", "int"),
    ),
    trials=12,
    block_trials=8,
)


def simulate_order(cell, streams):
    return cell["order"]


def power(exponent):
    def evaluate(data, setting, streams):
        points = np.array(setting["point"]) * data
        return {"curve": points**exponent, "total": (points**exponent).sum(), "n_points": len(points)}

    return evaluate


TABLE = Panel(
    name="table",
    meaning="powers, without chance",
    simulate=simulate_order,
    methods=(Method("square", power(2)), Method("cube", power(3))),
    measures=(
        Measure("curve", "powers", dims=("point",)),
        Measure("total", "their sum"),
        Measure("n_points", "number of points", dtype="int32"),
    ),
    factors=(Factor("order", (2.0, 1.5), "multiplier"),),
    outputs=(Factor("point", (1, 2, 3), "base", "int"),),
    method_dim="power",
)


def simulate_nothing(cell, streams):
    return None


def coin(data, setting, streams):
    return {"heads": streams.uniforms(1)[:, 0] < 0.5}


SINGLE = Panel(
    name="single",
    meaning="one method, no factors",
    simulate=simulate_nothing,
    methods=(Method("coin", coin),),
    measures=(Measure("heads", "whether heads came up", dtype="bool"),),
    trials=5,
    block_trials=2,
)

STUDY = Study(
    name="toy",
    title="Toy",
    aim="Do each thing a study can do.",
    panels=(MEANS, FAULTS, TABLE, SINGLE),
    seed=7,
)

# Studies of coins, which are here since a run compares the code of all modules that the file of its study imports.
COIN = replace(STUDY, panels=(replace(SINGLE, trials=8, block_trials=1),))
SMALL = replace(STUDY, panels=(replace(SINGLE, trials=60, block_trials=2),))

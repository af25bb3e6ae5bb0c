"""A study of your own: two estimators of a centre on the same simulated data."""

import numpy as np

from pipeline import Factor, Measure, Method, Panel, Study


def simulate(cell, streams):
    """Return the data of a block of trials, shape (trial, n), given the factors, from one generator per trial."""
    return np.stack([rng.standard_t(cell["df"], size=cell["n"]) for rng in streams.generators()])


def mean(data, setting, streams):
    """Return the measures of a method, one value per trial; the true centre is 0."""
    return {"squared_error": data.mean(axis=1) ** 2}


def median(data, setting, streams):
    """Draw random numbers of a method, if it needs them, from `streams` as well, never from np.random."""
    return {"squared_error": np.median(data, axis=1) ** 2}


STUDY = Study(
    name="template",
    title="Mean against median",
    aim="Compare the errors of two estimators for tails of different weight.",
    panels=(
        Panel(
            name="main",
            meaning="draws from a t distribution",
            simulate=simulate,
            methods=(Method("mean", mean), Method("median", median)),
            measures=(Measure("squared_error", "squared error of the centre"),),
            factors=(Factor("n", (20, 80), "records", "int"), Factor("df", (3, 30), "degrees of freedom")),
            trials=1000,
            block_trials=250,  # trials per call of the functions; results do not depend on it
        ),
    ),
    seed=1,
)

"""A study of your own: two estimators of a centre on the same simulated data."""

import numpy as np

from pipeline import Factor, Measure, Method, Panel, Study, claim, verdict

DEGREES = {"heavy": 3, "light": 30}  # of freedom, by the category of the factor `tails`


def simulate(cell, streams):
    """Return the data of a block of trials, shape (trial, n), given the factors, from one generator per trial."""
    return np.stack([rng.standard_t(DEGREES[cell["tails"]], size=cell["n"]) for rng in streams.generators()])


def measures_of(centre, data, factor):
    """Return the measures, one value per trial; the true centre is 0."""
    error = factor * data.std(axis=1, ddof=1) / data.shape[1] ** 0.5
    return {"squared_error": centre**2, "covered": abs(centre) <= 1.96 * error}


def mean(data, setting, streams):
    """Evaluate a method on the data of a block; its random numbers, if any, come from `streams` as well."""
    return measures_of(data.mean(axis=1), data, 1.0)


def median(data, setting, streams):
    """Evaluate the median, with the standard error that it has for normal data."""
    return measures_of(np.median(data, axis=1), data, 1.2533)


@claim(kind="self-check", needs={"main": {"tails": "heavy"}})
def median_is_better_for_heavy_tails(look):
    """For heavy tails, the median has a smaller mean squared error than the mean."""
    error = look["main"]["squared_error_mean"]  # also `_mcse`, its Monte Carlo standard error
    ratio = error.sel(algorithm="median") / error.sel(algorithm="mean")
    return verdict((ratio < 1.0).all(), f"Largest ratio of the mean squared errors: {ratio.max():.2f}.")


STUDY = Study(
    name="template",
    title="Mean against median",
    aim="Compare the errors and intervals of two estimators for tails of different weight.",
    panels=(
        Panel(
            name="main",
            meaning="draws from a t distribution",
            simulate=simulate,
            methods=(Method("mean", mean), Method("median", median)),
            measures=(
                Measure("squared_error", "squared error of the centre"),
                # an event: summaries have an interval for its probability, and figures show the nominal one
                Measure("covered", "95 % interval contains the centre", dtype="bool", nominal=0.95),
            ),
            factors=(Factor("n", (20, 80), "records"), Factor("tails", tuple(DEGREES), "weight of the tails")),
            trials=1000,
            block_trials=250,  # trials per call of the functions; results do not depend on it
        ),
    ),
    claims=(median_is_better_for_heavy_tails,),
    seed=1,
)

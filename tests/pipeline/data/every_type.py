"""Study with a measure of every kind of dtype, whose stores of earlier formats are in ``formats_5_and_6.tar.xz``.

Its code must not change, because stores record its hash.
"""

import numpy as np

from pipeline import Measure, Method, Panel, Study


def simulate(cell, streams):
    return streams.uniforms(1)[:, 0]


def measure(data, setting, streams):
    return {
        "event": data < 0.5,
        "small": np.floor(200 * data) - 100,
        "count": np.floor(1e6 * data),
        "large": np.floor(2.0**63 * data).astype(np.uint64),
        "half": 60_000 * data,
        "share": data,
        "number": data,
        "limit": 7,
    }


def unlucky(data, setting, streams):
    error = ["unlucky" if trial % 3 == 1 else "" for trial in streams.trials]
    return {**measure(data, setting, streams), "error": error}


def never(data, setting, streams):
    raise ArithmeticError("never works")


DTYPES = {
    "event": "bool",
    "small": "int8",
    "count": "int64",
    "large": "uint64",
    "half": "float16",
    "share": "float32",
    "number": "float64",
}

STUDY = Study(
    name="every-type",
    title="Measures of every type",
    aim="Show how missing values are stored.",
    panels=(
        Panel(
            name="p",
            meaning="one uniform number per trial",
            simulate=simulate,
            methods=(Method("fine", measure), Method("unlucky", unlucky), Method("never", never)),
            measures=(
                *(Measure(name, f"a number of dtype {dtype}", dtype=dtype) for name, dtype in DTYPES.items()),
                Measure("limit", "an exact number per cell", dtype="int32", per_trial=False),
            ),
            trials=6,
            block_trials=4,
        ),
    ),
    seed=1,
)

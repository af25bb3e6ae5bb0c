"""First iterations of the Gibbs samplers from dispersed starts, at n = 1,000 and ε = 0.1 (P4, appendix)."""

import math
from typing import Any

from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.inference.methods import INFERENCE_METHODS
from pipeline import Factor, Figure, Finding, Measure, Method, Panel, Streams, Study, verdict
from studies.claims import Look, in_panels, p4
from studies.figures import Axis, Chart
from studies.inference.noisy_trials import release_model
from studies.panels import Values

_N_BURN_IN = 100
_ITERATIONS = tuple(range(1, 501))
_LARGEST_RHAT = 1.1


def _simulate(cell: Values, streams: Streams) -> dict[str, Any]:
    model = release_model(cell["family"], cell)
    (rng,) = streams.generators()
    theta = model.draw_parameters(rng, cell["prior"], 1)
    return {"cell": cell, "model": model, "theta": theta[0, 0], "noisy": model.draw_release(rng, theta)[0]}


def _trace(data: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    cell = data["cell"]
    (rng,) = streams.generators()
    run = {"n_chains": len(cell["start"]), "n_burn_in": 0, "n_draws": len(cell["iteration"])}
    theta = INFERENCE_METHODS["gibbs"].fit(rng, data["model"], cell["prior"], data["noisy"], **run).draws
    return {"theta": theta, "truth": data["theta"]}


def _panel(family: str, prior: tuple[float, float], bounds: tuple[float, float] | None = None) -> Panel:
    def validate(cell: Values, setting: Values) -> bool:
        release_model(family, cell).validate_prior(cell["prior"])
        return True

    constants = [
        Factor("family", (family,), "model", "str", categories=(family,)),
        Factor("n", (1_000,), "number of records", "int"),
        Factor("epsilon", (0.1,), "privacy loss", unit="nat"),
        Factor("prior", (prior,), "hyperparameters of the prior", "vector")]  # fmt: skip
    if bounds is not None:
        constants.append(Factor("bounds", (bounds,), "public bounds of a record", "vector"))
    return Panel(
        name=family,
        meaning=f"first iterations of the sampler, {family} model (P4, appendix)",
        simulate=_simulate,
        methods=(Method("gibbs", _trace),),
        measures=(
            Measure("theta", "parameter at the iteration", dims=("start", "iteration")),
            Measure("truth", "true parameter of the records"),
        ),
        outputs=(
            Factor("start", (0, 1, 2), "chain, started from a draw of the prior", "int"),
            Factor("iteration", _ITERATIONS, "iteration of the sampler", "int"),
        ),
        constants=tuple(constants),
        method_dim=None,
        validate=validate,
    )


@p4(
    short="The Gibbs samplers become stationary within a few hundred iterations.",
    place="appendix",
    needs=in_panels(("binomial", "exponential"), iteration=_ITERATIONS),
)
def forgets_its_start(look: Look) -> Finding:
    """The Gibbs samplers reach their stationary distribution within a few hundred iterations."""
    rhat = {name: float(diagnose_chains(summary["theta"].values[:, _N_BURN_IN:])[0]) for name, summary in look.items()}
    return verdict(
        max(rhat.values()) <= _LARGEST_RHAT,
        f"Split R-hat of iterations {_N_BURN_IN + 1} to 500 from three starts, "
        f"{'; '.join(f'{name}: {value:.3f}' for name, value in rhat.items())}; at most {_LARGEST_RHAT} is allowed.",
    )


_TRACES = Chart(
    "", "iteration", {"y": "theta"}, "start", x=Axis("iteration"), y=Axis("θ"), marks=("level", "line"),
    across={"level": "truth"}, prepare=lambda ds: ds.assign_coords(start=ds["start"] + 1), series="start {}", columns=1,
    height=160, at_ends=False, share_y=False)  # fmt: skip

STUDY = Study(
    name="gibbs-traces",
    papers=("P4",),
    title="First iterations of Gibbs samplers for noisy statistics",
    aim="Show the speed of convergence of chains from dispersed starts.",
    panels=(
        _panel("binomial", (10.0, 10.0)),
        _panel("exponential", (8.0, 2.0), (-math.log(0.975) / 4, -math.log(0.025) / 4)),
    ),
    seed=20_181_204,
    claims=(forgets_its_start,),
    figures=(
        Figure(
            "traces",
            "The first 500 iterations from three starts",
            "Parameter against the iteration for three chains started from draws of the prior, for the binomial and "
            "the exponential model at 1,000 records and ε = 0.1. The horizontal line is the true parameter.",
            ("binomial", "exponential"),
            _TRACES,
        ),
    ),
)

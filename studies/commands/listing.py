"""The command ``list``: studies, one study in detail, and mechanisms."""

import pydoc
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

from pipeline.declare.factors import Factor, Value, format_value
from pipeline.declare.local_modules import module_file
from pipeline.declare.panel import Panel
from pipeline.declare.source import find_study
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from studies import MODULES, STUDIES
from studies.commands.options import argument, complete_study, option
from studies.output import print_table, say

if TYPE_CHECKING:
    from mechanisms.core.metadata import Entry

_MOST_VALUES = 12  # number of values of an axis that are shown


def list_studies(
    study: Annotated[
        list[str] | None,
        argument(
            "[STUDY]...",
            "Show the panels of these studies: names, .py files with STUDY, or module:object.",
            complete_study,
        ),
    ] = None,
    mechanisms: Annotated[bool, option("--mechanisms", "List the mechanisms and methods instead.")] = False,
) -> None:
    """List the studies, their panels, or the mechanisms."""
    if mechanisms and study:
        raise BadInputError(
            f"--mechanisms must be given without a study, got {study[0]}; omit --mechanisms or the study"
        )
    if mechanisms:
        _list_mechanisms()
    elif study:
        for target in study:
            _describe(find_study(target, MODULES).load(), target)
    else:
        files = {name: module_file(MODULES[name].partition(":")[0]) for name in STUDIES}
        rows = ((name, (file and pydoc.synopsis(file)) or "") for name, file in files.items())  # imports no study
        print_table(("study", "description"), rows)


def _describe(study: Study, target: str) -> None:
    """Print the title and aim of a study, and the axes, trials and measures of its panels."""
    say(f"{study.name}: {study.title}\n{study.aim}")
    for panel in study.panels:
        say(f"\npanel {panel.name}{' (on demand)' * panel.on_demand}: {panel.meaning}")
        rows = list(_rows(panel))
        width = max(len(name) for name, _ in rows)
        for name, text in rows:
            say(f"  {name:{width}}  {text}")
    say(f"\ntime and storage depend on the machine; measure a few trials with: dpstudies plan {target}")


def _rows(panel: Panel) -> Iterator[tuple[str, str]]:
    """Yield the axes, constants, trials and measures of a panel, each with its description."""
    roles: dict[str, tuple[Factor, ...]] = {
        "factor": panel.factors,
        "factor of methods": panel.method_factors,
        "output": panel.outputs,
        "constant": panel.constants,
    }
    for role, axes in roles.items():
        for axis in axes:
            yield axis.name, f"{_shorten(axis.values)} ({role}: {axis.meaning})"
    yield panel.method_dim or "method", ", ".join(method.name for method in panel.methods)
    yield "trials", "none (deterministic)" if panel.trials is None else f"{panel.trials:,} per cell"
    yield "measures", ", ".join(measure.name for measure in panel.measures)


def _shorten(values: tuple[Value, ...]) -> str:
    """Return the values as text; of a long list, only the first two, the last one and their number are shown."""
    texts = [format_value(value) for value in values]
    if len(texts) <= _MOST_VALUES:
        return ", ".join(texts)
    return f"{', '.join(texts[:2])}, ..., {texts[-1]}; {len(texts)} values"


def _list_mechanisms() -> None:
    import mechanisms
    from mechanisms.regression.gram_samplers import GRAM_METHODS
    from studies.audits import REGISTERED

    registries: dict[str, Mapping[str, Entry]] = {
        "counts": mechanisms.MECHANISMS,
        "counts, Rényi": mechanisms.GAUSSIAN_MECHANISMS,
        "posterior draw": mechanisms.RENYI_SAMPLERS,
        "regression weights": {**mechanisms.GLM_MECHANISMS, **mechanisms.GLM_CHAINS},
        "inference": mechanisms.INFERENCE_METHODS,
        "regression given noisy sums": GRAM_METHODS,
        "probability of a coefficient": mechanisms.PROBABILITY_METHODS,
        "quantile of a coefficient": mechanisms.QUANTILE_METHODS,
    }
    rows = [
        (name, kind, entry.origin_text, entry.note)
        for kind, registry in registries.items()
        for name, entry in registry.items()
    ]
    rows += [(name, "registered", "", REGISTERED[name]) for name in REGISTERED.added()]
    print_table(("mechanism", "kind", "origin", "note"), rows)

"""Tables of the README files, generated from the declarations of mechanisms and studies.

`test_readme` contains the command that rewrites the files.
"""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import mechanisms
from mechanisms import (
    GAUSSIAN_MECHANISMS,
    GLM_CHAINS,
    GLM_MECHANISMS,
    INFERENCE_METHODS,
    MECHANISMS,
    PROBABILITY_METHODS,
    QUANTILE_METHODS,
    RENYI_SAMPLERS,
)
from studies import MODULES, STUDIES
from studies.cli import app
from studies.counts.page_tables import describe_guarantee
from studies.report.papers import PAPERS
from studies.report.results import list_errata
from studies.tables import markdown_table

ROOT = Path(__file__).parents[1]
VERDICTS = ROOT / ".github/verdicts.md"  # written by: dpstudies report lab --markdown .github/verdicts.md


def list_releases() -> str:
    """Return a sentence with all functions and commands that release real data: those that can be rehearsed."""
    exported = {name: getattr(mechanisms, name) for name in mechanisms.__all__}
    functions = [
        f"`{name}`"
        for name, value in sorted(exported.items())
        if inspect.isfunction(value) and "rehearsal_seed" in inspect.signature(value).parameters
    ]
    commands = [
        f"`{command.callback.__name__}`"
        for command in app.registered_commands
        if command.callback is not None and "rehearsal" in inspect.signature(command.callback).parameters
    ]
    return (
        f"Only {_join(functions)}, and the commands {_join(commands)} of `dpstudies` release real data. OpenDP draws "
        "their noise exactly, but for the scale and the centre of the method `quantile-centred`, which this package "
        "draws with a negligible error."
    )


def _join(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def tabulate_papers() -> str:
    """Return a table of the papers: keys, titles and authors, with links to published papers."""
    rows = [(p.key, f"[{p.title}]({p.url})" if p.url else p.title, p.authors) for p in PAPERS]
    return markdown_table(("key", "title", "authors"), rows)


def tabulate_studies() -> str:
    """Return a table of the built-in studies: names, papers and titles."""
    studies = [STUDIES[name] for name in MODULES.built_in]
    rows = [(f"`{study.name}`", ", ".join(study.papers), study.title) for study in studies]
    return markdown_table(("study", "papers", "title"), rows)


def tabulate_verdicts() -> str:
    """Return the stored table of verdicts on conclusions, with the command that computed it."""
    return VERDICTS.read_text().rstrip()


def count_verdicts() -> str:
    """Return a sentence that states the number of conclusions with each verdict."""
    counts = Counter(re.findall(r"\| ([a-z ]+) \|$", VERDICTS.read_text(), re.MULTILINE))
    del counts["verdict"]
    listed = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
    return f"Verdicts on {counts.total()} conclusions (a conclusion on several models counts once per model): {listed}."


def tabulate_errata() -> str:
    """Return a table of the declared errata: place, printed statement and correct statement."""
    return markdown_table(("location", "as printed", "correct"), [row[:3] for row in list_errata({})])


def tabulate_count_mechanisms() -> str:
    return _tabulate(
        "guarantee", [(MECHANISMS, lambda mechanism: describe_guarantee(mechanism.guarantee(epsilon=1.0, delta=0.5)))]
    )


def tabulate_inference_methods() -> str:
    return _tabulate("private", [(INFERENCE_METHODS, lambda method: "yes" if method.is_private else "no")])


def tabulate_posterior_draws() -> str:
    by_budget = {"renyi": "(λ, ε)-RDP", "pure": "ε-DP", "gaussian": "μ-GDP, (ε, δ)-DP", None: "none"}
    return _tabulate(
        "guarantee",
        [
            (
                RENYI_SAMPLERS,
                lambda method: "(λ, ε)-RDP" if method.is_tunable else "(λ, ε(λ))-RDP below a critical order",
            ),
            (GAUSSIAN_MECHANISMS, lambda method: "(λ, ε)-RDP"),
            (GLM_MECHANISMS, lambda method: by_budget[method.budget]),
            (GLM_CHAINS, lambda method: by_budget["gaussian"]),
        ],
    )


def tabulate_partition_methods() -> str:
    """Return a table of the methods of regression by partitions, without their noiseless variants."""
    probability = {name: method for name, method in PROBABILITY_METHODS.items() if method.has_noise}
    quantile = {name: method for name, method in QUANTILE_METHODS.items() if method.has_noise}
    return _tabulate(
        "guarantee",
        [
            (probability, lambda method: "ε-DP per cutoff" if method.is_private else "none"),
            (quantile, lambda method: "(ε₁ + ε₂)-DP per probability"),
        ],
    )


def _tabulate(head: str, registries: Iterable[tuple[Mapping[str, Any], Callable[[Any], str]]]) -> str:
    """Return a table with one row per entry: name, origin, description, and a property specific to the registry."""
    rows = [
        (f"`{name}`", entry.origin_text, entry.note, describe(entry))
        for registry, describe in registries
        for name, entry in registry.items()
    ]
    return markdown_table(("name", "origin", "method", head), rows)

"""How a simulation study is declared, after the ADEMP frame (Morris, White & Crowther 2019): panels, claims, figures.

What a trial is, is a matter of values alone; how trials are divided into blocks and tasks is for `pipeline.blocks` and
`pipeline.execution` to say.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.declare.factors import Value, require_integer
from pipeline.declare.panel import MAX_TRIALS, Panel
from pipeline.errors import BadInputError, unknown

Verdict = Literal["reproduced", "not reproduced", "corrected", "undecided"]

MAX_BLOCKS = 10**7
"""Blocks that a panel may have, over all settings: each is a file per variable, and a byte of the driver's memory."""


@dataclass(frozen=True)
class Finding:
    """What a check of a claim found: a verdict and the numbers behind it."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Claim:
    """A conclusion of a paper, as a check over the stored results.

    Attributes
    ----------
    name, statement, source : str
        A short label; what the paper says; where it says so.
    needs : mapping
        Panel -> dimension -> values that must be stored for the claim to be decided.
    check : callable
        ``{panel: summary Dataset} -> Finding``.
    fewest : int
        Trials that must be ok in every cell and setting; of panels without trials, one. 100 make a mean nearly normal.
    """

    name: str
    statement: str
    source: str
    needs: Mapping[str, Mapping[str, tuple[Value, ...]]]
    check: Callable[[Mapping[str, Any]], Finding] = field(repr=False)
    fewest: int = 100


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, drawn from summaries.

    Attributes
    ----------
    name, title, caption : str
        File stem, heading, and the text below, which also describes the picture to who cannot see it.
    panels : tuple of str
        The panels it shows, of which those in the store are drawn.
    draw : callable
        ``{panel: summary Dataset} -> matplotlib Figure``.
    """

    name: str
    title: str
    caption: str
    panels: tuple[str, ...]
    draw: Callable[[Mapping[str, Any]], Any] = field(repr=False)


@dataclass(frozen=True)
class Study:
    """A simulation study: its aim, panels, claims and figures.

    Attributes
    ----------
    name, title, aim : str
        The name used on the command line, a heading, and what the study is to find out.
    panels : tuple of Panel
        The experiments.
    seed : int
        Seed of all its streams; constant by default and always recorded.
    version : int
        Raised when the numbers change for a reason that is neither a method's nor a simulator's.
    claims, figures : tuple
        What is concluded and drawn.

    Examples
    --------
    >>> from pipeline import Factor, Measure, Method
    >>> def simulate(cell, streams):  # all that the methods share
    ...     return streams.uniforms(2), cell
    >>> def average(data, setting, streams):
    ...     uniforms, cell = data
    ...     return {"x": cell["n"] * uniforms.mean(axis=1)}  # (trial,)
    >>> methods, measures = (Method("average", average),), (Measure("x", "an average"),)
    >>> sizes = Factor("n", (1, 10), "size", "int")
    >>> panel = Panel("p", "a panel", simulate, methods, measures, (sizes,), trials=50)
    >>> study = Study("toy", "A toy", "To show what a study is.", (panel,), seed=1)
    >>> study.configure(trials=20, values={"n": [3]}).panel("p").cells()
    [{'n': 3}]
    """

    name: str
    title: str
    aim: str
    panels: tuple[Panel, ...]
    seed: int
    version: int = 1
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        names = [panel.name for panel in self.panels]
        if not names or len(set(names)) < len(names):
            raise BadInputError(
                f"study {self.name} must name each of its panels once, got {', '.join(names) or 'none'}"
            )
        require_integer("seed", self.seed, 0, 2**63 - 1)

    def panel(self, name: str) -> Panel:
        """Return a panel by name; ValueError offers the nearest names."""
        for panel in self.panels:
            if panel.name == name:
                return panel
        raise BadInputError(unknown("panel", name, [panel.name for panel in self.panels]))

    def configure(
        self,
        trials: int | None = None,
        seed: int | None = None,
        panels: Iterable[str] = (),
        values: Mapping[str, Iterable[Any]] | None = None,
    ) -> "Study":
        """Return the study with other trials, seed, panels or values, fully validated.

        Parameters
        ----------
        trials : int, optional
            Trials of every cell, for the panels that have trials.
        seed : int, optional
            Seed of all streams, >= 0.
        panels : iterable of str
            The panels to keep. If empty, those on demand that alone have a factor among `values`, or else all that are
            not on demand.
        values : mapping of str to iterable
            New values of factors, outputs, constants or the list of methods, in each kept panel that has the name.

        Raises
        ------
        ValueError
            For an unknown name or a value that is not allowed, before anything is computed or written.
        """
        trials = None if trials is None else require_integer("trials", trials, 1, MAX_TRIALS)
        seed = None if seed is None else require_integer("seed", seed, 0, 2**63 - 1)
        kept = self._select([self.panel(name).name for name in _several(panels)] or self._on_demand_for(values or {}))
        for name, new in (values or {}).items():
            names = sorted({known for panel in kept for known in panel.settable()})
            if name not in names:
                self._refuse_of_panel_on_demand(name, [panel.name for panel in kept])
                raise BadInputError(unknown("factor", name, names))
            new = _several(new)
            kept = tuple(panel.with_values(name, new) if name in panel.settable() else panel for panel in kept)
        if trials is not None:
            kept = tuple(replace(panel, trials=trials) if panel.trials is not None else panel for panel in kept)
        study = replace(self, panels=kept, seed=self.seed if seed is None else seed)
        for panel in study.panels:
            _check_size(panel)
            panel.check()
        return study

    def extended(
        self, declared: "Study", trials: int | None, values: Mapping[str, Iterable[Any]], panels: Collection[str] = ()
    ) -> "Study":
        """Return the study with more trials, and with values added behind those that its factors and methods have.

        Parameters
        ----------
        declared : Study
            The study as its code declares it, which has all methods.
        trials, values
            See `configure`; values that are there already are kept in their place.
        panels : collection of str
            The panels to extend; all that have what is given by default.

        Raises
        ------
        BadInputError
            For fewer trials, an unknown name, or values of what one call computes and one chunk holds.
        """
        trials = None if trials is None else require_integer("trials", trials, 1, MAX_TRIALS)
        chosen = [self.panel(name).name for name in panels] or [panel.name for panel in self.panels]
        known = {name for panel in self.panels if panel.name in chosen for name in panel.settable()}
        for name in values:
            if name not in known:
                raise BadInputError(unknown("factor", name, sorted(known)))
        kept = []
        for panel in self.panels:
            larger = panel
            if panel.name in chosen:
                for name, new in values.items():
                    larger = larger.with_more(name, _several(new), declared.panel(panel.name))
                if trials is not None and panel.trials is not None:
                    if trials < panel.trials:
                        raise BadInputError(
                            f"panel {panel.name} has {panel.trials} trials, and can only grow; got trials {trials}"
                        )
                    larger = replace(larger, trials=trials)
                _check_size(larger)
                larger.check()
            kept.append(larger)
        return replace(self, panels=tuple(kept))

    def _select(self, names: Collection[str]) -> tuple[Panel, ...]:
        """Return the panels that are wanted, none of them on demand any more; by default, those that never were."""
        if names:
            return tuple(replace(panel, on_demand=False) for panel in self.panels if panel.name in names)
        kept = tuple(panel for panel in self.panels if not panel.on_demand)
        if not kept:
            names = ", ".join(panel.name for panel in self.panels)
            raise BadInputError(f"study {self.name} computes its panels on demand only; name one with --panel: {names}")
        return kept

    def _on_demand_for(self, values: Collection[str]) -> list[str]:
        """Name the panels on demand that values were given for, by factors that no other panel has."""
        others = {name for panel in self.panels if not panel.on_demand for name in panel.settable()}
        own = set(values) - others
        return [panel.name for panel in self.panels if panel.on_demand and own & set(panel.settable())]

    def _refuse_of_panel_on_demand(self, name: str, kept: Collection[str]) -> None:
        """Say which panel has a factor, if it is one that was not asked for."""
        for panel in self.panels:
            if panel.on_demand and panel.name not in kept and name in panel.settable():
                raise BadInputError(
                    f"{name} belongs to panel {panel.name}, which is computed on demand only; add --panel {panel.name}"
                )

    def spec(self) -> dict[str, Any]:
        """Return all that decides the numbers and their layout, as plain JSON values.

        The integer versions of study, panels and methods stand for their code. The version of the package is not in it:
        a release that changes no number goes on with the stores of the release before.
        """
        return {
            "study": self.name,
            "version": self.version,
            "seed": self.seed,
            "panels": {panel.name: panel.spec() for panel in self.panels},
        }

    def from_spec(self, spec: Mapping[str, Any]) -> "Study":
        """Return this study as a stored spec configured it; ValueError names what the code has no longer."""
        panels = []
        for name, stored in spec["panels"].items():
            panel = replace(self.panel(name), on_demand=False)  # it was asked for
            for role in ("factors", "method_factors", "outputs", "constants"):
                for axis, values in stored[role].items():
                    if axis not in panel.settable():
                        raise BadInputError(unknown(f"factor of panel {name}", axis, panel.settable()))
                    values = [tuple(value) if isinstance(value, list) else value for value in values]
                    panel = panel.with_values(axis, values)
            if panel.method_dim is not None:
                panel = panel.with_values(panel.method_dim, stored["method_order"])
            panels.append(replace(panel, trials=stored["trials"]))
        return replace(self, panels=tuple(panels), seed=spec["seed"])


def differences(stored: Any, current: Any, path: str = "") -> list[str]:
    """List where two specs differ, as ``path: stored X, now Y``.

    Examples
    --------
    >>> differences({"seed": 1, "panels": {"k2": {"trials": 10}}}, {"seed": 2, "panels": {}})
    ['panels.k2: stored, now absent', 'seed: stored 1, now 2']
    """
    if isinstance(stored, Mapping) and isinstance(current, Mapping):
        found = []
        for key in sorted({*stored, *current}):
            where = f"{path}.{key}" if path else key
            if key not in current:
                found.append(f"{where}: stored, now absent")
            elif key not in stored:
                found.append(f"{where}: not stored, now present")
            else:
                found += differences(stored[key], current[key], where)
        return found
    return [] if stored == current else [f"{path}: stored {stored}, now {current}"]


def _check_size(panel: Panel) -> None:
    """Refuse a panel with more blocks than a store can hold; counted without listing its cells."""
    n_settings = math.prod(len(axis.values) for axis in (*panel.factors, *panel.method_axes))
    n_blocks = n_settings * -(-panel.n_trials // panel.block_trials)
    if n_blocks > MAX_BLOCKS:
        raise BadInputError(
            f"panel {panel.name} must have at most {MAX_BLOCKS:,} blocks, got {n_blocks:,}: {n_settings:,} cells and "
            f"settings with {panel.n_trials:,} trials in blocks of {panel.block_trials:,}; choose fewer of them"
        )


def _several(values: Any) -> tuple[Any, ...]:
    """Return values as a tuple; one text or number is one value."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else (values,)

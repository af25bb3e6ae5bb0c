"""How a simulation study is declared: a Study of Panels, after the ADEMP frame (Morris, White & Crowther 2019).

A Panel becomes one group of a store, one plain `xarray.Dataset`. Its *cells* are the combinations of its data factors,
its *settings* the methods, each with the values of the method factors it uses. What a trial is, is a matter of values
alone; how trials are divided into blocks and tasks is `pipeline.plan`'s and `pipeline.execute`'s.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from itertools import product
from typing import Any, Literal

from pipeline.errors import BadInputError, unknown
from pipeline.factors import Factor, Measure, Method, Value, format_value
from pipeline.streams import Streams

Cell = Mapping[str, Value]
Verdict = Literal["reproduced", "not reproduced", "corrected", "undecided"]


@dataclass(frozen=True)
class Setting:
    """A method with the values of the method factors that it uses."""

    method: Method
    values: Mapping[str, Value]

    @property
    def label(self) -> str:
        """The method's name, with its factor values where it has any."""
        values = ", ".join(f"{name}={format_value(value)}" for name, value in self.values.items())
        return f"{self.method.name}({values})" if values else self.method.name


def evaluate_each(
    data: Any, settings: Sequence[tuple[Method, Mapping[str, Value]]], streams: Sequence[Streams]
) -> list[dict[str, Any]]:
    """Evaluate the settings one after the other: the default of `Panel.evaluate`."""
    return [method.evaluate(data, values, its) for (method, values), its in zip(settings, streams, strict=True)]


def _accept(cell: Cell, setting: Mapping[str, Value]) -> bool:
    """Accept every setting in every cell."""
    return True


@dataclass(frozen=True)
class Panel:
    """One experiment of a study: simulated data, the methods compared on them, and what is measured.

    Attributes
    ----------
    name, meaning : str
        Group name in the store, and what the experiment is.
    simulate : callable
        ``(cell, streams) -> data``; all that the methods share. `cell` maps data factors and constants to their value,
        and each output to the tuple of its values; so does the `setting` of a method, with method factors.
    methods : tuple of Method
        What is compared.
    measures : tuple of Measure
        What each method returns.
    factors, method_factors, outputs, constants : tuple of Factor
        What changes the data; what changes a method; the axes of one result; values that stay fixed, stored as scalar
        coordinates.
    method_dim : str
        Name of the dimension along which the methods lie.
    trials : int or None
        Replicates of every cell; None for a deterministic panel, which has no trial dimension.
    block_trials : int
        Trials computed by one call and stored in one chunk. Part of the layout: never derived from the machine.
    version : int
        Raised whenever the numbers that `simulate` returns change.
    validate : callable
        ``(cell, setting) -> bool``: raises ValueError for values out of their domain, returns False for a setting that
        makes no sense in the cell (status 5). Called for all of them before anything is written. `setting` maps the
        method's factors, the constants and the panel's `method_dim`.
    evaluate : callable
        Evaluates several settings on the same data; override it to batch them.
    """

    name: str
    meaning: str
    simulate: Callable[[Cell, Streams], Any] = field(repr=False)
    methods: tuple[Method, ...]
    measures: tuple[Measure, ...]
    factors: tuple[Factor, ...] = ()
    method_factors: tuple[Factor, ...] = ()
    outputs: tuple[Factor, ...] = ()
    constants: tuple[Factor, ...] = ()
    method_dim: str = "method"
    trials: int | None = None
    block_trials: int = 1
    version: int = 1
    validate: Callable[[Cell, Mapping[str, Value]], bool] = field(default=_accept, repr=False)
    evaluate: Callable[[Any, Sequence[tuple[Method, Mapping[str, Value]]], Sequence[Streams]], list[dict[str, Any]]] = (
        field(default=evaluate_each, repr=False)
    )

    def __post_init__(self) -> None:
        axes = [f.name for f in (*self.factors, *self.method_factors, *self.outputs, *self.constants)]
        names = [*axes, self.method_dim, "trial", "status", "error", *(m.name for m in self.measures)]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise BadInputError(f"panel {self.name} must name each thing once, got twice: {', '.join(twice)}")
        methods = [method.name for method in self.methods]
        if len(set(methods)) < len(methods):
            raise BadInputError(f"panel {self.name} must name each method once, got {', '.join(methods)}")
        if "data" in methods:
            raise BadInputError(f"panel {self.name} has a method 'data', whose streams would be the data's; rename it")
        for what, given, known in (
            ("method factor", [name for m in self.methods for name in m.uses], self.method_factors),
            ("output", [name for m in self.measures for name in m.dims], self.outputs),
        ):
            for name in given:
                if name not in [axis.name for axis in known]:
                    raise BadInputError(f"panel {self.name}: {unknown(what, name, [axis.name for axis in known])}")
        if self.trials is not None and self.trials < 1:
            raise BadInputError(f"trials must be >= 1, got {self.trials}")
        if self.block_trials < 1:
            raise BadInputError(f"block_trials must be >= 1, got {self.block_trials}")

    @property
    def fixed_values(self) -> dict[str, Any]:
        """What every cell and setting is given beside its own values: constants, and each output axis as a tuple."""
        return {c.name: c.value for c in self.constants} | {axis.name: axis.values for axis in self.outputs}

    @property
    def n_trials(self) -> int:
        """Trials of a cell; a deterministic panel counts as one."""
        return 1 if self.trials is None else self.trials

    def cells(self) -> list[dict[str, Value]]:
        """Return the combinations of the data factors, the last factor fastest."""
        return self._cells

    def settings(self) -> list[Setting]:
        """Return every method with every combination of the method factors that it uses."""
        return self._settings

    @cached_property  # blocks look their cell up here, and there may be as many cells as blocks
    def _cells(self) -> list[dict[str, Value]]:
        names = [factor.name for factor in self.factors]
        return [dict(zip(names, values, strict=True)) for values in product(*(f.values for f in self.factors))]

    @cached_property
    def _settings(self) -> list[Setting]:
        by_name = {factor.name: factor for factor in self.method_factors}
        return [
            Setting(method, dict(zip(method.uses, values, strict=True)))
            for method in self.methods
            for values in product(*(by_name[name].values for name in method.uses))
        ]

    def settable(self) -> dict[str, Factor]:
        """Return all that ``--set`` can change: factors, outputs, constants, and the list of methods."""
        axes = (*self.factors, *self.method_factors, *self.outputs, *self.constants)
        methods = Factor(self.method_dim, tuple(m.name for m in self.methods), "methods compared", "str")
        return {axis.name: axis for axis in (*axes, methods)}

    def with_values(self, name: str, values: Iterable[Any]) -> "Panel":
        """Return the panel with other values of a factor, output, constant, or another list of methods."""
        values = tuple(values)
        if name == self.method_dim:
            by_name = {method.name: method for method in self.methods}
            for value in values:
                if value not in by_name:
                    raise BadInputError(unknown(f"{self.method_dim} of panel {self.name}", str(value), by_name))
            Factor(name, values, "", "str")  # refuses an empty list and a name given twice
            return replace(self, methods=tuple(by_name[value] for value in values))
        changed: dict[str, Any] = {}
        for role in ("factors", "method_factors", "outputs", "constants"):
            axes = getattr(self, role)
            if any(axis.name == name for axis in axes):
                if role == "constants" and len(values) != 1:
                    raise BadInputError(f"{name} is one value in panel {self.name}, got {len(values)}; give one")
                changed[role] = tuple(axis.with_values(values) if axis.name == name else axis for axis in axes)
        return replace(self, **changed)

    def check(self) -> None:
        """Validate every setting in every cell; the ValueError of the first bad one names panel and cell."""
        for cell in self.cells():
            for setting in self.settings():
                self.applies(cell, setting)

    def applies(self, cell: Cell, setting: Setting) -> bool:
        """Whether a setting makes sense in a cell; ValueError if its values are out of their domain."""
        fixed = self.fixed_values
        try:
            return self.validate({**fixed, **cell}, {**fixed, **setting.values, self.method_dim: setting.method.name})
        except ValueError as error:
            where = ", ".join(f"{name}={format_value(value)}" for name, value in cell.items())
            raise BadInputError(f"panel {self.name}{', ' + where if where else ''}: {error}") from error

    def spec(self) -> dict[str, Any]:
        """Return all that decides the numbers and their layout, as plain JSON values."""
        roles = ("factors", "method_factors", "outputs", "constants")
        return {
            "trials": self.trials,
            "block_trials": self.block_trials,
            "version": self.version,
            "methods": {method.name: {"version": method.version, "uses": list(method.uses)} for method in self.methods},
            "method_order": [method.name for method in self.methods],
            "dims": [*(f.name for f in (*self.factors, *self.method_factors)), self.method_dim],
            **{role: {f.name: [_plain(value) for value in f.values] for f in getattr(self, role)} for role in roles},
            "measures": {m.name: {"dims": list(m.dims), "dtype": m.dtype} for m in self.measures},
        }


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


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
    """

    name: str
    statement: str
    source: str
    needs: Mapping[str, Mapping[str, tuple[Value, ...]]]
    check: Callable[[Mapping[str, Any]], Finding] = field(repr=False)


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
        if len(set(names)) < len(names):
            raise BadInputError(f"study {self.name} must name each panel once, got {', '.join(names)}")

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
            The panels to keep; all if empty.
        values : mapping of str to iterable
            New values of factors, outputs, constants or the list of methods, in each kept panel that has the name.

        Raises
        ------
        ValueError
            For an unknown name or a value that is not allowed, before anything is computed or written.
        """
        if trials is not None and trials < 1:
            raise BadInputError(f"trials must be >= 1, got {trials}")
        if seed is not None and seed < 0:
            raise BadInputError(f"seed must be >= 0, got {seed}")
        wanted = [self.panel(name).name for name in panels]
        kept = tuple(panel for panel in self.panels if not wanted or panel.name in wanted)
        for name, new in (values or {}).items():
            names = sorted({known for panel in kept for known in panel.settable()})
            if name not in names:
                raise BadInputError(unknown("factor", name, names))
            new = tuple(new)
            kept = tuple(panel.with_values(name, new) if name in panel.settable() else panel for panel in kept)
        if trials is not None:
            kept = tuple(replace(panel, trials=trials) if panel.trials is not None else panel for panel in kept)
        study = replace(self, panels=kept, seed=self.seed if seed is None else seed)
        for panel in study.panels:
            panel.check()
        return study

    def spec(self) -> dict[str, Any]:
        """Return all that decides the numbers and their layout, as plain JSON values."""
        return {
            "dpstudies": version("dpstudies"),
            "study": self.name,
            "version": self.version,
            "seed": self.seed,
            "panels": {panel.name: panel.spec() for panel in self.panels},
        }

    def from_spec(self, spec: Mapping[str, Any]) -> "Study":
        """Return this study as a stored spec configured it; ValueError names what the code has no longer."""
        panels = []
        for name, stored in spec["panels"].items():
            panel = self.panel(name)
            for role in ("factors", "method_factors", "outputs", "constants"):
                for axis, values in stored[role].items():
                    if axis not in panel.settable():
                        raise BadInputError(unknown(f"factor of panel {name}", axis, panel.settable()))
                    values = [tuple(value) if isinstance(value, list) else value for value in values]
                    panel = panel.with_values(axis, values)
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

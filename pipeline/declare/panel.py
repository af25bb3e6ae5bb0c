"""Declaration of an experiment: a Panel, its cells and its settings.

A Panel is stored as one group of a store, which opens as an `xarray.Dataset`. Its *cells* are the combinations of its
data factor values. Its *settings* are the methods, each with values of the method factors that it uses.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Protocol

import numpy as np

from pipeline.declare.contents import copy_for_method
from pipeline.declare.factors import (
    ENDS,
    N_VALUES,
    STANDARD_STATISTICS,
    Factor,
    Measure,
    Method,
    Statistic,
    Value,
    format_values,
    require_callable,
    require_integer,
    require_name,
    require_types,
)
from pipeline.declare.streams import Streams
from pipeline.errors import BadInputError, require_known
from pipeline.redact import format_error

Cell = Mapping[str, Value]
MAX_TRIALS = 10**9
MAX_BLOCKS = 10**7
"""Maximum number of blocks of a panel over all settings; a block takes one file per variable and one byte of memory."""
MAX_BLOCK_BYTES = 2**29
_STATUS_BYTES = 32  # status, and text without an error
SEL_PARAMETERS = frozenset({"self", "indexers", "method", "tolerance", "drop"})
"""Parameters of `xarray.Dataset.sel`, which would not select along a dimension of the same name."""
_COLUMNS = frozenset({"panel", "measure"})  # of exported tables
_COUNTS = ("n_ok", "n_failed", "n_pending", "n_asked", "stopped")  # variables of summaries and of opened stores


def require_block_size(panel: str, block_trials: int, measures: Iterable[Measure], sizes: Mapping[str, int]) -> None:
    """Raise BadInputError if the arrays of one block and setting take more memory than `MAX_BLOCK_BYTES`."""
    n_bytes = _bytes_of_trial(measures, sizes)
    if (total := block_trials * n_bytes) > MAX_BLOCK_BYTES:
        raise BadInputError(
            f"a block of panel {panel} must take at most {MAX_BLOCK_BYTES:,} bytes per method, got {total:,} for "
            f"block_trials = {block_trials:,} trials with {n_bytes - _STATUS_BYTES:,} bytes of measures each; choose "
            "fewer"
        )


def _bytes_of_trial(measures: Iterable[Measure], sizes: Mapping[str, int]) -> int:
    """Return the bytes that the arrays of one trial and setting take, given the lengths of the outputs."""
    n_bytes = (np.dtype(measure.dtype).itemsize * math.prod(sizes[dim] for dim in measure.dims) for measure in measures)
    return _STATUS_BYTES + sum(n_bytes)


@dataclass(frozen=True)
class Setting:
    """Method with values of the method factors that it uses."""

    method: Method
    values: Mapping[str, Value]

    @property
    def label(self) -> str:
        """Name of the method, with its factor values if it has any."""
        return f"{self.method.name}({', '.join(format_values(self.values))})" if self.values else self.method.name

    def coordinates(self, method_dim: str | None) -> dict[str, Value]:
        """Return the coordinates of the setting along the method axes."""
        return {**self.values, **({} if method_dim is None else {method_dim: self.method.name})}


class AddedMethod(Protocol):
    """Method of a user that `Study.with_methods` adds to panels; kinds are declared by studies."""

    @property
    def name(self) -> str:
        """Label in the store, and role of its random streams."""

    @property
    def kind(self) -> str:
        """Key of `Panel.accepts`."""


def evaluate_each(
    data: Any, settings: Sequence[tuple[Method, Mapping[str, Value]]], streams: Sequence[Streams]
) -> list[dict[str, Any]]:
    """Evaluate the settings one after the other (default of `Panel.evaluate`), each on data of its own."""
    results = []
    for (method, values), streams_of_method in zip(settings, streams, strict=True):
        with np.errstate():  # a method that sets it affects no other
            results.append(method.evaluate(copy_for_method(data), values, streams_of_method))
    return results


def _accept(cell: Cell, setting: Mapping[str, Value]) -> bool:
    """Accept each setting in each cell (default of `Panel.validate`)."""
    return True


@dataclass(frozen=True)
class Panel:
    """Experiment of a study: simulated data, the methods compared on them, and their measures.

    Attributes
    ----------
    name, meaning : str
        Group name in the store, and a description of the experiment.
    simulate : callable
        ``(cell, streams) -> data``; the data are shared by all methods. `cell` maps data factors and constants to
        their values, and each output to the tuple of its values. The `setting` that a method receives maps the method
        factors, constants and outputs in the same way. Arrays in the data are made read-only, including those in nested
        mappings, tuples, lists, dataclasses and arrays of objects; a method that modifies them must copy them. Every
        method has copies of everything else, such as dictionaries and data frames.
    methods, measures, statistics : tuple
        Methods to compare, quantities that each returns, and statistics of summaries besides means and quantiles.
    factors, method_factors, outputs, constants : tuple of Factor
        Factors of the data; factors of the methods; axes of a result; fixed values, stored as scalar coordinates.
    method_dim : str or None
        Name of the dimension of the methods; None if there is only one method.
    trials : int or None
        Replicates per cell; None for a deterministic panel, which has no trial dimension.
    block_trials : int
        Number of trials computed by one call and stored in one chunk, which does not depend on the machine.
    version : int
        Version, increased whenever the numbers returned by `simulate` change.
    on_demand : bool
        True for a panel that requires input from the user, such as a file. It is computed only if the user names it or
        sets a factor that no other panel has; `Study.configure` then sets `on_demand` to False. Not part of the spec.
    settings_apart : bool
        True if a single setting takes seconds: each setting is then computed and committed separately, and the data are
        simulated again for each setting. Not part of the spec.
    validate : callable
        ``(cell, setting) -> bool``: raises ValueError for values out of their domain, and returns False if a setting
        does not apply to a cell (status 5). It is called for all cells and settings before anything is written.
        `setting` maps the factors of the method, the constants and, if present, `method_dim` to their values.
    evaluate : callable
        Function that evaluates several settings on the same data, by default one after the other.
    accepts : mapping of str to callable
        Kind of method of a user -> function that takes such a method and returns the `Method` of the panel. Not part
        of the spec.
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
    method_dim: str | None = "algorithm"
    trials: int | None = None
    block_trials: int = 1
    version: int = 1
    on_demand: bool = False
    settings_apart: bool = False
    statistics: tuple[Statistic, ...] = ()
    validate: Callable[[Cell, Mapping[str, Value]], bool] = field(default=_accept, repr=False)
    evaluate: Callable[[Any, Sequence[tuple[Method, Mapping[str, Value]]], Sequence[Streams]], list[dict[str, Any]]] = (
        field(default=evaluate_each, repr=False)
    )
    accepts: Mapping[str, Callable[[Any], Method]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        require_name("the name of a panel", self.name)
        require_types(self, meaning=str, version=int, methods=[Method], measures=[Measure], statistics=[Statistic])
        require_types(self, factors=[Factor], method_factors=[Factor], outputs=[Factor], constants=[Factor])
        if self.method_dim is not None:
            require_name(f"method_dim of panel {self.name}", self.method_dim)
        _require_names(self)
        for name in ("simulate", "validate", "evaluate"):
            require_callable(f"{name} of panel {self.name}", getattr(self, name))
        for method in self.methods if self.evaluate is evaluate_each else ():
            require_callable(f"evaluate of method {method.name}", method.evaluate)
        _require_constants(self)
        _require_statistics(self)
        _require_summary_names(self)
        _require_methods(self)
        _require_declared(self, "method factor", [f for m in self.methods for f in m.uses], self.method_factors)
        _require_declared(self, "output", [dim for m in self.measures for dim in m.dims], self.outputs)
        for name in ("trials", "block_trials"):
            if getattr(self, name) is not None or name == "block_trials":
                object.__setattr__(self, name, require_integer(name, getattr(self, name), 1, MAX_TRIALS))
        require_block_size(self.name, self.block_trials, self.measures, self._output_sizes)

    @property
    def _output_sizes(self) -> dict[str, int]:
        return {axis.name: len(axis.values) for axis in self.outputs}

    @property
    def fixed_values(self) -> dict[str, Any]:
        """Values passed to every cell and setting: constants, and each output axis as a tuple."""
        return {c.name: c.value for c in self.constants} | {axis.name: axis.values for axis in self.outputs}

    @cached_property  # called several times per block
    def method_axes(self) -> tuple[Factor, ...]:
        """Axes of the settings in the store: the method factors, then the methods."""
        if self.method_dim is None:
            return self.method_factors
        methods = Factor(self.method_dim, tuple(m.name for m in self.methods), "methods compared", "str")
        return (*self.method_factors, methods)

    @property
    def events(self) -> tuple[str, ...]:
        """Names of the measures that are 0 or 1."""
        return tuple(measure.name for measure in self.measures if measure.is_event)

    @property
    def n_trials(self) -> int:
        """Number of trials per cell, 1 for a deterministic panel."""
        return 1 if self.trials is None else self.trials

    def count_positions(self, setting: Setting) -> int:
        """Return the number of array positions of a cell at which a setting is stored."""
        unused = (axis for axis in self.method_factors if axis.name not in setting.values)
        return math.prod(len(axis.values) for axis in unused)

    @property
    def n_blocks(self) -> int:
        """Number of blocks per cell."""
        return -(-self.n_trials // self.block_trials)

    @property
    def most_block_trials(self) -> int:
        """Largest number of trials per block that `require_block_size` accepts."""
        return MAX_BLOCK_BYTES // _bytes_of_trial(self.measures, self._output_sizes)

    @cached_property
    def variables(self) -> dict[str, tuple[bool, int]]:
        """Stored variable -> True if it has a value per trial, and its number of output dimensions."""
        return {"status": (True, 0), "error": (True, 0)} | {m.name: (m.per_trial, len(m.dims)) for m in self.measures}

    def keyed(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return factor values by the names that identify the factors in the keys of random streams."""
        keys = {f.name: f.stream_key or f.name for f in (*self.factors, *self.method_factors)}
        return {keys[name]: value for name, value in values.items()}

    def cells(self) -> list[dict[str, Value]]:
        """Return the combinations of the data factors, with the last factor varying fastest."""
        return self._cells

    def settings(self) -> list[Setting]:
        """Return every method with every combination of values of the method factors that it uses."""
        return self._settings

    @cached_property  # cached, because it is needed once per block
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
        """Return the axes that ``--set`` can change: factors, outputs, constants, and the list of methods."""
        return {axis.name: axis for axis in (*self.factors, *self.method_axes, *self.outputs, *self.constants)}

    def choices(self, name: str) -> tuple[str, ...]:
        """Return the methods, or the categories of a factor, that ``--set`` chooses from; empty without such a list."""
        if name == self.method_dim:
            return tuple(method.name for method in self.methods)
        axis = self.settable().get(name)
        return () if axis is None else axis.categories or ()

    def with_values(self, name: str, values: Iterable[Any]) -> "Panel":
        """Return the panel with new values of a factor, output or constant, or a new list of methods."""
        try:
            return self._with_values(name, tuple(values))
        except BadInputError as error:
            raise BadInputError(f"panel {self.name}: {error}") from error

    def _with_values(self, name: str, values: tuple[Any, ...]) -> "Panel":
        if name == self.method_dim:
            by_name = {method.name: method for method in self.methods}
            require_known(self.method_dim, values, by_name)
            Factor(name, values, "", "str")  # raises an error for an empty list or duplicate names
            return replace(self, methods=tuple(by_name[value] for value in values))
        changed: dict[str, Any] = {}
        for role in ("factors", "method_factors", "outputs", "constants"):
            axes = getattr(self, role)
            if any(axis.name == name for axis in axes):
                if role == "constants" and len(values) != 1:
                    raise BadInputError(f"{name} must have one value, got {len(values)}")
                changed[role] = tuple(axis.with_values(values) if axis.name == name else axis for axis in axes)
        return replace(self, **changed)

    def with_method(self, added: AddedMethod, code: str = "") -> "Panel":
        """Return the panel with a method of a user, of a kind that it accepts."""
        method = replace(self.accepts[added.kind](added), is_added=True, code=code)
        return replace(self, methods=(*self.methods, method))

    def with_codes(self, codes: Mapping[str, str]) -> "Panel":
        """Return the panel with other hashes of the code of methods, by name."""
        methods = (replace(method, code=codes.get(method.name, method.code)) for method in self.methods)
        return replace(self, methods=tuple(methods)) if codes else self

    def with_more(self, name: str, values: tuple[Any, ...], declared: "Panel") -> "Panel":
        """Return the panel with further values of a factor, or methods of the declared panel, if it has the name."""
        grid = {axis.name: axis for axis in (*self.factors, *self.method_axes)}
        if name not in grid:
            if name in self.settable():
                raise BadInputError(
                    f"panel {self.name}: {name} cannot be extended, since one call computes all its values; only "
                    f"factors and the list of methods can ({', '.join(grid) or 'none here'}): choose another --store"
                )
            return self
        base = replace(self, methods=declared.methods) if name == self.method_dim else self
        there, new = grid[name].values, base.with_values(name, values).settable()[name].values
        return base.with_values(name, (*there, *(value for value in new if value not in there)))

    def check(self) -> None:
        """Raise BadInputError for too many blocks, or for a setting that is invalid in a cell, with the first one."""
        n_settings = math.prod(len(axis.values) for axis in (*self.factors, *self.method_axes))
        n_blocks = n_settings * self.n_blocks
        if n_blocks > MAX_BLOCKS:
            raise BadInputError(
                f"panel {self.name} must have at most {MAX_BLOCKS:,} blocks, got {n_blocks:,}: {n_settings:,} cells "
                f"and settings with {self.n_trials:,} trials in blocks of {self.block_trials:,}; choose fewer values "
                "or trials"
            )
        self.applicable  # noqa: B018 - raises for an invalid value

    @cached_property
    def applicable(self) -> np.ndarray:
        """Mask of the settings that apply to each cell, shape (cell, setting)."""
        applies = [[self.applies(cell, setting) for setting in self.settings()] for cell in self.cells()]
        return np.array(applies, bool)

    def applies(self, cell: Cell, setting: Setting) -> bool:
        """Return True if a setting applies to a cell; raise BadInputError for values out of their domain."""
        return self._ask(cell, setting, self.validate) and self.supports(cell, setting)

    def supports(self, cell: Cell, setting: Setting) -> bool:
        """Return True if the method of a setting supports a cell, whose values need not be in their domain."""
        return setting.method.supports is None or self._ask(cell, setting, setting.method.supports)

    def _ask(self, cell: Cell, setting: Setting, function: Callable[..., bool]) -> bool:
        fixed, name = self.fixed_values, getattr(function, "__qualname__", "a function")

        def refusal(problem: object) -> BadInputError:
            return BadInputError(f"{', '.join([f'panel {self.name}', *format_values(cell)])}: {problem}")

        try:
            answer = function({**fixed, **cell}, {**fixed, **setting.coordinates(self.method_dim)})
        except ValueError as error:
            raise refusal(error) from error
        except Exception as error:
            raise refusal(f"{name} raised {format_error(error)}; correct it") from error
        if answer is None:
            raise refusal(f"{name} must return True or False, got None; add a return")
        return bool(answer)

    def describe(self, cell: int, settings: Sequence[int]) -> str:
        """Return panel, cell and settings, by their indices, as a phrase."""
        labels = " - ".join(self.settings()[k].label for k in settings)
        return ", ".join([self.name, *format_values(self.cells()[cell]), labels])

    def spec(self) -> dict[str, Any]:
        """Return the specification of the numbers and their layout, as JSON values."""
        roles = ("factors", "method_factors", "outputs", "constants")
        return {
            "trials": self.trials,
            "block_trials": self.block_trials,
            "version": self.version,
            "methods": {
                method.name: {"version": method.version, "uses": list(method.uses)}
                | ({"unseeded": True} if method.unseeded else {})
                | ({"code": method.code} if method.code else {})
                for method in self.methods
            },
            "method_order": [method.name for method in self.methods],
            "dims": [axis.name for axis in (*self.factors, *self.method_axes)],
            "stream_keys": {
                **{f.name: f.stream_key for f in (*self.factors, *self.method_factors) if f.stream_key},
                **{m.name: m.stream_key for m in self.methods if m.stream_key},
            },
            **{
                role: {f.name: [list(v) if isinstance(v, tuple) else v for v in f.values] for f in getattr(self, role)}
                for role in roles
            },
            "measures": {m.name: {"dims": list(m.dims), "dtype": m.dtype} for m in self.measures},
        }


def _require_names(panel: Panel) -> None:
    """Raise BadInputError for names of dimensions and variables that occur twice or that xarray's ``sel`` reserves."""
    axes = [axis.name for axis in _axes(panel)]
    methods_axis = [] if panel.method_dim is None else [panel.method_dim]
    names = [*axes, *methods_axis, "trial", "status", "error", *(m.name for m in panel.measures)]
    if len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise BadInputError(
            f"names must be unique within panel {panel.name} and not trial, status or error, got duplicates: "
            f"{', '.join(repeated)}"
        )
    for name in (*axes, *methods_axis):
        if name in SEL_PARAMETERS:
            raise BadInputError(
                f"panel {panel.name} must not name a factor or dimension {name!r}, a parameter of xarray's sel; "
                "rename it"
            )


def _axes(panel: Panel) -> tuple[Factor, ...]:
    """Return the factors, outputs and constants of a panel."""
    return (*panel.factors, *panel.method_factors, *panel.outputs, *panel.constants)


def _require_constants(panel: Panel) -> None:
    """Raise BadInputError for a constant without exactly one value."""
    for constant in panel.constants:
        if (n := len(constant.values)) != 1:
            raise BadInputError(f"constant {constant.name} of panel {panel.name} must have one value, got {n}")


def _require_statistics(panel: Panel) -> None:
    """Raise BadInputError for a statistic of anything but a measure with one value per trial."""
    per_trial = [measure.name for measure in panel.measures if measure.per_trial]
    for statistic in panel.statistics:
        if statistic.measure not in per_trial:
            raise BadInputError(
                f"statistic {statistic.name} of panel {panel.name} must use a per-trial measure, got "
                f"{statistic.measure!r}; allowed: {', '.join(per_trial)}"
            )


def _require_summary_names(panel: Panel) -> None:
    """Raise BadInputError if two variables of a summary had one name."""
    summarised = Counter(_summary_names(panel))
    summarised.update(measure.name for measure in panel.measures if not measure.per_trial)
    if repeated := [name for name, count in summarised.items() if count > 1]:
        raise BadInputError(
            f"variables in summaries of panel {panel.name} must have distinct names, got {', '.join(repeated)} twice; "
            "rename the statistic or measure"
        )


def _summary_names(panel: Panel) -> list[str]:
    """Return the names of the variables that a summary has for the statistics and for the measures per trial."""
    names = [f"{statistic.measure}_{statistic.name}" for statistic in panel.statistics]
    for measure in panel.measures:
        if measure.per_trial:
            standard = (*STANDARD_STATISTICS, N_VALUES, *(ENDS if measure.is_event else ()))
            names += [f"{measure.name}_{name}" for name in standard]
    return names


def refuse_confused_names(panel: Panel) -> None:
    """Raise BadInputError for names that readers would confuse, in a panel of a new store; older stores may have them.

    They are those of measures and axes that variables of summaries or columns of exported tables have, and those of
    axes of statistics that other axes have.
    """
    axes = [axis.name for axis in _axes(panel)]
    taken = {*_summary_names(panel), *_COUNTS}
    confused = [name for name in (*(measure.name for measure in panel.measures), *axes) if name in taken]
    confused += [name for name in axes if name in _COLUMNS]
    values = {axis.name: axis.values for axis in panel.outputs}
    for statistic in panel.statistics:
        dims = next(measure.dims for measure in panel.measures if measure.name == statistic.measure)
        others = [*dims, "trial", *(axis.name for axis in _axes(panel) if axis not in panel.outputs)]
        axis = statistic.axis
        if axis and (axis.name in others or values.setdefault(axis.name, axis.values) != axis.values):
            confused.append(axis.name)
    if confused:
        raise BadInputError(
            f"panel {panel.name} must not name a measure, factor or axis {confused[0]!r}, which is also a variable of "
            "its summaries, a column of exported tables or another axis; rename it"
        )


def _require_methods(panel: Panel) -> None:
    """Raise BadInputError for missing methods, and for names and stream keys that are not distinct or reserved."""
    methods = [method.name for method in panel.methods]
    if not methods:
        raise BadInputError(f"panel {panel.name} must have at least one method, got none")
    keys = [f.stream_key or f.name for f in (*panel.factors, *panel.method_factors)]
    roles = [method.stream_key or method.name for method in panel.methods]
    for requirement, names in (
        ("methods with distinct names", methods),
        ("factors with distinct stream keys", keys),
        ("methods with distinct stream keys", roles),
    ):
        if len(set(names)) < len(names):
            raise BadInputError(f"panel {panel.name} must have {requirement}, got {', '.join(names)}")
    if panel.method_dim is None and len(methods) > 1:
        raise BadInputError(
            f"panel {panel.name} must have one method where method_dim is None, got {', '.join(methods)}"
        )
    if "data" in roles:
        raise BadInputError(
            f"a method of panel {panel.name} must not be named 'data', the role of the simulation; rename it"
        )


def _require_declared(panel: Panel, kind: str, used: Sequence[str], declared: Sequence[Factor]) -> None:
    """Raise BadInputError for the use of a factor or an output that the panel does not declare."""
    require_known(kind, used, [axis.name for axis in declared], f"panel {panel.name}: ")

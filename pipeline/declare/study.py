"""Declaration of a simulation study by the ADEMP framework (Morris, White & Crowther 2019): panels, claims, figures.

A trial is defined by values alone. `pipeline.blocks` and `pipeline.execution` divide trials into blocks and tasks.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice, product, zip_longest
from typing import Any

import cloudpickle

from pipeline.declare.claims import Claim, Erratum
from pipeline.declare.factors import MAX_VALUES, require_integer, require_name, require_text, require_types
from pipeline.declare.panel import MAX_TRIALS, AddedMethod, Panel
from pipeline.errors import BadInputError, counted, require_known, unknown
from pipeline.notebooks import html_table

_LOG = logging.getLogger(__name__)
_LONGEST_LISTS = 400  # characters of two lists that a message contains


@dataclass(frozen=True)
class Figure:
    """Figure drawn from summaries.

    Attributes
    ----------
    name, title, caption : str
        File stem, heading, and text below the figure, which is also its alternative text.
    panels : tuple of str
        Panels that the figure shows if they are stored.
    draw : callable
        Function ``{panel: summary Dataset} -> plots``; see `studies.figures.Plot`.
    paper : str
        Key of the paper of the figure; by default the paper of the study.
    claims : tuple of str
        Names of claims that the figure illustrates, if their panels are in an earlier figure as well.
    """

    name: str
    title: str
    caption: str
    panels: tuple[str, ...]
    draw: Callable[[Mapping[str, Any]], Any] = field(repr=False)
    paper: str = ""
    claims: tuple[str, ...] = ()


Values = Mapping[str, Iterable[Any] | Mapping[str, Iterable[Any]]]
"""Name of an axis -> its values, in every panel or by panel."""


@dataclass(frozen=True)
class Scale:
    """Arguments of `Study.configure` that select a part of a study, such as ``Scale(trials=100, panels=("k2",))``."""

    trials: int | Mapping[str, int] | None = None
    panels: tuple[str, ...] = ()
    values: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Criteria:
    """Measures by which a benchmark compares methods of users with those of a study; panels may lack some of them.

    Attributes
    ----------
    uniform : tuple of str
        Measures that are uniform on [0, 1] if a posterior is exact, such as posterior quantiles.
    exact : mapping of str to mapping
        Panel -> factor or output -> values at which they are uniform; all values of a factor that is not named. Panels
        that are not named are not tested, such as those whose data are not from the assumed model.
    loss : tuple of str
        Measures of which smaller means are better; methods are ranked by the first one that a panel has.
    loss_in : mapping of str to str
        Panel -> another such measure by which its methods are ranked, such as where data are not from the model.
    covered, width, distance : str
        Coverage of 95 % intervals, their width, and the distance to the exact posterior; empty without such a measure.
    """

    uniform: tuple[str, ...] = ()
    exact: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    loss: tuple[str, ...] = ()
    loss_in: Mapping[str, str] = field(default_factory=dict)
    covered: str = ""
    width: str = ""
    distance: str = ""

    def loss_of(self, panel: Panel) -> str:
        """Return the measure by which the methods of a panel are ranked; empty if it has none."""
        names = {measure.name for measure in panel.measures}
        losses = (self.loss_in.get(panel.name, ""), *self.loss)
        return next((loss for loss in losses if loss in names), "")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all measures."""
        return tuple(
            filter(None, (*self.uniform, *self.loss, *self.loss_in.values(), self.covered, self.width, self.distance))
        )


@dataclass(frozen=True)
class Study:
    """Simulation study: its aim, panels, claims, figures and tables.

    Attributes
    ----------
    name, title, aim : str
        Name on the command line, heading, and aim.
    panels, claims, figures : tuple
        Experiments, claims to check and figures to draw.
    seed : int
        Default seed of all streams; the seed of a run is always recorded.
    version : int
        Version, increased when the numbers change for a reason other than a change of a method or simulator.
    papers : tuple of str
        Keys of the papers of the study; the first is the default paper of its claims and figures.
    errata : tuple of Erratum
        Errors in the papers that the study demonstrates without a claim.
    quick : Scale
        Part of the study that a quick run computes; by default all of it.
    comparisons, audits : tuple of callable
        Functions of the summaries by panel, which return a table that compares the methods of the study with one
        another, or rows of the table of audited privacy losses.
    criteria : Criteria
        Measures by which a benchmark compares methods.

    Examples
    --------
    >>> from pipeline import Factor, Measure, Method
    >>> average = Method("average", lambda data, setting, streams: {"x": data.mean(axis=1)})  # shape (trial,)
    >>> def simulate(cell, streams):
    ...     return cell["n"] * streams.uniforms(2)
    >>> measures, sizes = (Measure("x", "an average"),), (Factor("n", (1, 10), "size"),)
    >>> panel = Panel("p", "a panel", simulate, (average,), measures, sizes, trials=50)
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
    papers: tuple[str, ...] = ()
    errata: tuple[Erratum, ...] = ()
    quick: Scale = Scale()
    comparisons: tuple[Callable[[Mapping[str, Any]], Any], ...] = ()
    audits: tuple[Callable[[Mapping[str, Any]], Iterable[Any]], ...] = ()
    criteria: Criteria = Criteria()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return what pickles write: functions of a study may be local, which only cloudpickle copies."""
        return _unpickled, (cloudpickle.dumps({item.name: getattr(self, item.name) for item in fields(self)}),)

    def _repr_html_(self) -> str:
        """Return a table of the panels, for notebooks."""
        rows = [
            (panel.name, panel.meaning, len(panel.cells()), panel.n_trials, len(panel.methods)) for panel in self.panels
        ]
        heads = ("panel", "meaning", "cells", "trials per cell", "methods")
        return html_table(f"{self.title} (study {self.name}, {counted(len(self.claims), 'claim')})", heads, rows)

    def __post_init__(self) -> None:
        require_text("the name of a study", self.name)
        require_types(self, title=str, aim=str, version=int, papers=[str])
        require_types(self, panels=[Panel], claims=[Claim], figures=[Figure])
        names = [panel.name for panel in self.panels]
        if not names or len(set(names)) < len(names):
            raise BadInputError(
                f"study {self.name} must have panels with distinct names, got {', '.join(names) or 'none'}"
            )
        for kind, named in (("claim", self.claims), ("figure", self.figures)):
            names = [entry.name for entry in named]
            if len(set(names)) < len(names):
                raise BadInputError(f"study {self.name} must name each {kind} once, got {', '.join(names)}")
        for claim, panel in product(self.claims, self.panels):
            needs = claim.needs.get(panel.name, {})
            for factor in (*panel.factors, *panel.method_factors, *panel.outputs):
                texts = [value for value in needs.get(factor.name, ()) if isinstance(value, str)]
                if texts and factor.kind in ("int", "float"):
                    raise BadInputError(
                        f"claim {claim.name} must need numbers of {factor.name} of panel {panel.name}, got the text "
                        f"{texts[0]!r}"
                    )
        object.__setattr__(self, "seed", require_integer("seed", self.seed, 0, 2**63 - 1))

    def panel(self, name: str) -> Panel:
        """Return a panel by name; raise BadInputError with similar names if there is none."""
        for panel in self.panels:
            if panel.name == name:
                return panel
        raise BadInputError(unknown("panel", name, [panel.name for panel in self.panels]))

    def configure(
        self,
        trials: int | Mapping[str, int] | None = None,
        seed: int | None = None,
        panels: Iterable[str] = (),
        values: Values | None = None,
        *,
        check: bool = True,
    ) -> "Study":
        """Return the study with other trials, seed, panels or values, fully validated.

        Parameters
        ----------
        trials : int or mapping of str to int, optional
            Trials per cell, for panels with trials; panels that a mapping does not name keep their number.
        seed : int, optional
            Seed of all streams, >= 0.
        panels : iterable of str
            Names of the panels to keep. If empty, the panels with `Panel.on_demand` are kept that have a factor in
            `values` which no other panel has, or, if there are none, all panels without `Panel.on_demand`; of these,
            panels are left out that have none of the factors in `values`, or none of the methods or categories that it
            lists, and a message names them.
        values : mapping of str to iterable, or to a mapping of str to iterable
            New values of factors, outputs, constants or the list of methods, in each kept panel that has the name, or
            by panel; panels that a mapping does not name keep their values. If `panels` is empty, each panel takes the
            methods and categories that it has. A list of methods without an added one (`with_methods`) keeps all added
            ones.
        check : bool
            False to omit the check of each setting in each cell.

        Raises
        ------
        BadInputError
            For an unknown name or an invalid value, before anything is computed or written.
        """
        trials = {} if trials is None else trials
        trials_by_panel = (
            trials if isinstance(trials, Mapping) else dict.fromkeys((panel.name for panel in self.panels), trials)
        )
        by_panel = {
            self.panel(name).name: require_integer("trials", n, 1, MAX_TRIALS) for name, n in trials_by_panel.items()
        }
        given: Values = {
            name: new if isinstance(new, Mapping) else _several(new) for name, new in (values or {}).items()
        }
        named = [self.panel(name).name for name in _several(panels)]
        kept = self._select(named or self._on_demand_for(given))
        names = sorted({known for panel in kept for known in panel.settable()})
        for name in given:
            if name not in names:
                self._reject_panel_on_demand(name, [panel.name for panel in kept])
            require_known("factor", [name], names)
        left_out = ""
        if not named:
            kept, given, left_out = self._panels_with(kept, given)
        for name, new in given.items():
            having = [panel.name for panel in kept if name in panel.settable()]
            by_name = new if isinstance(new, Mapping) else dict.fromkeys(having, new)
            require_known(f"panel with {name}", by_name, having)
            kept = tuple(
                panel.with_values(name, _with_added(panel, name, _several(by_name[panel.name])))
                if panel.name in by_name
                else panel
                for panel in kept
            )
        study = replace(self, panels=kept, seed=self.seed if seed is None else seed).with_trials(by_panel)
        for panel in study.panels if check else ():
            panel.check()
        if check and not any(panel.applicable.any() for panel in study.panels):
            shown = ", ".join(panel.name for panel in study.panels)
            raise BadInputError(
                f"a method must apply to a cell of {shown}, got none; choose other values, or correct validate"
            )
        if left_out:
            _LOG.info(left_out)
        return study

    def with_methods(self, *methods: AddedMethod, code: str = "") -> "Study":
        """Return the study with methods of a user, each in every panel that accepts methods of its kind.

        They run on the same simulated data as the other methods, whose numbers do not change, with random streams of
        their own, keyed by their names. A cell that a method does not support is not computed.

        Parameters
        ----------
        *methods : object with ``name`` and ``kind``
            For the studies of this package, a `studies.OwnMethod`, or a `mechanisms.Mechanism`.
        code : str
            SHA-256 of the code of their file; a store refuses methods with another one.

        Raises
        ------
        BadInputError
            For a kind that no panel accepts, a name or stream key that a method of the study has, or a method that
            supports no cell.

        Examples
        --------
        >>> from mechanisms import MECHANISMS
        >>> from dataclasses import replace
        >>> from studies import STUDIES
        >>> mine = replace(MECHANISMS["geometric"], name="mine")
        >>> STUDIES["hellinger-accuracy"].with_methods(mine).panel("k2").methods[-1].name
        'mine'
        """
        study = self
        for method in methods:
            study = study._with_method(method, code)
        return study

    def _with_method(self, added: AddedMethod, code: str) -> "Study":
        name, kind = getattr(added, "name", None), getattr(added, "kind", None)
        if not isinstance(kind, str):
            raise BadInputError(
                f"an added method must have a name and a kind, got {type(added).__name__}; pass a studies.OwnMethod or "
                "a mechanisms.Mechanism"
            )
        require_name("the name of an added method", name)
        kinds = sorted({kind for panel in self.panels for kind in panel.accepts})
        if kind not in kinds:
            accepted = f"methods of kind {' or '.join(kinds)}" if kinds else "no methods of users"
            raise BadInputError(
                f"study {self.name} accepts {accepted}, got {name} of kind {kind}; choose another study"
            )
        taken = {key for panel in self.panels for m in panel.methods for key in (m.name, m.stream_key)}
        if name in taken:
            raise BadInputError(
                f"an added method must have a name of its own, got {name}, which study {self.name} has; rename it"
            )
        panels = tuple(panel.with_method(added, code) if kind in panel.accepts else panel for panel in self.panels)
        own = [(panel, s) for panel in panels for s in panel.settings() if s.method.name == name]
        if not any(panel.supports(cell, setting) for panel, setting in own for cell in panel.cells()):
            raise BadInputError(
                f"method {name} must support a cell of study {self.name}, got none; change what it supports, or choose "
                "another study"
            )
        return replace(self, panels=panels)

    def with_trials(self, trials: Mapping[str, int]) -> "Study":
        """Return the study with other numbers of trials in panels with trials."""
        panels = (
            replace(panel, trials=trials.get(panel.name, panel.trials)) if panel.trials is not None else panel
            for panel in self.panels
        )
        return replace(self, panels=tuple(panels))

    def extended(
        self, declared: "Study", trials: Any, values: Mapping[str, Iterable[Any]], panels: Collection[str] = ()
    ) -> "Study":
        """Return the study with more trials, and values appended to the factors and methods of some or all panels.

        `declared` is the study as declared in its code, with all methods. Raise BadInputError for fewer trials, an
        unknown name, or new values of outputs or constants.
        """
        trials = None if trials is None else require_integer("trials", trials, 1, MAX_TRIALS)
        chosen = [self.panel(name).name for name in panels] or [panel.name for panel in self.panels]
        known = {name for panel in self.panels if panel.name in chosen for name in panel.settable()}
        require_known("factor", values, sorted(known))
        new_values = {name: _several(new) for name, new in values.items()}
        of_panel = {name: dict.fromkeys(chosen, new) for name, new in new_values.items()}
        if not panels:
            of_panel = _by_panel([declared.panel(name) for name in chosen], new_values)
        kept = []
        for panel in self.panels:
            larger = panel
            if panel.name in chosen:
                for name, by_panel in of_panel.items():
                    if by_panel.get(panel.name) or not new_values[name]:
                        larger = larger.with_more(name, by_panel.get(panel.name, ()), declared.panel(panel.name))
                if trials is not None and panel.trials is not None:
                    if trials < panel.trials:
                        raise BadInputError(
                            f"trials of panel {panel.name} must be >= {panel.trials}, the stored number, got {trials}"
                        )
                    larger = replace(larger, trials=trials)
                larger.check()
            kept.append(larger)
        return replace(self, panels=tuple(kept))

    def _select(self, names: Collection[str]) -> tuple[Panel, ...]:
        """Return the named panels with `on_demand` set to False or, without names, the panels not on demand."""
        if names:
            return tuple(replace(panel, on_demand=False) for panel in self.panels if panel.name in names)
        kept = tuple(panel for panel in self.panels if not panel.on_demand)
        if not kept:
            names = ", ".join(panel.name for panel in self.panels)
            raise BadInputError(
                f"study {self.name} computes its panels on demand only; select one with --panel: {names}"
            )
        return kept

    def _panels_with(self, panels: Sequence[Panel], values: Values) -> tuple[tuple[Panel, ...], Values, str]:
        """Return the panels that have a factor and, of each list, a choice in `values`; values by panel; a message."""
        lists = {name: tuple(new) for name, new in values.items() if not isinstance(new, Mapping)}
        by_panel = _by_panel(panels, lists)
        named = {name for new in {**values, **by_panel}.values() for name in new}
        without = {name for factor, new in by_panel.items() for name in new if lists[factor] and not new[name]}
        kept = tuple(panel for panel in panels if not lists or (panel.name in named and panel.name not in without))
        words = " and ".join(f"{name}={','.join(map(str, new))}" for name, new in lists.items())
        if not kept:
            raise BadInputError(f"no panel of study {self.name} has {words}; select panels with --panel")
        for factor, new in by_panel.items():
            reached = {value for panel in kept for value in new.get(panel.name, ())}
            missing = [value for value in lists[factor] if value not in reached]
            if missing:
                raise BadInputError(
                    f"no panel of study {self.name} with {words} has {factor}={missing[0]}; omit it, or select panels "
                    "with --panel"
                )
        others = [panel.name for panel in panels if panel not in kept]
        message = f"panels without {words} are left out: {', '.join(others)}" if others else ""
        names = [panel.name for panel in kept]
        chosen = {name: {panel: new[panel] for panel in names if panel in new} for name, new in by_panel.items()}
        return kept, {**values, **chosen}, message

    def _on_demand_for(self, values: Collection[str]) -> list[str]:
        """Return the names of panels on demand that have a factor in `values` which no other panel has."""
        others = {name for panel in self.panels if not panel.on_demand for name in panel.settable()}
        requested = set(values) - others
        return [panel.name for panel in self.panels if panel.on_demand and requested & set(panel.settable())]

    def _reject_panel_on_demand(self, name: str, kept: Collection[str]) -> None:
        """Raise BadInputError if a panel on demand that was not selected has the factor `name`."""
        for panel in self.panels:
            if panel.on_demand and panel.name not in kept and name in panel.settable():
                raise BadInputError(
                    f"{name} belongs to panel {panel.name}, which is computed on demand only; add --panel {panel.name}"
                )

    def spec(self) -> dict[str, Any]:
        """Return the specification of the numbers and their layout, without the package version, as JSON values."""
        return {
            "study": self.name,
            "version": self.version,
            "seed": self.seed,
            "panels": {panel.name: panel.spec() for panel in self.panels},
        }

    def from_spec(self, spec: Mapping[str, Any]) -> "Study":
        """Return this study configured by a stored spec; raise BadInputError for names that no longer exist."""
        panels = []
        for name, stored in spec["panels"].items():
            panel = replace(self.panel(name), on_demand=False)  # the run that created the store requested the panel
            for role in ("factors", "method_factors", "outputs", "constants"):
                require_known(f"factor of panel {name}", stored[role], panel.settable())
                for axis, values in stored[role].items():
                    values = [tuple(value) if isinstance(value, list) else value for value in values]
                    panel = panel.with_values(axis, values)
            if panel.method_dim is not None:
                panel = panel.with_values(panel.method_dim, stored["method_order"])
            panel = panel.with_codes(stored_codes(stored))
            panels.append(replace(panel, trials=stored["trials"]))
        return replace(self, panels=tuple(panels), seed=spec["seed"])


def stored_codes(panel: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of the code of the added methods in the spec of a panel, by name."""
    return {name: method["code"] for name, method in panel["methods"].items() if "code" in method}


def differences(stored: Any, current: Any, path: str = "") -> list[str]:
    """List the differences of two specs as ``path: stored X, now Y``."""
    if isinstance(stored, Mapping) and isinstance(current, Mapping):
        differing = []
        for key in sorted({*stored, *current}):
            where = f"{path}.{key}" if path else key
            if key not in current:
                differing.append(f"{where}: stored, now absent")
            elif key not in stored:
                differing.append(f"{where}: not stored, now present")
            else:
                differing += differences(stored[key], current[key], where)
        return differing
    if stored == current:
        return []
    if isinstance(stored, list) and isinstance(current, list) and len(f"{stored}{current}") > _LONGEST_LISTS:
        first = next(n for n, (old, new) in enumerate(zip_longest(stored, current), 1) if old != new)
        return [f"{path}: stored {len(stored):,} values, now {len(current):,}; number {first:,} is the first other one"]
    return [f"{path}: stored {stored}, now {current}"]


def includes(spec: Any, smaller: Any, name: str = "") -> bool:
    """Return True if a spec has all trials, values and methods of a smaller one, in its order, and perhaps more."""
    if isinstance(smaller, Mapping):
        return all(key in spec and includes(spec[key], value, key) for key, value in smaller.items())
    if isinstance(smaller, list):
        return bool(spec[: len(smaller)] == smaller)
    if name == "trials" and smaller is not None:
        return bool(spec >= smaller)
    return name == "code" or bool(spec == smaller)  # an accepted edit changes the hash of the code of a method


def _by_panel(panels: Sequence[Panel], values: Mapping[str, tuple[Any, ...]]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return factor -> panel with it -> values that the panel can take; raise BadInputError for one of no panel."""
    by_panel = {}
    for name, new in values.items():
        axes = {panel.name: panel.settable()[name] for panel in panels if name in panel.settable()}
        choices = {panel.name: panel.choices(name) for panel in panels if panel.name in axes}
        if any(choices.values()):  # panels that declare a single text have no others, if there are panels with several
            choices = {panel: known or tuple(map(str, axes[panel].values)) for panel, known in choices.items()}
            require_known(name, new, dict.fromkeys(choice for known in choices.values() for choice in known))
        by_panel[name] = {
            panel: tuple(value for value in new if value in known) if known else new for panel, known in choices.items()
        }
    return by_panel


def _with_added(panel: Panel, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return new values of an axis; a list of methods without an added one is followed by all added ones."""
    added = [method.name for method in panel.methods if method.is_added]
    return values if name != panel.method_dim or set(values) & set(added) else (*values, *added)


def _several(values: Any) -> tuple[Any, ...]:
    """Return values as a tuple; a single string or number becomes a tuple with one entry."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        return (values,)
    return tuple(islice(values, MAX_VALUES + 1))  # more are rejected


def _unpickled(attributes: bytes) -> Study:
    return Study(**cloudpickle.loads(attributes))

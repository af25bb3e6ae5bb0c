"""Claims about the results of a study, with checks of the stored numbers, and errata of the papers."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from types import EllipsisType
from typing import Any, Literal

from pipeline.declare.factors import Value, require_integer
from pipeline.declare.panel import MAX_TRIALS
from pipeline.errors import BadInputError
from pipeline.redact import encodable, format_error, short_repr

Kind = Literal["conclusion", "addition", "self-check"]
Verdict = Literal[
    "reproduced", "not reproduced", "holds", "does not hold", "passed", "failed", "corrected", "undecided"
]
Check = Callable[[Any], "Finding"]
Needs = Mapping[str, Mapping[str, Value | tuple[Value | EllipsisType, ...]]]
"""Panel -> dimension -> value or values that must be stored to decide a claim, which reads no others.

A claim reads the other values of a dimension as well, if they are stored, after ``...`` in the tuple.
"""

EVERY_PANEL = ("*",)
"""All panels of a store, as panels that a claim reads if they are stored."""

VERDICTS: Mapping[Kind, tuple[Verdict, Verdict]] = {
    "conclusion": ("reproduced", "not reproduced"),
    "addition": ("holds", "does not hold"),
    "self-check": ("passed", "failed"),
}
"""Kind of claim -> verdict on a true statement, and verdict on a false statement."""

_LONGEST_TITLE = 80  # characters of a statement that fits a line of a table on the terminal
_RETURNED: tuple[Verdict, ...] = ("holds", "does not hold", "corrected", "undecided")  # verdicts of a check
_UNDECLARED = (
    "; a check reads what its needs declare only: declare the panels and values that it reads, and write ... after the "
    "values of a dimension to read all"
)


@dataclass(frozen=True)
class Finding:
    """Result of the check of a claim.

    Attributes
    ----------
    verdict : str
        A check returns ``"holds"``, ``"does not hold"``, ``"corrected"`` for a statement that holds only in part, or
        ``"undecided"``. `Claim.judge` replaces the first two by the words of `VERDICTS`.
    evidence : str
        Numbers that support the verdict.
    is_settled: bool
        False for a statement that holds because a test did not reject it. More trials could reject it, so a run until
        claims are decided continues.
    """

    verdict: Verdict
    evidence: str
    is_settled: bool = True


@dataclass(frozen=True)
class Erratum:
    """Error in a paper.

    Attributes
    ----------
    printed, correct : str
        Printed statement, and the correct one.
    place, paper : str
        Location in the paper, and its key; by default those of the claim.
    show : callable, optional
        Function ``{panel: summary Dataset} -> str`` that returns numbers which demonstrate the erratum, for studies
        without a claim about it.
    """

    printed: str
    correct: str
    place: str = ""
    paper: str = ""
    show: Callable[[Mapping[str, Any]], str] | None = field(default=None, repr=False)


class Look(Mapping[str, Any]):
    """Summaries of the panels that a claim declares, with the error level and the critical values of one look at them.

    A check receives it. ``look[panel]`` is the summary of a panel at the declared values, in the stored order; `select`
    returns them in the declared order, without dimensions of a single value. Other panels are refused, and other values
    are absent, since nothing would ensure that their trials are complete. They are copies: a check that changes them
    does not change the numbers of other claims.

    Attributes
    ----------
    share : float
        Share of the claim's error level that this look may spend: 1 for a look at a complete run.

    Examples
    --------
    >>> @claim(kind="self-check", level=0.01, needs={"p": {}})
    ... def small(look):
    ...     'The p-value is above the level.'
    ...     return verdict(look["p"] > look.level, f"Level {look.level:.3g}, limit {look.critical(3):.2f} errors.")
    >>> small.check(Look(small, {"p": 0.2})).evidence
    'Level 0.01, limit 3.00 errors.'
    >>> small.check(Look(small, {"p": 0.2}, share=level_share(2))).evidence
    'Level 0.00152, limit 3.53 errors.'
    """

    def __init__(self, claim: "Claim", summaries: Mapping[str, Any], share: float = 1.0) -> None:
        self._claim = claim
        self._summaries = summaries
        self._parts: dict[str, Any] = {}
        self.share = share

    @property
    def level(self) -> float:
        """Error level of a test at this look: the share of the level that the claim declares."""
        if self._claim.level is None:
            raise BadInputError(f"claim {self._claim.name} must declare a level to test at one, got none; add level=")
        return self._claim.level * self.share

    def critical(self, deviations: float) -> float:
        """Return the number of standard errors at which a test rejects: `deviations`, or more at one of several looks.

        The one-sided error level of `deviations` is multiplied by `share`.
        """
        if self.share == 1.0:
            return deviations
        return -NormalDist().inv_cdf(NormalDist().cdf(-deviations) * self.share)

    def select(self, panel: str) -> Any:
        """Return a panel at the declared values; a dimension that is declared with one value is dropped."""
        summary = self[panel]
        declared = self._claim.declared.get(panel, {})
        values = {
            dim: list(value) if isinstance(value, tuple) else value
            for dim, value in declared.items()
            if dim in summary.dims and not _reads_all(value)
        }
        return summary.sel(values)

    def __getitem__(self, panel: str) -> Any:
        """Return a panel at the declared values; raise BadInputError if undeclared, KeyError if absent."""
        self._require_declared(panel)
        if panel not in self._parts:
            summary = self._summaries[panel]
            at = self._claim.positions_read(panel, summary) if self._claim.values_read(panel) else {}
            self._parts[panel] = deepcopy(summary.isel(at) if at else summary)
        return self._parts[panel]

    def __contains__(self, panel: object) -> bool:
        self._require_declared(panel)
        return panel in self._summaries

    def __iter__(self) -> Iterator[str]:
        return (panel for panel in self._claim.panels_read(self._summaries) if panel in self._summaries)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _require_declared(self, panel: object) -> None:
        if panel not in self._claim.panels_read([str(panel)]):
            raise BadInputError(
                f"claim {self._claim.name} reads panel {panel}, which it does not declare; add the panel to its needs"
            )


@dataclass(frozen=True)
class Claim:
    """Statement about the results of a study, with a check of the stored numbers; see `claim`."""

    name: str
    statement: str
    paper: str
    place: str
    kind: Kind
    declared: Needs
    check: Check = field(repr=False)
    erratum: Erratum | None = None
    min_trials: int = 100
    level: float | None = None
    leads: bool = False
    also: tuple[str, ...] = ()
    min_values: int | None = None
    short: str = ""

    @property
    def title(self) -> str:
        """The short statement, or else the statement."""
        return self.short or self.statement

    @cached_property
    def needs(self) -> dict[str, dict[str, tuple[Value, ...]]]:
        """Panel -> dimension -> values that must be stored to decide the claim."""
        return {
            panel: {
                dim: tuple(needed for needed in value if needed is not ...) if isinstance(value, tuple) else (value,)
                for dim, value in values.items()
            }
            for panel, values in self.declared.items()
        }

    def values_read(self, panel: str) -> dict[str, tuple[Value, ...]]:
        """Return dimension -> values of a panel that the claim reads, for dimensions of which it does not read all."""
        declared = self.declared.get(panel, {})
        return {dim: values for dim, values in self.needs.get(panel, {}).items() if not _reads_all(declared[dim])}

    def positions_read(self, panel: str, summary: Any) -> dict[str, list[int]]:
        """Return dimension -> positions of the values that the claim reads in a summary of a panel, in stored order."""
        return {
            dim: [k for k, value in enumerate(summary[dim].values.tolist()) if value in values]
            for dim, values in self.values_read(panel).items()
            if dim in summary.dims
        }

    def panels_read(self, stored: Iterable[str]) -> list[str]:
        """Return the panels that the claim needs, and those of the stored panels that it reads as well."""
        read_as_well = (panel for panel in stored if self.also == EVERY_PANEL or panel in self.also)
        return list(dict.fromkeys((*self.declared, *read_as_well)))

    @property
    def source(self) -> str:
        """Kind and origin of the claim, as one phrase."""
        if self.kind == "conclusion":
            return f"{self.paper}, {self.place}"
        if self.kind == "self-check" or not self.paper:
            return f"{self.kind}; {self.place}" if self.place else self.kind
        return f"addition to {self.paper}, {self.place}" if self.place else f"addition to {self.paper}"

    def judge(self, summaries: Mapping[str, Any], share: float = 1.0) -> Finding:
        """Check the claim, and return the finding with a verdict in the words that `VERDICTS` lists for its kind.

        `share` is the share of the claim's error level that this look at the data may spend. A check that raises an
        exception, such as one that reads undeclared values, or that returns no valid `Finding`, decides nothing.
        """
        try:
            finding = _valid(self.check(Look(self, summaries, share)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit: other claims have their verdicts whatever a check does
            hint = _UNDECLARED if isinstance(error, LookupError) else ""
            return Finding("undecided", f"The check raised {format_error(error).rstrip('.: ')}{hint}.")
        words = dict(zip(("holds", "does not hold"), VERDICTS[self.kind], strict=True))
        return replace(finding, verdict=words.get(finding.verdict, finding.verdict))


def _valid(finding: Any) -> Finding:
    """Return what a check returned, with evidence that can be written; raise BadInputError if it is no finding."""
    if not isinstance(finding, Finding):
        raise BadInputError(f"a check must return a Finding, got {short_repr(finding)}; return verdict(...)")
    if not (isinstance(finding.verdict, str) and finding.verdict in _RETURNED):
        raise BadInputError(f"a verdict must be one of {', '.join(_RETURNED)}, got {short_repr(finding.verdict)}")
    if not isinstance(finding.evidence, str):
        raise BadInputError(f"the evidence of a finding must be a text, got {short_repr(finding.evidence)}")
    return replace(finding, evidence=encodable(finding.evidence), is_settled=bool(finding.is_settled))


def claim(
    name: str = "",
    statement: str = "",
    *,
    needs: Needs | None = None,
    also: Iterable[str] = (),
    paper: str = "",
    place: str = "",
    kind: Kind = "conclusion",
    erratum: Erratum | None = None,
    min_trials: int = 100,
    min_values: int | None = None,
    level: float | None = None,
    leads: bool = False,
    short: str = "",
) -> Callable[[Check], Claim]:
    """Declare a function of a `Look`, a mapping from panels to summaries, that returns a Finding, as a claim.

    A claim is undecided, and its function is not called, while the store lacks a panel or value that the claim needs,
    or has pending trials or too few of them at these values. The function can read the declared panels and values only.
    The claim is also undecided if the function reads a statistic of a ragged measure at a position with fewer values
    than `min_values`. Positions without any value are padding and do not count, unless the function reads no others.

    Parameters
    ----------
    name, statement : str, optional
        Label that is unique in the study, and a sentence that can be understood on its own; by default the name of the
        function, with hyphens, and its docstring.
    needs : mapping of str to mapping
        Panel -> dimension -> value, or tuple of values, that must be stored; ``{}`` for a whole panel. The function
        reads all values of the dimensions that are not named, and no others of those that are, unless the tuple ends
        with ``...``: ``{"n": (10, ...)}`` needs n = 10, and reads, and requires trials of, each n that is stored.
    also : iterable of str
        Panels that the claim reads as well if they are stored, `EVERY_PANEL` for all. A claim must declare `needs` or
        `also`.
    paper, place : str
        Key of the paper, and location in the paper; a conclusion requires both.
    kind : {"conclusion", "addition", "self-check"}
        Conclusion of a paper, addition of this project, or check of the study itself.
    erratum : Erratum, optional
        Error in the paper that the claim demonstrates.
    min_trials : int
        Minimum number of ok trials in every cell and setting; 1 for panels without trials. 0: claims about failures.
    min_values : int, optional
        Minimum number of values, by default `min_trials`, at each position of a statistic of a ragged measure that the
        function reads, such as 20 for a measure of every fifth of 100 trials. A function that reads a measure that may
        have no value at all tests ``x_n_values > 0`` first. Panels without trials have exact values, and need none.
    level : float, optional
        Error level of the check, or of each of its comparisons; 0 for a check of exact numbers. The thresholds of the
        check are `Look.level` and `Look.critical`, so that it can be decided at several looks. A claim without a level
        is decided by the whole run only.
    leads : bool
        Show the claim and its figure first on the page of all studies.
    short : str, optional
        The statement in at most 80 characters, which a table on the terminal shows in place of a longer one.

    Examples
    --------
    >>> @claim(kind="self-check", needs={"p": {"n": (100,)}})
    ... def all_positive(look):
    ...     'Every mean is positive.'
    ...     mean = look.select("p")["x_mean"]
    ...     return verdict((mean > 0).all(), f"The smallest mean is {mean.min():.2f}.")
    >>> all_positive.name, all_positive.statement, all_positive.needs
    ('all-positive', 'Every mean is positive.', {'p': {'n': (100,)}})
    """

    def declare(check: Check) -> Claim:
        own_name = getattr(
            check, "__name__", ""
        )  # absent for objects that are called, with the docstring of their class
        label = name or own_name.replace("_", "-")
        if not callable(check) or not label:
            raise BadInputError(
                f"the check of a claim must be a function, or a callable with a name for the claim, got "
                f"{short_repr(check)}"
            )
        _require_options(label, kind, min_trials, min_values, level, also, short)
        if kind == "conclusion" and not (paper and place):
            raise ValueError(f"claim {label} of kind conclusion must have paper and place, got {paper!r} and {place!r}")
        stated = statement or " ".join(((own_name and check.__doc__) or "").split())
        if not stated:
            raise ValueError(
                f"claim {label} must have a statement, got none; write it as the docstring of its function"
            )
        declared, read_as_well = _declared_needs(label, needs), tuple(also)
        if not (declared or read_as_well):
            raise ValueError(
                f"claim {label} must declare the panels that it reads, got none; add needs={{'PANEL': {{}}}}, or "
                "also=EVERY_PANEL for all that are stored"
            )
        return Claim(
            label, stated, paper, place, kind, declared, check, erratum, min_trials, level, leads, read_as_well,
            min_values, short,
        )  # fmt: skip

    return declare


def _require_options(
    label: str, kind: Any, min_trials: Any, min_values: Any, level: Any, also: Any, short: Any
) -> None:
    """Raise BadInputError for an option of a claim that has no meaning."""
    if not (isinstance(kind, str) and kind in VERDICTS):
        raise BadInputError(f"kind of claim {label} must be one of {', '.join(VERDICTS)}, got {short_repr(kind)}")
    require_integer(f"min_trials of claim {label}", min_trials, 0, MAX_TRIALS)
    if min_values is not None:
        require_integer(f"min_values of claim {label}", min_values, 0, MAX_TRIALS)
    is_number = isinstance(level, int | float) and not isinstance(level, bool)
    if level is not None and not (is_number and 0 <= level < 1):
        raise BadInputError(f"level of claim {label} must be None or a number in [0, 1), got {short_repr(level)}")
    if not (isinstance(short, str) and len(short) <= _LONGEST_TITLE):
        raise BadInputError(
            f"short of claim {label} must be a text of at most {_LONGEST_TITLE} characters, got {short_repr(short)}; "
            "shorten it"
        )
    if isinstance(also, str):
        raise BadInputError(
            f"also of claim {label} must be a tuple of names of panels, got {also!r}; write ({also!r},)"
        )


def _declared_needs(label: str, needs: Any) -> Needs:
    """Return the needs of a claim with tuples of distinct values; raise ValueError for another type."""
    needs = {} if needs is None else needs
    if not (isinstance(needs, Mapping) and all(isinstance(values, Mapping) for values in needs.values())):
        raise ValueError(
            f"needs of claim {label} must map panels to mappings of dimensions to values, got {short_repr(needs)}; "
            "write {'PANEL': {}} for a whole panel"
        )
    declared = {
        panel: {dim: _declared_values(f"{dim} of panel {panel}", label, value) for dim, value in values.items()}
        for panel, values in needs.items()
    }
    for panel, values in declared.items():
        for dim, value in values.items():
            if value is ... or (isinstance(value, tuple) and not value):
                raise ValueError(
                    f"claim {label} must need at least one value of {dim} of panel {panel}, got none; add values, or "
                    f"omit {dim} to read all"
                )
    return declared


def _declared_values(dimension: str, label: str, needed: Any) -> Any:
    """Return a scalar, or a tuple of distinct ones, that a claim needs; raise BadInputError for other types."""
    values = tuple(needed) if isinstance(needed, range) else needed.tolist() if hasattr(needed, "tolist") else needed
    is_one = not isinstance(values, tuple | list)
    plain = [_plain(value) for value in ([values] if is_one else values)]
    if None in plain:
        raise BadInputError(
            f"claim {label} must need numbers or texts of {dimension}, or a tuple of them, got {short_repr(needed)}"
        )
    return plain[0] if is_one else tuple(dict.fromkeys(plain))


def _plain(value: Any) -> Any:
    """Return a value of a factor, or ``...``, in the types of Python; None for another object."""
    if isinstance(value, tuple | list):  # of a factor whose values are vectors
        entries = tuple(_plain(entry) for entry in value)
        return entries if entries and all(type(entry) in (int, float) for entry in entries) else None
    value = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return value if value is ... or (type(value) in (int, float, str) and is_finite) else None


def _reads_all(values: Any) -> bool:
    """Return True for declared values of a dimension that end with ``...``."""
    return isinstance(values, tuple) and any(value is ... for value in values)


def claims_in(namespace: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the claims in the ``globals()`` of a module, after its last claim, in the order of their definition.

    Examples
    --------
    >>> @claim("finite", "All means are finite.", kind="self-check", needs={"p": {}})
    ... def finite(look):
    ...     return verdict(bool(look["p"]["x_mean"].notnull().all()), "All means are finite.")
    >>> [declared.name for declared in claims_in({"finite": finite, "other": 3})]
    ['finite']
    """
    return tuple(value for value in namespace.values() if isinstance(value, Claim))


def verdict(holds: object, evidence: str, is_settled: bool = True) -> Finding:
    """Return the finding that a statement holds, does not hold, or, for None and NaN, is undecided; see `Finding`.

    `holds` is True, False, or such a scalar of a summary, as of ``(summary["x_mean"] > 0).all()``.

    Examples
    --------
    >>> verdict(None, "Both signs are within two standard errors.").verdict
    'undecided'
    """
    is_scalar = hasattr(holds, "item") and getattr(holds, "size", 1) == 1
    value = holds.item() if is_scalar else holds  # type: ignore[attr-defined]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Finding("undecided", evidence, is_settled)
    if not isinstance(value, bool):
        raise BadInputError(
            f"a verdict must be True, False or None, got {short_repr(holds)}; compare it, or use .all()"
        )
    return Finding("holds" if value else "does not hold", evidence, is_settled)


def level_share(look: int) -> float:
    """Return the share of a claim's error level that may be spent at a look, numbered from 1: 6 / (π² look²).

    The shares of all looks sum to 1. By the union bound, the error over any number of looks is at most the level.
    """
    return 6 / (math.pi * look) ** 2


def two_sided_level(deviations: float) -> float:
    """Return the error level of a two-sided test that rejects at a number of standard errors.

    Examples
    --------
    >>> round(two_sided_level(3.0), 4)
    0.0027
    """
    return 2 * NormalDist().cdf(-deviations)

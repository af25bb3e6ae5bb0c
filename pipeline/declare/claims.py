"""Claims about the results of a study, with checks of the stored numbers, and errata of the papers."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal

from pipeline.declare.factors import Value

Kind = Literal["conclusion", "addition", "self-check"]
Verdict = Literal[
    "reproduced", "not reproduced", "holds", "does not hold", "passed", "failed", "corrected", "undecided"
]
Check = Callable[[Any], "Finding"]
Needs = Mapping[str, Mapping[str, tuple[Value, ...]]]
"""Panel -> dimension -> values that must be stored to decide a claim."""

VERDICTS: Mapping[Kind, tuple[Verdict, Verdict]] = {
    "conclusion": ("reproduced", "not reproduced"),
    "addition": ("holds", "does not hold"),
    "self-check": ("passed", "failed"),
}
"""Kind of claim -> verdict on a true statement, and verdict on a false statement."""


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


class Stored(Mapping[str, Any]):
    """Summaries by panel, as a check receives them."""

    def __init__(self, summaries: Mapping[str, Any]) -> None:
        self._summaries = summaries

    def need(self, panel: str, **values: tuple[Value, ...]) -> Any:
        """Return the whole summary of a panel; the claim needs these values of its dimensions.

        A check asks for all its panels before it reads one of them. It is undecided, and not called, if one lacks a
        value, or has pending trials or too few of them at these values.
        """
        return self[panel]

    def each(self, panels: Iterable[str], **values: tuple[Value, ...]) -> dict[str, Any]:
        """Return the summaries of several panels, of which the claim needs the same values."""
        return {panel: self.need(panel, **values) for panel in panels}

    def select(self, panel: str, **at: Any) -> Any:
        """Return a panel at values that the claim needs; a dimension with one value instead of a tuple is dropped."""
        stored = self.need(
            panel, **{name: value if isinstance(value, tuple) else (value,) for name, value in at.items()}
        )
        chosen = {name: list(value) if isinstance(value, tuple) else value for name, value in at.items()}
        return stored.sel({name: value for name, value in chosen.items() if name in stored.dims})

    def __getitem__(self, panel: str) -> Any:
        return self._summaries[panel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._summaries)

    def __len__(self) -> int:
        return len(self._summaries)


class _ReadError(Exception):
    """A check reads a summary while its needs are recorded."""


class _Unread:
    """Summary whose values are not known; to select or sort reads none."""

    dims = ()

    def sel(self, *at: Any, **values: Any) -> "_Unread":
        return self

    sortby = sel

    def __getattr__(self, name: str) -> Any:
        raise _ReadError

    __getitem__ = __contains__ = __getattr__


class _Recorder(Stored):
    """Summaries without values, which record the needs of a check."""

    def __init__(self) -> None:
        super().__init__({})
        self.needs: dict[str, dict[str, tuple[Value, ...]]] = {}

    def need(self, panel: str, **values: tuple[Value, ...]) -> Any:
        known = self.needs.setdefault(panel, {})
        for dim, given in values.items():
            known[dim] = tuple(dict.fromkeys((*known.get(dim, ()), *given)))
        return _Unread()

    def __getitem__(self, panel: str) -> Any:
        return self.need(panel)

    def __iter__(self) -> Iterator[str]:
        raise _ReadError

    def __contains__(self, panel: object) -> bool:
        raise _ReadError


def recorded_needs(check: Check) -> Needs:
    """Return what a check asks `Stored` for before it reads a value; nothing if it iterates over all panels."""
    recorder = _Recorder()
    with suppress(_ReadError):
        check(recorder)
    return recorder.needs


@dataclass(frozen=True)
class Claim:
    """Statement about the results of a study, with a check of the stored numbers; see `claim`."""

    name: str
    statement: str
    paper: str
    place: str
    kind: Kind
    needs: Needs
    check: Check = field(repr=False)
    erratum: Erratum | None = None
    min_trials: int = 100
    level: float | None = None
    leads: bool = False

    @property
    def source(self) -> str:
        """Kind and origin of the claim, as one phrase."""
        if self.kind == "conclusion":
            return f"{self.paper}, {self.place}"
        if self.kind == "self-check" or not self.paper:
            return f"{self.kind}; {self.place}" if self.place else self.kind
        return f"addition to {self.paper}, {self.place}" if self.place else f"addition to {self.paper}"

    def judge(self, summaries: Mapping[str, Any]) -> Finding:
        """Check the claim, and return the finding with a verdict in the words that `VERDICTS` lists for its kind."""
        finding = self.check(Stored(summaries))
        words = dict(zip(("holds", "does not hold"), VERDICTS[self.kind], strict=True))
        return replace(finding, verdict=words.get(finding.verdict, finding.verdict))


def claim(
    name: str = "",
    statement: str = "",
    *,
    paper: str = "",
    place: str = "",
    kind: Kind = "conclusion",
    erratum: Erratum | None = None,
    min_trials: int = 100,
    level: float | None = None,
    leads: bool = False,
) -> Callable[[Check], Claim]:
    """Declare a function of a `Stored`, a mapping from panels to summaries, that returns a Finding, as a claim.

    The claim needs what the function asks for by `Stored.need`, or all panels if it asks for none.

    Parameters
    ----------
    name, statement : str, optional
        Label that is unique in the study, and a sentence that can be understood on its own; by default the name of the
        function, with hyphens, and its docstring.
    paper, place : str
        Key of the paper, and location in the paper; a conclusion requires both.
    kind : {"conclusion", "addition", "self-check"}
        Conclusion of a paper, addition of this project, or check of the study itself.
    erratum : Erratum, optional
        Error in the paper that the claim demonstrates.
    min_trials : int
        Minimum number of ok trials in every cell and setting; 1 for panels without trials.
    level : float, optional
        Error level of the check, or of each of its comparisons. The thresholds of the check are `error_level` and
        `critical`, so that it can be decided at several looks; 0 for a check of exact numbers. A claim without a level
        is decided by the whole run only.
    leads : bool
        Show the claim and its figure first on the page of all studies.

    Examples
    --------
    >>> @claim(kind="self-check")
    ... def all_positive(summaries):
    ...     'Every mean is positive.'
    ...     p = summaries.need("p", n=(100,))
    ...     return verdict((p["x_mean"] > 0).all(), f"The smallest mean is {p['x_mean'].min():.2f}.")
    >>> all_positive.name, all_positive.statement, all_positive.needs
    ('all-positive', 'Every mean is positive.', {'p': {'n': (100,)}})
    """

    def declare(check: Check) -> Claim:
        label = name or check.__name__.replace("_", "-")
        if kind == "conclusion" and not (paper and place):
            raise ValueError(f"claim {label} of kind conclusion must have paper and place, got {paper!r} and {place!r}")
        stated = statement or " ".join((check.__doc__ or "").split())
        if not stated:
            raise ValueError(
                f"claim {label} must have a statement, got none; write it as the docstring of its function"
            )
        return Claim(label, stated, paper, place, kind, recorded_needs(check), check, erratum, min_trials, level, leads)

    return declare


def claims_in(namespace: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the claims in the ``globals()`` of a module, after its last claim, in the order of their definition.

    Examples
    --------
    >>> @claim("finite", "All means are finite.", kind="self-check")
    ... def finite(summaries):
    ...     return verdict(True, "All means are finite.")
    >>> [one.name for one in claims_in({"finite": finite, "other": 3})]
    ['finite']
    """
    return tuple(value for value in namespace.values() if isinstance(value, Claim))


def verdict(holds: object, evidence: str, is_settled: bool = True) -> Finding:
    """Return the finding that a statement holds, does not hold, or, for None, is undecided; see `Finding`.

    `holds` may be a scalar of a summary, such as ``(summary["x_mean"] > 0).all()``.

    Examples
    --------
    >>> verdict(None, "Both signs are within two standard errors.").verdict
    'undecided'
    """
    return Finding("undecided" if holds is None else "holds" if holds else "does not hold", evidence, is_settled)


_SHARE: ContextVar[float] = ContextVar("share", default=1.0)


def level_share(look: int) -> float:
    """Return the share of a claim's error level that may be spent at a look, numbered from 1: 6 / (π² look²).

    The shares of all looks sum to 1. By the union bound, the error over any number of looks is at most the level.
    """
    return 6 / (math.pi * look) ** 2


@contextmanager
def at_look(look: int) -> Iterator[None]:
    """Make `error_level` and `critical` return the thresholds of a look at data that may still grow."""
    token = _SHARE.set(level_share(look))
    try:
        yield
    finally:
        _SHARE.reset(token)


def error_level(level: float) -> float:
    """Return the error level of a test: `level`, or its share at a look.

    Examples
    --------
    >>> error_level(0.01)
    0.01
    """
    return level * _SHARE.get()


def critical(deviations: float) -> float:
    """Return the number of standard errors at which a test rejects: `deviations`, or more at a look.

    Examples
    --------
    >>> with at_look(2):
    ...     round(critical(3.0), 2), round(error_level(0.01), 5)
    (3.53, 0.00152)
    """
    share = _SHARE.get()
    return deviations if share == 1.0 else -NormalDist().inv_cdf(NormalDist().cdf(-deviations) * share)


def two_sided_level(deviations: float) -> float:
    """Return the error level of a two-sided test that rejects at a number of standard errors.

    Examples
    --------
    >>> round(two_sided_level(3.0), 4)
    0.0027
    """
    return 2 * NormalDist().cdf(-deviations)

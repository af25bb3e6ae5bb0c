"""Claims about the results of a study, with checks of the stored numbers, and errata of the papers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.declare.factors import Value

Kind = Literal["conclusion", "addition", "self-check"]
Verdict = Literal[
    "reproduced", "not reproduced", "holds", "does not hold", "passed", "failed", "corrected", "undecided"
]
Check = Callable[[Mapping[str, Any]], "Finding"]

VERDICTS: Mapping[Kind, tuple[Verdict, Verdict]] = {
    "conclusion": ("reproduced", "not reproduced"),
    "addition": ("holds", "does not hold"),
    "self-check": ("passed", "failed"),
}
"""Kind of claim -> verdict on a true statement, and on a false one."""


@dataclass(frozen=True)
class Finding:
    """Result of the check of a claim.

    Attributes
    ----------
    verdict : str
        From a check: ``"holds"``, ``"does not hold"``, ``"corrected"`` for a statement that holds only in part, or
        ``"undecided"``. From `Claim.judge`: the first two are replaced by the words of `VERDICTS`.
    evidence : str
        Numbers that support the verdict.
    """

    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Erratum:
    """Error in a paper.

    Attributes
    ----------
    printed, correct : str
        Printed statement, and the correct one.
    place : str
        Location in the paper; by default the location of the claim.
    paper : str
        Key of the paper; by default the paper of the claim.
    show : callable, optional
        ``{panel: summary Dataset} -> str``: numbers that demonstrate an erratum of a study without a claim on it.
    """

    printed: str
    correct: str
    place: str = ""
    paper: str = ""
    show: Callable[[Mapping[str, Any]], str] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Claim:
    """Statement about the results of a study, with a check of the stored numbers; see `claim`."""

    name: str
    statement: str
    paper: str
    place: str
    kind: Kind
    needs: Mapping[str, Mapping[str, tuple[Value, ...]]]
    check: Check = field(repr=False)
    erratum: Erratum | None = None
    min_trials: int = 100

    @property
    def source(self) -> str:
        """Kind and origin of the claim, as one phrase."""
        if self.kind == "conclusion":
            return f"{self.paper}, {self.place}"
        if self.kind == "self-check" or not self.paper:
            return f"{self.kind}; {self.place}" if self.place else self.kind
        return f"addition to {self.paper}, {self.place}" if self.place else f"addition to {self.paper}"

    def judge(self, summaries: Mapping[str, Any]) -> Finding:
        """Check the claim, and return the verdict in the words of its kind."""
        finding = self.check(summaries)
        words = dict(zip(("holds", "does not hold"), VERDICTS[self.kind], strict=True))
        return replace(finding, verdict=words.get(finding.verdict, finding.verdict))


def claim(
    name: str,
    statement: str,
    *,
    needs: Mapping[str, Mapping[str, tuple[Value, ...]]],
    paper: str = "",
    place: str = "",
    kind: Kind = "conclusion",
    erratum: Erratum | None = None,
    min_trials: int = 100,
) -> Callable[[Check], Claim]:
    """Declare a function ``{panel: summary Dataset} -> Finding`` as the check of a claim.

    Parameters
    ----------
    name, statement : str
        Label, unique in the study, and a sentence that can be understood on its own.
    needs : mapping
        Panel -> dimension -> values that must be stored to decide the claim.
    paper, place : str
        Key of the paper, and location in the paper; a conclusion requires both.
    kind : {"conclusion", "addition", "self-check"}
        Conclusion of a paper, addition of this project, or check of the study itself.
    erratum : Erratum, optional
        Error in the paper that the claim demonstrates.
    min_trials : int
        Minimum number of ok trials in every cell and setting; 1 for panels without trials. With 100, a mean is
        approximately normal.

    Examples
    --------
    >>> @claim("positive", "Every mean is positive.", needs={"p": {"n": (100,)}}, kind="self-check")
    ... def positive(summaries):
    ...     return verdict(bool((summaries["p"]["x_mean"] > 0).all()), "All means are positive.")
    >>> positive.name, positive.source
    ('positive', 'self-check')
    """
    if kind == "conclusion" and not (paper and place):
        raise ValueError(f"claim {name} of kind conclusion must have paper and place, got {paper!r} and {place!r}")

    def declare(check: Check) -> Claim:
        return Claim(name, statement, paper, place, kind, needs, check, erratum, min_trials)

    return declare


def verdict(holds: bool | None, evidence: str) -> Finding:
    """Return the finding that a statement holds, does not hold, or, for None, is undecided.

    Examples
    --------
    >>> verdict(None, "Both signs are within two standard errors.").verdict
    'undecided'
    """
    return Finding("undecided" if holds is None else "holds" if holds else "does not hold", evidence)

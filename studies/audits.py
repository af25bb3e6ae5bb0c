"""Audits of mechanisms by their names, a user's own among them: what ``dpstudies audit`` prints.

A package of one's own gives its mechanisms names by registering them as entry points of the group
``dpstudies.mechanisms``.

Mechanisms that release counts state an ε, and are compared by their exact distributions. Those that state a Rényi divergence,
one draw of a posterior or counts with normal noise, are given the first of the orders that are asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mechanisms import (
    MECHANISMS,
    Audit,
    Guarantee,
    Mechanism,
    OutputDistributions,
    RenyiGuarantee,
    Verdict,
    audit_distributions,
    count_distributions,
    validate,
)
from mechanisms.audit import ROUNDING
from mechanisms.glm.mechanisms import GLM_MECHANISMS
from mechanisms.renyi.audit import audit_densities, audit_sampling, gaussian_distributions
from mechanisms.renyi.gaussian_counts import GAUSSIAN_VARIANCES, gaussian_mechanism
from mechanisms.renyi.sampling import RENYI_SAMPLERS, calibrate_renyi, renyi_sampler
from pipeline.clusters.cluster import available_cores
from pipeline.declare.plugins import Plugins
from pipeline.declare.source import load_object
from pipeline.errors import BadInputError, unknown

ALL = "all"
"""The name that stands for every mechanism that releases counts, those of other packages among them."""

RENYI = (*RENYI_SAMPLERS, *GAUSSIAN_VARIANCES)
"""Mechanisms of this package that state a Rényi divergence."""

REGISTERED = Plugins(
    "dpstudies.mechanisms", dict.fromkeys((ALL, *MECHANISMS, *RENYI, *GLM_MECHANISMS), "mechanisms:MECHANISMS")
)
"""Name -> ``module:object`` of what other packages register; the names of this package's mechanisms are taken."""

DELTA = 1e-8
"""What mechanisms that take a δ are given where the user gives none."""


@dataclass(frozen=True)
class Question:
    """At which public parameters mechanisms are audited.

    Attributes
    ----------
    prior : tuple of float or None
        Dirichlet parameters; None where distributions bring their own data sets.
    n : int or None
        Number of records; None likewise.
    epsilon : float
        What a mechanism is given, and what distributions are compared with.
    delta : float or None
        Likewise; None is `DELTA` for a mechanism that takes a δ, and no δ at all for distributions.
    epsilons, orders : sequence of float
        Further ε of the hockey-stick profile, and Rényi orders; the first is that of mechanisms that state one.
    """

    prior: tuple[float, ...] | None
    n: int | None
    epsilon: float
    delta: float | None = None
    epsilons: Sequence[float] = ()
    orders: Sequence[float] = ()


@dataclass(frozen=True)
class Audited:
    """What an audit of one mechanism found.

    Attributes
    ----------
    name : str
        The mechanism, as the user named it.
    stated : Guarantee, RenyiGuarantee or None
        What it promises; None for a mechanism that promises nothing.
    compared : Guarantee or RenyiGuarantee
        What it was compared with: what it promises, or else the ε that was asked for.
    audit : Audit
        What it spends.
    verdict : Verdict
        Whether that is within `compared`.
    """

    name: str
    stated: Guarantee | RenyiGuarantee | None
    compared: Guarantee | RenyiGuarantee
    audit: Audit
    verdict: Verdict

    @property
    def evidence(self) -> str:
        """The neighbours and the output with the largest loss, and what was compared to find them, in one line."""
        found = self.audit
        outputs = f" on {found.n_outputs:,} outputs" if found.n_outputs else ""
        compared = f"{found.n_pairs:,} pairs{outputs}, {found.evidence}"
        if self.verdict.holds:
            return f"loses most at {found.witness} ({compared})"
        loss = found.epsilon
        if isinstance(self.compared, RenyiGuarantee):
            loss = found.renyi[self.compared.order]
        broken = f"not private: loses {loss:.4f} at {found.witness}" if self.stated is None else self.verdict.text
        return f"{broken} ({compared})"


def audit_named(names: Sequence[str], question: Question) -> tuple[list[Audited], list[str]]:
    """Audit mechanisms by their names.

    Parameters
    ----------
    names : sequence of str
        Names of mechanisms, of other packages' registered ones too, ``all``, or ``module:object`` and
        ``file.py:object`` of a `mechanisms.Mechanism` or of `mechanisms.OutputDistributions`.
    question : Question

    Returns
    -------
    audited : list of Audited
        One for each name, in their order; a name given twice counts once.
    left_out : list of str
        Which of ``all`` refuse the problem or do not load, and why.

    Raises
    ------
    BadInputError
        If a name is unknown or no mechanism, an argument is not allowed, distributions are not distributions, or an audit is too large to
        be exact. Of ``all`` those that refuse the problem are left out, unless all do.
    """
    named = {name: _find(name) for name in dict.fromkeys(names) if name != ALL}
    audited, left_out = {name: _audit(name, what, question) for name, what in named.items()}, []
    if ALL in names:
        prior, n = _problem(question)
        left_out += REGISTERED.refused()
        for name in (*MECHANISMS, *REGISTERED.added()):
            if name in audited:
                continue
            try:
                mechanism = _find(name)
                if isinstance(mechanism, Mechanism):  # distributions bring data sets of their own
                    mechanism.require(n, len(prior))
                    audited[name] = _audit(name, mechanism, question)
            except ValueError as error:
                left_out.append(str(error) if isinstance(error, BadInputError) else f"{name}: {error}")
    if not audited:
        raise BadInputError(left_out[0])
    return list(audited.values()), left_out


def tabulate_audits(audited: Sequence[Audited], question: Question) -> tuple[list[str], list[list[str]]]:
    """Return what audits found as rows of text.

    Parameters
    ----------
    audited : sequence of Audited
    question : Question
        What they were asked.

    Returns
    -------
    heads : list of str
    rows : list of list of str
    """
    heads = ["mechanism", "states", "exact loss", "exact delta", "slack", "verdict"]
    heads += [f"delta({epsilon:g})" for epsilon in question.epsilons]
    heads += [f"renyi({order:g})" for order in question.orders]
    rows = []
    for one in audited:
        found, verdict, compared = one.audit, one.verdict, one.compared
        pure = isinstance(compared, RenyiGuarantee) or compared.is_pure or found.epsilon <= compared.epsilon + ROUNDING
        slack = 0.0 if pure and abs(verdict.slack) < ROUNDING else verdict.slack
        word = "within" if verdict.holds else "BROKEN"
        rows.append(
            [
                one.name,
                str(one.stated or f"nothing (compared with {compared})"),
                f"{found.epsilon:.6g}",
                _number(found.deltas, compared.epsilon, ".3g"),
                f"{slack:.4g}{' nats' if pure else ' in delta'}",
                word if one.stated else {"within": "within here", "BROKEN": "NOT PRIVATE"}[word],
                *(_number(found.deltas, epsilon, ".3g") for epsilon in question.epsilons),
                *(_number(found.renyi, order, ".4g") for order in question.orders),
            ]
        )
    return heads, rows


def _number(found: dict[float, float], at: float, form: str) -> str:
    """Write what was found, or that it was not looked for."""
    return f"{found[float(at)]:{form}}" if float(at) in found else "not computed"


def _find(name: str) -> Mechanism | OutputDistributions | str:
    """Return a mechanism or distributions; of one that states a Rényi divergence, its name."""
    if name in RENYI:
        return name
    if name in MECHANISMS:
        return MECHANISMS[name]
    if name in GLM_MECHANISMS:
        raise BadInputError(
            f"{name} does not release counts, and is audited by 'dpstudies run renyi-audit', or over records of your "
            "own by mechanisms.audit_replacements"
        )
    if ":" not in name and name not in REGISTERED:
        known = [name for name in REGISTERED if name not in GLM_MECHANISMS]
        raise BadInputError(unknown("mechanism", name, known) + "; or module:object, or file.py:object")
    found = load_object(REGISTERED.get(name, name))
    if not isinstance(found, Mechanism | OutputDistributions):
        raise BadInputError(
            f"{name} must be a mechanisms.Mechanism or mechanisms.OutputDistributions, got {type(found).__name__}; name another "
            "object"
        )
    return found


def _problem(question: Question) -> tuple[tuple[float, ...], int]:
    """Return prior and number of records, refusing what no mechanism takes."""
    if question.prior is None or question.n is None:
        raise BadInputError("a mechanism is audited at a --prior and --n, got none; give both, as --prior 1:1 --n 100")
    if question.n < 1:
        raise BadInputError(f"n must be >= 1, got {question.n}; a data set has at least one record")
    try:
        counts = (question.n, *(0 for _ in question.prior[1:]))
        validate(question.prior, counts, question.epsilon, question.delta or DELTA)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    return question.prior, question.n


def _audit(name: str, what: Mechanism | OutputDistributions | str, question: Question) -> Audited:
    try:
        if isinstance(what, str):
            return _audit_renyi(what, question)
        distributions, stated = _distributions(what, question)
        compared = stated or Guarantee(question.epsilon)
        found = audit_distributions(
            distributions, (compared.epsilon, *question.epsilons), question.orders, available_cores()
        )
        return Audited(name, stated, compared, found, found.check(compared))
    except ValueError as error:
        raise error if isinstance(error, BadInputError) else BadInputError(f"{name}: {error}") from error
    except Exception as error:
        if name in (*MECHANISMS, *RENYI) and not isinstance(error, ArithmeticError | MemoryError):
            raise
        advice = "use fewer records, or another epsilon" if name in (*MECHANISMS, *RENYI) else "correct its code"
        raise BadInputError(f"{name} does not compute: {type(error).__name__}: {error}; {advice}") from error


def _audit_renyi(name: str, question: Question) -> Audited:
    """Audit a mechanism at the first order: one that is set by its (λ, ε), or `direct`, which nothing sets."""
    if not question.orders:
        raise BadInputError(f"{name} states a Renyi divergence of some order, got none; give one, as --order 2")
    prior, n = _problem(question)
    order = question.orders[0]
    compared = RenyiGuarantee(order, question.epsilon)
    stated = None if name == "direct" else compared
    if name in GAUSSIAN_VARIANCES:
        noisy = gaussian_mechanism(name, prior, n, order, question.epsilon)
        found = audit_densities(gaussian_distributions(noisy), question.orders)
    elif name == "direct":
        found = audit_sampling(renyi_sampler(name, prior, n, 1.0), question.orders)
    else:
        found = audit_sampling(calibrate_renyi(name, prior, n, order, question.epsilon), question.orders)
    return Audited(name, stated, compared, found, found.check(compared))


def _distributions(
    what: Mechanism | OutputDistributions, question: Question
) -> tuple[OutputDistributions, Guarantee | None]:
    """Return what is to be compared, and what is promised of it."""
    if isinstance(what, OutputDistributions):
        return what, Guarantee(question.epsilon, question.delta or 0.0)
    prior, n = _problem(question)
    stated = what.guarantee(question.epsilon, question.delta or DELTA)
    if question.delta == 0 and stated is not None and not stated.is_pure:
        raise BadInputError(f"delta must be in (0, 1) for {what.name}, got 0; it states {stated}")
    return count_distributions(what, prior, n, question.epsilon, question.delta or DELTA), stated

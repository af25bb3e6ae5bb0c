"""Audits of mechanisms selected by name, for the command ``dpstudies audit``.

Other packages give names to their mechanisms by entry points of the group ``dpstudies.mechanisms``.

Mechanisms that release counts with an (ε, δ) guarantee are audited by their exact output distributions. If the
guarantee holds, their draws are compared with these distributions at several data sets (`mechanisms.counts.draws`).
Mechanisms with a Rényi guarantee (one draw of a posterior, or counts with normal noise) are calibrated at the first
requested order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms import (
    MECHANISMS,
    Audit,
    Guarantee,
    Mechanism,
    Neighbouring,
    OutputDistributions,
    RenyiGuarantee,
    audit_distributions,
    balanced_counts,
    sampled_bound,
)
from mechanisms.audit.counts import count_distributions
from mechanisms.audit.densities import audit_densities, audit_sampling, gaussian_distributions
from mechanisms.core.exact_losses import ROUNDING, exceeds, format_excess
from mechanisms.counts.draws import DrawsAudit, audit_draws, compared_datasets
from mechanisms.counts.mechanism import validate
from mechanisms.draws.chains import GLM_CHAINS
from mechanisms.draws.gaussian_counts import GAUSSIAN_MECHANISMS, gaussian_mechanism
from mechanisms.draws.glm_mechanisms import GLM_MECHANISMS
from mechanisms.draws.tempered import RENYI_SAMPLERS, calibrate_renyi, renyi_sampler
from pipeline.clusters.launch import available_cores
from pipeline.declare.plugins import Plugins
from pipeline.declare.source import load_object
from pipeline.errors import BadInputError, as_bad_input, unknown

ALL = "all"
"""Name that selects every mechanism that releases counts, including mechanisms of other packages."""

RENYI = (*RENYI_SAMPLERS, *GAUSSIAN_MECHANISMS)
"""Mechanisms of this package with a Rényi guarantee."""

REGISTERED = Plugins(
    "dpstudies.mechanisms",
    dict.fromkeys((ALL, *MECHANISMS, *RENYI, *GLM_MECHANISMS, *GLM_CHAINS), "mechanisms:MECHANISMS"),
)
"""Name -> ``module:object`` of mechanisms registered by other packages; names of built-in mechanisms are reserved."""

_DRAWS, _CONFIDENCE = 40_000, 0.999  # of a bound from draws

_DRAWS_SECONDS = 10.0  # for the comparison of the draws of one mechanism with its distribution

DELTA = 1e-8
"""Default δ of mechanisms with a parameter δ."""


@dataclass(frozen=True)
class Question:
    """Public parameters of an audit."""

    prior: tuple[float, ...] | None  # None for audits of `OutputDistributions`, which define their own data sets
    n: int | None  # None for audits of `OutputDistributions`
    epsilon: float  # calibrates mechanisms, and is compared with losses of `OutputDistributions`
    delta: float | None = None  # None: `DELTA` for mechanisms that take a δ, 0 for `OutputDistributions`
    epsilons: Sequence[float] = ()  # additional values at which δ(ε) is computed
    orders: Sequence[float] = ()  # of Rényi divergences; Rényi mechanisms are calibrated at the first
    relation: Neighbouring = Neighbouring.REPLACE_ONE  # `OutputDistributions` define their own


@dataclass(frozen=True)
class Audited:
    """Result of the audit of one mechanism."""

    name: str  # as given by the user
    stated: Guarantee | RenyiGuarantee | None
    compared: Guarantee | RenyiGuarantee  # with the losses: the stated guarantee if any, otherwise the requested ε
    holds: bool
    evidence: str  # neighbours that attain the largest loss, and the number of compared pairs, in one line
    audit: Audit | None = None  # exact privacy losses; None if the mechanism can only be sampled
    slack: float = 0.0  # of an exact audit
    draws: DrawsAudit | None = None  # None if the exact losses exceed the guarantee, or there is no pmf or no sampler

    @property
    def deviates(self) -> bool:
        """True if draws do not follow the stated distribution."""
        return self.draws is not None and self.draws.agree is False


def _compare(
    name: str, stated: Guarantee | RenyiGuarantee | None, compared: Guarantee | RenyiGuarantee, audit: Audit
) -> Audited:
    """Compare exact privacy losses with a guarantee."""
    verdict = audit.check(compared)
    outputs = f" on {audit.n_outputs:,} outputs" if audit.n_outputs else ""
    if verdict.holds:
        evidence = f"loses most at {audit.witness}"
    elif stated is None:
        loss = audit.renyi[compared.order] if isinstance(compared, RenyiGuarantee) else audit.epsilon
        evidence = f"not private: loses {format_excess(loss, compared.epsilon)} at {audit.witness}"
    else:
        evidence = verdict.text
    evidence += f" ({audit.n_pairs:,} pairs{outputs}, {audit.evidence})"
    return Audited(name, stated, compared, verdict.holds, evidence, audit, verdict.slack)


def audit_named(names: Sequence[str], question: Question) -> tuple[list[Audited], list[str]]:
    """Audit mechanisms by name; those that can only be sampled by draws.

    Names are those of built-in or registered mechanisms, ``all``, or ``module:object`` or ``file.py:object`` of a
    `mechanisms.Mechanism` or of `mechanisms.OutputDistributions`. Return one audit per distinct name, in order, and the
    reasons for omitting mechanisms from ``all``: they do not apply to the problem or do not load.
    """
    named = {name: _find(name) for name in dict.fromkeys(names) if name != ALL}
    audited, left_out = {name: _audit(name, mechanism, question) for name, mechanism in named.items()}, []
    if ALL in names:
        prior, n = _problem(question)
        left_out += REGISTERED.refused()
        for name in (*MECHANISMS, *REGISTERED.added()):
            if name in audited:
                continue
            try:
                mechanism = _find(name)
                if isinstance(mechanism, Mechanism):  # OutputDistributions define their own data sets
                    mechanism.require(n, len(prior))
                    audited[name] = _audit(name, mechanism, question)
            except ValueError as error:
                left_out.append(str(error) if isinstance(error, BadInputError) else f"{name}: {error}")
    if not audited:
        raise BadInputError(left_out[0])
    return list(audited.values()), left_out


def tabulate_audits(audited: Sequence[Audited], question: Question) -> tuple[list[str], list[list[str]]]:
    """Return exact audits as rows of text, with column headings."""
    heads = ["mechanism", "states", "exact loss", "exact delta", "slack", "verdict"]
    heads += [f"delta({epsilon:g})" for epsilon in question.epsilons]
    heads += [f"renyi({order:g})" for order in question.orders]
    rows = []
    for audited_mechanism in audited:
        audit, compared = audited_mechanism.audit, audited_mechanism.compared
        if audit is None:
            continue
        in_nats = isinstance(compared, RenyiGuarantee) or compared.is_pure
        in_nats = in_nats or not exceeds(audit.epsilon, compared.epsilon, audit.rounding)
        slack = (
            0.0 if in_nats and abs(audited_mechanism.slack) < ROUNDING * compared.epsilon else audited_mechanism.slack
        )
        words = (
            ("within", "BROKEN")
            if audited_mechanism.stated or audited_mechanism.deviates
            else ("within here", "NOT PRIVATE")
        )
        loss = f"{audit.epsilon:.6g}"
        if (
            not audited_mechanism.holds
            and not audited_mechanism.deviates
            and in_nats
            and not isinstance(compared, RenyiGuarantee)
        ):
            loss = format_excess(audit.epsilon, compared.epsilon, loss)  # more digits, if they do not differ otherwise
        rows.append(
            [
                audited_mechanism.name,
                str(audited_mechanism.stated or f"nothing (compared with {compared})"),
                loss,
                _number(audit.deltas, compared.epsilon, ".3g"),
                f"{slack:.4g}{' nats' if in_nats else ' in delta'}",
                words[0] if audited_mechanism.holds else words[1],
                *(_number(audit.deltas, epsilon, ".3g") for epsilon in question.epsilons),
                *(_number(audit.renyi, order, ".4g") for order in question.orders),
            ]
        )
    return heads, rows


def _number(losses: dict[float, float], at: float, form: str) -> str:
    """Format `losses[at]`, or return "not computed" if `losses` has no such key."""
    return f"{losses[float(at)]:{form}}" if float(at) in losses else "not computed"


def _find(name: str) -> Mechanism | OutputDistributions | str:
    """Return the mechanism or the output distributions with a name; for a Rényi mechanism, return the name itself."""
    if name in RENYI:
        return name
    if name in MECHANISMS:
        return MECHANISMS[name]
    if name in GLM_MECHANISMS:
        raise BadInputError(
            f"{name} does not release counts; audit it with 'dpstudies run renyi-audit', or on your own records with "
            "mechanisms.audit_replacements"
        )
    if name in GLM_CHAINS:
        raise BadInputError(
            f"{name} is a chain, whose guarantee is proved and not enumerated; bound its loss from draws of "
            "mechanisms.private_chain on two neighbouring data sets with mechanisms.sampled_bound"
        )
    if ":" not in name and name not in REGISTERED and not name.endswith(".py"):
        known = [name for name in REGISTERED if name not in (*GLM_MECHANISMS, *GLM_CHAINS)]
        raise BadInputError(unknown("mechanism", name, known) + "; or pass module:object or file.py:object")
    loaded = load_object(REGISTERED.get(name, name))
    if not isinstance(loaded, Mechanism | OutputDistributions):
        raise BadInputError(
            f"{name} must be a mechanisms.Mechanism or mechanisms.OutputDistributions, got {type(loaded).__name__}; "
            "pass an object of one of these types"
        )
    return loaded


def _problem(question: Question) -> tuple[tuple[float, ...], int]:
    """Return the prior and the number of records; raise BadInputError if they are invalid for all mechanisms."""
    if question.prior is None or question.n is None:
        raise BadInputError(
            "an audit of a mechanism needs --prior and --n, got at most one; give both, e.g. --prior 1:1 --n 100"
        )
    if question.n < 1:
        raise BadInputError(f"n must be >= 1, got {question.n}; pass --n, such as 100")
    with as_bad_input():
        counts = (question.n, *(0 for _ in question.prior[1:]))
        validate(question.prior, counts, question.epsilon, question.delta or DELTA)
    return question.prior, question.n


def _audit(name: str, mechanism: Mechanism | OutputDistributions | str, question: Question) -> Audited:
    try:
        if isinstance(mechanism, str):
            return _audit_renyi(mechanism, question)
        if isinstance(mechanism, Mechanism) and mechanism.sampler is not None:
            return _audit_draws(name, mechanism, question)
        distributions, stated = _distributions(mechanism, question)
        compared = stated or Guarantee(question.epsilon, relation=distributions.relation)
        audit = audit_distributions(
            distributions, (compared.epsilon, *question.epsilons), question.orders, available_cores()
        )
        audited = _compare(name, stated, compared, audit)
        return (
            _with_draws(audited, mechanism, question) if isinstance(mechanism, Mechanism) and audited.holds else audited
        )
    except ValueError as error:
        raise error if isinstance(error, BadInputError) else BadInputError(f"{name}: {error}") from error
    except Exception as error:
        if name in (*MECHANISMS, *RENYI) and not isinstance(error, ArithmeticError | MemoryError):
            raise
        advice = "use fewer records, or another epsilon" if name in (*MECHANISMS, *RENYI) else "correct its code"
        raise BadInputError(f"{name} cannot be evaluated: {type(error).__name__}: {error}; {advice}") from error


def _with_draws(audited: Audited, mechanism: Mechanism, question: Question) -> Audited:
    """Compare draws with the distribution at edges, balanced counts and the worst pair of an audit that holds."""
    assert audited.audit is not None
    prior, n = _problem(question)
    datasets = compared_datasets(n, len(prior), audited.audit.witness)
    rng = np.random.default_rng(1)
    delta = question.delta or DELTA
    draws = audit_draws(mechanism, prior, datasets, question.epsilon, delta, rng, _DRAWS_SECONDS)
    if draws.agree is False:
        evidence = f"broken: {draws.text}; that distribution {audited.evidence}"
        return replace(audited, holds=False, evidence=evidence, draws=draws)
    return replace(audited, evidence=f"{audited.evidence}; {draws.text}", draws=draws)


def _audit_draws(name: str, mechanism: Mechanism, question: Question) -> Audited:
    """Bound the loss at neighbours of one-sided and of balanced counts from draws with a fixed seed."""
    if question.relation is not Neighbouring.REPLACE_ONE:
        raise BadInputError(f"relation must be replace-one for {name}, got add-remove; omit --relation")
    prior, n = _problem(question)
    delta, k = question.delta or DELTA, len(prior)
    compared = mechanism.stated(question.epsilon, delta) or Guarantee(question.epsilon)
    rng = np.random.default_rng(1)
    unit = np.eye(k, dtype=np.int64)
    starts = n * unit[0], n * unit[-1], balanced_counts(n, k)
    largest = [int(counts.argmax()) for counts in starts]  # one of its records moves to the next category
    moved = (counts - unit[j] + unit[(j + 1) % k] for counts, j in zip(starts, largest, strict=True))
    pairs = [(counts.tolist(), other.tolist()) for counts, other in zip(starts, moved, strict=True)]

    def sample(counts: ArrayLike, size: int) -> NDArray[np.int64]:
        return mechanism.build(prior, counts, question.epsilon, delta).sample(rng, size)

    confidence = 1.0 - (1.0 - _CONFIDENCE) / len(pairs)
    bounds = [sampled_bound(sample, *pair, _DRAWS, compared.delta, confidence) for pair in pairs]
    best, (counts, other) = max(zip(bounds, pairs, strict=True), key=lambda excess: excess[0].epsilon)
    holds = best.epsilon <= compared.epsilon  # True if the draws do not contradict the guarantee
    evidence = (
        f"can only be sampled: loses at least {best.epsilon:.4g} at {counts} against {other} "
        f"(confidence {_CONFIDENCE:.1%} over {len(pairs)} pairs, {2 * best.n_samples:,} draws per data set), "
        f"{'which does not contradict' if holds else 'which BREAKS'} {compared}"
        + ("; draws cannot prove a guarantee" if holds else "")
    )
    return Audited(name, None, compared, holds, evidence)


def _audit_renyi(name: str, question: Question) -> Audited:
    """Audit a Rényi mechanism that is calibrated to ε at the first order; `direct` has no parameter to calibrate."""
    if question.relation is not Neighbouring.REPLACE_ONE:
        raise BadInputError(
            f"relation must be replace-one for {name}, got add-remove; omit --relation, because the counts of {name} "
            "sum to the public n"
        )
    if not question.orders:
        raise BadInputError(f"an audit of {name} needs a Rényi order, got none; give one, e.g. --order 2")
    prior, n = _problem(question)
    order = question.orders[0]
    compared = RenyiGuarantee(order, question.epsilon)
    if name in GAUSSIAN_MECHANISMS:
        noisy = gaussian_mechanism(name, prior, n, order, question.epsilon)
        audit = audit_densities(gaussian_distributions(noisy), question.orders)
    elif RENYI_SAMPLERS[name].is_tunable:
        audit = audit_sampling(calibrate_renyi(name, prior, n, order, question.epsilon), question.orders)
    else:
        audit = audit_sampling(renyi_sampler(name, prior, n, 1.0), question.orders)
        return _compare(name, None, compared, audit)
    return _compare(name, compared, compared, audit)


def _distributions(
    mechanism: Mechanism | OutputDistributions, question: Question
) -> tuple[OutputDistributions, Guarantee | None]:
    """Return the output distributions of a mechanism, and its stated guarantee."""
    if isinstance(mechanism, OutputDistributions):
        return mechanism, Guarantee(question.epsilon, question.delta or 0.0, mechanism.relation)
    prior, n = _problem(question)
    stated = mechanism.stated(question.epsilon, question.delta or DELTA, question.relation)
    if question.delta == 0 and stated is not None and not stated.is_pure:
        raise BadInputError(
            f"delta must be in (0, 1) for {mechanism.name}, whose guarantee is {stated}, got 0; pass --delta, such as "
            "1e-6"
        )
    distributions = count_distributions(
        mechanism, prior, n, question.epsilon, question.delta or DELTA, question.relation
    )
    return distributions, stated

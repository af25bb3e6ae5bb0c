"""Chains for Bayesian logistic regression with a guarantee for their own finite number of steps.

Every parameter of a chain is computed from public quantities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mechanisms.core.arguments import find_entry
from mechanisms.core.metadata import Entry, Style, register
from mechanisms.draws.langevin import LangevinChain, last_langevin, published_langevin
from mechanisms.draws.penalty import PenaltyChain, published_penalty

Chain = LangevinChain | PenaltyChain


@dataclass(frozen=True, kw_only=True)
class ChainMethod(Entry):
    """Rule that plans a chain for a budget; `private_chain` applies it."""

    # (n, d, beta, epsilon, delta, norm_bound) -> chain
    plan: Callable[[int, int, float, float, float, float], Chain] = field(repr=False)


GLM_CHAINS: dict[str, ChainMethod] = register(
    __name__,
    ChainMethod(
        "langevin-last", "The last iterate of noisy Langevin dynamics for the likelihood raised to a power.",
        plan=lambda n, d, *budget: last_langevin(n, *budget), style=Style("teal", "P")),
    ChainMethod(
        "langevin", "All iterates of noisy Langevin dynamics for the posterior.",
        plan=lambda n, d, *budget: published_langevin(n, *budget), origin="baseline", style=Style("orange", "d")),
    ChainMethod(
        "penalty", "All states of the penalty algorithm, with the exact range of a record's likelihood ratio.",
        plan=published_penalty, origin="baseline", variant="exact range", style=Style("sky", "h")),
)  # fmt: skip
"""Chains by name."""


def private_chain(
    name: ChainMethod | str, n: int, d: int, beta: float, epsilon: float, delta: float, norm_bound: float = 1.0
) -> Chain:
    """Return the chain that a method plans for a budget (ε, δ).

    Parameters
    ----------
    name : ChainMethod or str
        An entry of `GLM_CHAINS` or its key.
    n, d : int
        Numbers of records and of weights, public, ≥ 1.
    beta : float
        Prior precision per record, finite and > 0: the prior is N(0, (n·beta)⁻¹I).
    epsilon : float
        Privacy loss in nats of everything that the chain publishes, finite and > 0.
    delta : float
        In (0, 1).
    norm_bound : float
        Upper bound c on ‖x‖₂ of every record, finite and > 0. It must be chosen independently of the data.

    Returns
    -------
    LangevinChain or PenaltyChain
        Its method `sample(rng, design, labels, n_chains)` returns the published iterates, and `guarantee` is μ-GDP.

    Privacy
    -------
    Replace-one with n public; proved for normal noise, without an assumption on convergence. `sample` draws noise in
    double precision, for simulations; `private_logistic` releases real data.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> for name in GLM_CHAINS:
    ...     chain = private_chain(name, n=2784, d=9, beta=0.001, epsilon=1.0, delta=1e-6)
    ...     print(name, chain.n_steps, chain.guarantee)
    langevin-last 477 0.236705-GDP
    langevin 20 0.236705-GDP
    penalty 20 0.236705-GDP
    """
    return find_entry(GLM_CHAINS, name).plan(n, d, beta, epsilon, delta, norm_bound)

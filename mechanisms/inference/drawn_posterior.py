"""Samplers of a posterior, and the posterior represented by their draws, with the Monte Carlo error of its mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, require_generator, validate_integer
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.inference.release_model import ReleaseModel

LARGEST_RHAT, LEAST_DRAWS = 1.01, 400  # limits of R-hat and of effective sample sizes of chains that have converged


Chain: TypeAlias = tuple[Callable[..., int | None], tuple[Any, ...]]
"""Kernel of a sampler, and its arguments: ``kernel(rng, start, *arguments, n_burn_in, draws)`` fills the draws of one
chain, shape (n_draws, p), and returns the number of the first iteration without an accepted draw, or None."""


def sampler(prepare: Callable[..., Chain]) -> Callable[..., Floats]:
    """Return the function that checks the arguments of a sampler and draws chains, each started from the prior.

    ``prepare(model, prior, y, starts, **options)`` returns the kernel for a standardised model and one release, and may
    change the starts, shape (n_chains, p). Draws have shape (n_chains, n_draws), or (n_chains, n_draws, p) for p > 1.
    """

    @wraps(prepare)
    def sample(
        rng: np.random.Generator, model: ReleaseModel, prior: ArrayLike, noisy_statistics: ArrayLike, *,
        n_chains: int = 4, n_burn_in: int = 2000, n_draws: int = 5000, **options: Any,
    ) -> Floats:  # fmt: skip
        checked_prior, y = model.validate_release(prior, noisy_statistics)
        require_generator(rng, "chains")
        draws = np.empty((validate_integer("n_chains", n_chains), validate_integer("n_draws", n_draws), y.size))
        n_burn_in = validate_integer("n_burn_in", n_burn_in, least=0)
        standardised, hyperparameters, release = model.standardised(checked_prior, y)
        starts = standardised.draw_parameters(rng, hyperparameters, len(draws))
        run, arguments = prepare(standardised, hyperparameters, release, starts, **options)
        for chain, start in enumerate(starts):
            failed = run(rng, start, *arguments, n_burn_in, draws[chain])
            if failed is not None:
                raise ValueError(
                    f"no draw was accepted within the maximum number of attempts at iteration "
                    f"{chain * (n_burn_in + draws.shape[1]) + failed} with {model}, prior={checked_prior.tolist()}, "
                    f"noisy_statistics={y.tolist()}; check for values that overflow"
                )
        location, scale = model.units()
        draws[..., 0] = location + scale * draws[..., 0]
        draws[..., 1:] *= scale**2
        return draws if y.size > 1 else draws[..., 0]

    return sample


@dataclass(frozen=True, eq=False)
class DrawnPosterior(Posterior):
    """Posterior represented by the draws of a sampler, which may be autocorrelated within a chain."""

    draws: Floats = field(repr=False)  # shape (n_chains, n_draws) or (n_chains, n_draws, p)

    def mean(self) -> Floats | float:
        """Return the mean of the draws; `mcse` is its standard error."""
        return _plain(self._pooled.mean(axis=0))

    def std(self) -> Floats | float:
        """Return the standard deviation of the draws."""
        return _plain(self._pooled.std(axis=0))

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the fraction of draws ≤ θ; if θ is a vector, the last axis of `theta` contains its components."""
        values, is_scalar = np.asarray(theta, dtype=np.float64), self.draws.ndim == 2
        columns = np.sort(np.atleast_2d(self._pooled.T), axis=1)
        values = values[..., None] if is_scalar else values
        counts = [np.searchsorted(column, values[..., j], side="right") for j, column in enumerate(columns)]
        shares = np.where(np.isnan(values), np.nan, np.stack(counts, axis=-1) / len(self._pooled))
        return shares[..., 0][()] if is_scalar else shares

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of the draws; if θ is a vector, the last axis contains its components."""
        return np.quantile(self._pooled, validate_probabilities(probabilities), axis=0)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` of the draws, chosen with replacement."""
        return self._pooled[rng.integers(len(self._pooled), size=size)]

    def mcse(self) -> Floats | float:
        """Return the Monte Carlo standard error of the mean, from the effective sample size of all chains."""
        from arviz_stats.base import array_stats  # slow import (1 s)

        # in units of a power of two near their range, as arviz_stats takes draws within 1e-15 as constant
        exponent = np.frexp(np.ptp(self._pooled, axis=0))[1]
        mcse = array_stats.mcse(np.ldexp(self.draws, -exponent), chain_axis=0, draw_axis=1, method="mean")
        return _plain(np.asarray(np.ldexp(mcse, exponent)))

    def diagnostics(self) -> dict[str, Floats]:
        """Return rank-normalised split R-hat, and the effective sample sizes of bulk and tails, shape (p,), by name.

        R-hat includes the folded draws, so that differences of scale count. It is the larger one, and the bulk size the
        smaller one, of θ and ln θ for positive components, or of θ and its log odds for components in (0, 1). Draws
        that are not finite have an infinite R-hat and no effective draws.
        """
        from arviz_stats.base import array_stats  # slow import (1 s)

        draws = self.draws.reshape(*self.draws.shape[:2], -1)
        finite = np.isfinite(draws).all(axis=(0, 1))
        known = np.where(finite, draws, np.arange(draws.shape[1])[:, None])
        positive = (known > 0.0).all(axis=(0, 1))
        share = positive & (known < 1.0).all(axis=(0, 1))
        log_odds = np.log(np.where(positive, known, 1.0)) - np.log1p(-np.where(share, known, 0.0))
        scales = (known, np.where(positive, log_odds, known))
        axes = {"chain_axis": 0, "draw_axis": 1}
        rhat = np.max([array_stats.rhat(values, method="rank", **axes) for values in scales], axis=0)
        bulk = np.min([array_stats.ess(values, method="bulk", **axes) for values in scales], axis=0)
        tail = array_stats.ess(known, method="tail", prob=(0.05, 0.95), **axes)
        names = {"rhat": (rhat, np.inf), "ess_bulk": (bulk, 0.0), "ess_tail": (tail, 0.0)}
        return {name: np.atleast_1d(np.where(finite, value, other)) for name, (value, other) in names.items()}

    def problem(self) -> str | None:
        """Return a sentence about chains that have not converged, or None: R-hat > 1.01, or < 400 effective draws."""
        diagnostics = self.diagnostics()
        rhat, ess = diagnostics["rhat"].max(), min(diagnostics["ess_bulk"].min(), diagnostics["ess_tail"].min())
        if rhat <= LARGEST_RHAT and ess >= LEAST_DRAWS:
            return None
        rule = f"chains must have R-hat <= {LARGEST_RHAT:g} and at least {LEAST_DRAWS} effective draws"
        return f"{rule}, got {rhat:.4f} and {ess:.0f}; pass a narrower prior or parameter_range"

    @property
    def _pooled(self) -> Floats:
        return self.draws.reshape(-1, *self.draws.shape[2:])


def _plain(values: Floats) -> Floats | float:
    return values if values.ndim else float(values)

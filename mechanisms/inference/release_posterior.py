"""Posterior of a parameter given one release, with its plot and its conversion for ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, require_generator
from mechanisms.core.html import posterior_table
from mechanisms.core.noise import Exact, Noise
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee
from mechanisms.core.protocols import Posterior
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.families import Family
from mechanisms.inference.methods import Choice
from mechanisms.tables import TablePosterior

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

_CHAINS, _DRAWS = 4, 1_000  # number of chains and of draws per chain from an exact posterior, for ArviZ
_CELLS, _TAIL = 100, 5e-4  # number of cells of a plotted density, and probability beyond each end
_COLUMNS, _SHOWN = 4, 4  # number of panels per row of a plot, and of components in a representation


class ReleasedStatistics(Protocol):
    """Model of released statistics: a `ReleaseModel`, or `NoisyCounts`."""

    @property
    def family(self) -> Family | str:
        """Name of the family."""

    @property
    def n(self) -> int | None:
        """Public number of records, or None."""

    @property
    def entry(self) -> Family:
        """Family."""

    @property
    def noises(self) -> frozenset[Noise | Exact]:
        """Distributions of the noise that inference assumes."""

    def is_surprising(self, noisy_statistics: ArrayLike, /) -> bool:
        """Return True if the noise hardly explains the release."""


@dataclass(frozen=True, eq=False, repr=False)
class ReleasePosterior(Posterior):
    """Posterior of θ given one release.

    Build it with `SumRelease`, `NoisyCounts`, `posterior_from_release` or `private_posterior`.

    All attributes are public. Methods return numbers for a scalar θ and arrays with one entry per component otherwise.

    Parameters
    ----------
    model : ReleaseModel or NoisyCounts
        Family, number of records, bounds, and the noise that the inference assumes.
    release : ndarray of float64, shape (d,)
        The noisy statistic y.
    guarantee : Guarantee, ConcentratedGuarantee or None
        Guarantee of the release, which inference does not change; None for a rehearsal, and for values without noise.
    choice : Choice
        Inference method, and the reason for its choice.
    distribution : Posterior
        Exact posterior, or the draws of a sampler.
    table : TablePosterior or None
        Posterior of the counts, whose `evaluate` gives odds ratios and other functions of several counts; None unless
        it was computed.
    labels : tuple of str
        Names of the components in plots and in `to_arviz`; set them, and the unit, with `labelled`.
    unit : str
        Unit of the records, or "".
    """

    model: ReleasedStatistics
    release: Floats
    guarantee: Guarantee | ConcentratedGuarantee | None
    choice: Choice
    distribution: Posterior
    table: TablePosterior | None = None
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def method(self) -> str:
        """Name of the inference method in `INFERENCE_METHODS`."""
        return self.choice.method

    @property
    def reason(self) -> str:
        """Reason for the choice of the method."""
        return self.choice.reason

    @property
    def is_surprising(self) -> bool:
        """True if y is so far outside the range of the statistic that the noise hardly explains it."""
        return self.model.is_surprising(self.release)

    def mean(self) -> Floats | float:
        """Return the posterior mean E[θ | y]."""
        return self.distribution.mean()

    def std(self) -> Floats | float:
        """Return the standard deviation of θ given y."""
        return self.distribution.std()

    def mcse(self) -> Floats | float:
        """Return the Monte Carlo standard error of `mean`; 0 for an exact posterior."""
        exact = self.distribution
        return exact.mcse() if isinstance(exact, DrawnPosterior) else 0.0 * exact.mean()

    def diagnostics(self) -> dict[str, Floats]:
        """Return R-hat and effective sample sizes of chains; empty for an exact posterior.

        Returns
        -------
        dict of str to ndarray of float64, shape (p,)
            ``rhat``, rank-normalised split R-hat; ``ess_bulk`` and ``ess_tail``, effective sample sizes. Chains have
            converged if R-hat is at most 1.01 and both sizes are at least 400.
        """
        return self.distribution.diagnostics() if isinstance(self.distribution, DrawnPosterior) else {}

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ θ, for each component along the last axis if θ is a vector.

        Raises
        ------
        ValueError
            If θ is a vector and the last axis of `theta` does not contain its components.
        """
        mean, shape = self.mean(), np.shape(theta)
        if np.ndim(mean) and shape[-1:] != np.shape(mean):
            names = ", ".join(self._components())
            raise ValueError(f"the last axis of theta must have one value each for {names}, got shape {shape}")
        return self.distribution.cdf(theta)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of each component, for probabilities in (0, 1)."""
        return self.distribution.quantile(probabilities)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` draws of θ.

        The draws are independent for an exact posterior, otherwise resampled with replacement from sampler output.
        """
        return self.distribution.sample(rng, size)

    def labelled(self, labels: Sequence[str], unit: str = "") -> ReleasePosterior:
        """Return the same posterior with names of its components and a unit, for plots and `to_arviz`.

        Parameters
        ----------
        labels : sequence of str
            One distinct name per component, such as the names of the categories.
        unit : str
            Unit of the records; a variance has the square of this unit.

        Raises
        ------
        ValueError
            If `labels` are not distinct strings, one per component.

        Examples
        --------
        >>> from mechanisms import posterior_from_release
        >>> posterior = posterior_from_release([41, 39, 22], "multinomial", (1, 1, 1), n=100, epsilon=1.0)
        >>> posterior.labelled(["red", "green", "blue"]).to_arviz(np.random.default_rng(1)).posterior.category.values
        array(['red', 'green', 'blue'], dtype='<U5')
        """
        names, size = tuple(labels), np.size(self.mean())
        is_valid = not isinstance(labels, str) and all(isinstance(name, str) for name in names)
        if not is_valid or not len(names) == len(set(names)) == size:
            raise ValueError(f"labels must be {size} distinct strings, got {labels!r}; pass one per component")
        return replace(self, labels=names, unit=unit)

    def plot(self) -> Figure:
        """Return a figure of the posterior density of each component, with the 95 % interval shaded.

        Returns
        -------
        matplotlib.figure.Figure
            Figure created by ``pyplot``, with one axes per component.

        Examples
        --------
        >>> from mechanisms import posterior_from_release
        >>> figure = posterior_from_release(63.7, "binomial", (1, 1), n=100, epsilon=0.5).plot()
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['theta']
        """
        import matplotlib.pyplot as plt  # slow import

        names = self._components()
        columns = min(len(names), _COLUMNS)
        rows = -(-len(names) // columns)
        size = 4.0 * columns, 3.0 * rows
        figure, panels = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        edges, density = tabulate_density(self)
        low, high = map(np.atleast_1d, self.interval())
        for j, (axes, name) in enumerate(zip(panels.flat, names, strict=False)):
            axes.axvspan(low[j], high[j], alpha=0.15, linewidth=0)
            axes.stairs(density[j], edges[j], baseline=None)
            unit = self._unit(j)
            axes.set(xlabel=f"{name} ({unit})" if unit else name, ylabel="posterior density", ylim=(0.0, None))
        for axes in panels.flat[len(names) :]:
            axes.remove()
        return figure

    def to_arviz(self, rng: np.random.Generator | None = None) -> xr.DataTree:
        """Convert the posterior to an `xarray.DataTree` for ArviZ, with the groups ``posterior`` and ``observed_data``.

        Parameters
        ----------
        rng : numpy.random.Generator, optional
            Generator that draws 4 chains of 1,000 independent values from an exact posterior. The chains of a sampler
            are converted unchanged and need no generator.

        Returns
        -------
        xarray.DataTree
            ``posterior`` contains ``theta``, or ``mean`` and ``variance`` if the variance of the records is unknown;
            ``observed_data`` contains ``release``. Attributes contain the family, n, the method and the guarantee.

        Raises
        ------
        ValueError
            If the posterior is exact and `rng` is None.

        Examples
        --------
        >>> from mechanisms import posterior_from_release
        >>> posterior = posterior_from_release(63.7, "binomial", (1, 1), n=100, epsilon=0.5)
        >>> dict(posterior.to_arviz(np.random.default_rng(1)).posterior.sizes)
        {'chain': 4, 'draw': 1000}
        """
        import xarray as xr  # slow import

        if isinstance(self.distribution, DrawnPosterior):
            draws = self.distribution.draws
        else:
            generator = require_generator(rng, "an exact posterior, which has no draws of its own")
            drawn = self.sample(generator, _CHAINS * _DRAWS)
            draws = drawn.reshape(_CHAINS, _DRAWS, *drawn.shape[1:])
        dims, coords = ("chain", "draw", "category")[: draws.ndim], {}
        if self.model.entry.has_square:
            variables = {name: (dims[:2], draws[..., j]) for j, name in enumerate(("mean", "variance"))}
        else:
            variables = {"theta": (dims, draws)}
            coords = {"category": list(self.labels)} if self.labels and draws.ndim == 3 else {}
        n = "unknown" if self.model.n is None else self.model.n
        attributes = {"family": self.model.family, "n": n, "method": self.method, "guarantee": self._stated()}
        observed = xr.Dataset({"release": ("component", self.release)})
        posterior = xr.Dataset(variables, coords, attributes)
        for j, variable in enumerate(posterior.data_vars.values()):
            named = {"long_name": self.labels[j] if self.labels and not coords else "", "units": self._unit(j)}
            variable.attrs.update({key: text for key, text in named.items() if text})
        return xr.DataTree.from_dict({"posterior": posterior, "observed_data": observed})

    def _unit(self, component: int) -> str:
        """Return the unit of a component; that of a variance is a square."""
        is_variance = self.model.entry.has_square and component == 1
        return f"{self.unit}²" if is_variance and self.unit else self.unit

    def _components(self) -> list[str]:
        if self.labels:
            return list(self.labels)
        if self.model.entry.has_square:
            return ["mean", "variance"]
        mean = self.mean()
        return ["theta"] if np.ndim(mean) == 0 else [f"theta[{j}]" for j in range(np.size(mean))]

    def _noise(self) -> str:
        if len(self.model.noises) > 1:
            return f"{len(self.model.noises)} kinds"
        (noise,) = self.model.noises
        return f"{noise.name}({noise.scale:.4g})" if isinstance(noise, Noise) else "EXACT"

    def _stated(self) -> str:
        if self.guarantee is not None:
            return str(self.guarantee)
        return "none" if any(isinstance(noise, Exact) for noise in self.model.noises) else "none (rehearsal)"

    def __repr__(self) -> str:
        mean, chains = _brief(self.mean()), ""
        if isinstance(self.distribution, DrawnPosterior):
            diagnostics = self.diagnostics()
            ess = min(diagnostics["ess_bulk"].min(), diagnostics["ess_tail"].min())
            mean += f" ± {_brief(self.mcse(), 1)} (mcse)"
            chains = f", rhat={diagnostics['rhat'].max():.3f}, ess={ess:.0f}"
        return (
            f"ReleasePosterior({self.model.family}, n={self.model.n}, noise={self._noise()}, mean={mean}, "
            f"std={_brief(self.std())}, method={self.method}{chains}, guarantee={self._stated()})"
        )

    def _repr_html_(self) -> str:
        low, high = self.interval()
        return posterior_table(
            f"Posterior given a release, {self.model.family}",
            self._components(),
            {"mean": self.mean(), "sd": self.std(), "95 % from": low, "to": high},
            f"n = {self.model.n}; noise: {self._noise()}; method: {self.method}; guarantee: {self._stated()}",
        )


def tabulate_density(posterior: Posterior) -> tuple[Floats, Floats]:
    """Return the edges of cells of a drawn density, shape (p, 101), and the mean density in each, shape (p, 100)."""
    first, last = posterior.quantile([_TAIL, 1.0 - _TAIL])
    edges = np.linspace(first, last, _CELLS + 1)
    density = np.diff(posterior.cdf(edges), axis=0) / np.diff(edges, axis=0)
    return edges.reshape(len(edges), -1).T, density.reshape(len(density), -1).T


def _brief(values: Floats | float, digits: int = 4) -> str:
    """Return a number, or the first components of an array, as text for a representation on one line."""
    if np.ndim(values) == 0:
        return f"{values:.{digits}g}"
    shown = [f"{value:.{digits}g}" for value in np.asarray(values)[:_SHOWN]]
    return f"[{', '.join(shown)}{', …' if np.size(values) > _SHOWN else ''}]"

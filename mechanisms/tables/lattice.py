"""Integrals of a smooth density of two real parameters by sums over a lattice around its maximum.

The sum of a smooth density over a lattice, times the area of a cell, is its integral up to an error that falls
exponentially with the inverse squared spacing: 2·exp(−2π²·σ²/h²) for a normal density with standard deviation σ and
spacing h, 0.3 % at h = 1.75·σ, and 2·(2π²/h)·exp(−2π²/h) for a logistic density, 0.005 % at h = 1.5. The spacing suits
the density around its maximum; where ridges become narrower the error is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mechanisms.core.arguments import Floats

LogDensity = Callable[[Floats], float]

_WIDEST = 0.75, 1.5  # largest spacings
_BEND = 1.75**2  # largest second difference of the log density: a spacing of 1.75 standard deviations
_DEEP = 6.0  # log density below the maximum of the lattice at which points are omitted
_MOST = 200  # largest number of points
_MOVES = 400  # largest number of steps to the maximum
_NEIGHBOURS = ((1, 0), (-1, 0), (0, 1), (0, -1))
_SIGNS = np.array([(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)])
_CORRECTIONS = 6  # largest number of corrections of mean and covariance of four points
_RIGHT = 0.2  # largest relative error of the variances of four points
_CENTRED = 0.4  # largest distance of the mean of four points from that of the density, in standard deviations


class Points(NamedTuple):
    """Points whose log densities, with the area of each point, integrate a density."""

    at: Floats  # shape (k, 2)
    log_density: Floats  # shape (k,)
    area: float

    @property
    def weights(self) -> Floats:
        """Weights of the points, which sum to 1."""
        weights = np.exp(self.log_density - self.log_density.max())
        return weights / weights.sum()

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean and covariance, shapes (2,) and (2, 2)."""
        mean = self.weights @ self.at
        return mean, (self.at - mean).T * self.weights @ (self.at - mean)


def fill_lattice(log_density: LogDensity, start: Floats) -> Points:
    """Return the points of a lattice on which a density with finite tails has a relevant value.

    The search climbs from `start` to the maximum on a lattice, which becomes finer until the density is smooth on it.
    """
    known: dict[tuple[float, float], float] = {}

    def density(at: Floats) -> float:
        key = (round(float(at[0]), 9), round(float(at[1]), 9))
        if key not in known:
            known[key] = log_density(at)
        return known[key]

    centre, spacing = np.array(start, dtype=np.float64), np.array(_WIDEST)
    while True:
        centre = _climb(density, centre, spacing)
        rays = np.array([[density(centre + sign * move) for sign in (1, -1)] for move in np.diag(spacing)])
        bend = 2.0 * density(centre) - rays.sum(axis=1)
        if np.all(bend <= _BEND):
            break
        spacing = spacing * np.where(bend > _BEND, np.clip(np.sqrt(0.75 * _BEND / np.maximum(bend, 1.0)), 0.25, 1), 1)
    densities = _fill(density, centre, spacing)
    while len(densities) > _MOST:  # the maximum is a narrow peak on a wide plateau
        spacing[np.argmax(np.ptp(np.array(list(densities)), axis=0))] *= 1.3
        densities = _fill(density, centre, spacing)
    at = np.array([centre + spacing * place for place in densities])
    return Points(at, np.array(list(densities.values())), float(spacing.prod()))


def _climb(density: LogDensity, centre: Floats, spacing: Floats) -> Floats:
    """Return the point of the lattice through `centre` that no neighbour exceeds."""
    for _ in range(_MOVES):
        neighbours = [centre + spacing * place for place in _NEIGHBOURS]
        values = [density(at) for at in neighbours]
        if max(values) <= density(centre):
            break
        centre = neighbours[int(np.argmax(values))]
    return centre


def _fill(density: LogDensity, centre: Floats, spacing: Floats) -> dict[tuple[int, int], float]:
    """Return the connected places of the lattice with a relevant density; more than `_MOST` if the search ended."""
    densities = {(0, 0): density(centre)}
    best, border = densities[0, 0], [(0, 0)]
    while border and len(densities) <= 3 * _MOST:
        place = border.pop(0)
        if densities[place] < best - _DEEP:
            continue
        for move in _NEIGHBOURS:
            neighbour = (place[0] + move[0], place[1] + move[1])
            if neighbour not in densities:
                densities[neighbour] = density(centre + spacing * neighbour)
                best = max(best, densities[neighbour])
                border.append(neighbour)
    return densities if border else {place: value for place, value in densities.items() if value >= best - _DEEP}


def four_points(log_density: LogDensity, mean: Floats, covariance: Floats) -> Points | None:
    """Return four points with the mean and the covariance of a density that is nearly normal; None if it is not.

    They are those of the product of two Gauss-Hermite rules, one standard deviation to both sides of the mean on the
    axes of a Cholesky root of the covariance. `mean` and `covariance` are about those of the density. The differences
    of the four values correct the mean, and their distance from the value at the mean, which is 1 for a normal density,
    the size of the covariance.
    """
    for _ in range(_CORRECTIONS):
        root = np.linalg.cholesky(covariance)
        at = mean + _SIGNS @ root.T
        values = np.array([log_density(point) for point in at])
        bend = log_density(mean) - values.mean()
        shift = 0.25 * values @ _SIGNS
        if abs(bend - 1.0) <= _RIGHT and np.abs(shift).max() <= _CENTRED:
            return Points(at, values, 0.5 * np.pi * np.e * float(np.prod(np.diag(root))))
        bend = float(np.clip(bend, 0.25, 16.0))
        mean, covariance = mean + root @ np.clip(shift / bend, -4.0, 4.0), covariance / bend
    return None

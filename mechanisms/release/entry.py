"""Releases that have passed their checks, and the exact noise that they draw once they are entered.

Samplers in double precision are not private, as the set of possible outputs depends on the data and outputs of small
probability never occur. Exact noise consists of integers that OpenDP draws in rational arithmetic, without a seed
(Canonne, Kamath & Steinke 2020). Scales are rounded up, so the privacy loss is at most the requested one.

Noise is drawn by `ExactNoise`, whose construction enters a release: the line of the ledger is on disk, and the hook has
returned, before an object with methods that draw exists. Every error of the arguments must be raised before, because an
entry remains if the noise is not drawn.

OpenDP is an optional package: ``pip install 'dpstudies[release]'``.

References
----------
Mironov, "On significance of the least significant bits for differential privacy", CCS 2012. Canonne, Kamath & Steinke,
"The discrete Gaussian for differential privacy", NeurIPS 2020, algorithms 1 to 3. OpenDP: https://docs.opendp.org.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mechanisms.core.arguments import Floats, Integers, describe
from mechanisms.core.exact_scales import SUM_BITS, expected_rejections, noisy_sums_scale
from mechanisms.core.privacy import Guarantee
from mechanisms.release.ledger import LedgerFile
from mechanisms.release.rehearsal import Rehearsal

Hook = Callable[[], object]
"""Function that is called after the entry in the ledger and directly before noise is drawn."""

LedgerLike = LedgerFile | str | os.PathLike[str]
"""Ledger, or the path of an existing one."""


@dataclass(frozen=True)
class CheckedRelease:
    """Release of real data that has passed its public checks, and has drawn nothing.

    Construction raises ValueError if the ledger has less left than the guarantee spends, and ModuleNotFoundError
    without OpenDP; nothing is written.
    """

    guarantee: Guarantee
    name: str  # text of the line in the ledger, unless the ledger has a label
    ledger: LedgerFile | None = None
    before_release: Hook | None = None

    def __post_init__(self) -> None:
        if self.before_release is not None and not callable(self.before_release):
            raise ValueError(
                f"before_release must be a function, got {describe(self.before_release)}; pass one or None"
            )
        if self.ledger is not None:
            self.ledger.check(self.guarantee)
        require_opendp()

    def enter(self) -> ExactNoise:
        """Enter the release in the ledger, call the hook, and return the exact noise of this release."""
        return ExactNoise(self)


def check_release(
    guarantee: Guarantee | None,
    name: str,
    rehearsal_seed: int | None,
    ledger: LedgerLike | None = None,
    before_release: Hook | None = None,
) -> CheckedRelease | Rehearsal:
    """Return the checked release of a function that releases real data, or a rehearsal.

    Parameters
    ----------
    guarantee : Guarantee or None
        Guarantee of the release; None is refused unless it is a rehearsal.
    name : str
        Name of the function in the ledger.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which is reproducible and not private. A rehearsal enters nothing and calls nothing.
    ledger : LedgerFile or path, optional
        Ledger of all releases from the same records, or the path of an existing one. The release is a line of the file,
        on disk, before the noise is drawn; a release that exceeds the budget is refused, and draws nothing.
    before_release : callable, optional
        Function without arguments, called after the entry in the ledger and directly before the noise is drawn. An
        exception that it raises prevents the release, but the entry remains.

    Raises
    ------
    ValueError
        If an argument is invalid, or the ledger cannot be read.
    """
    if rehearsal_seed is not None:
        return Rehearsal(rehearsal_seed)
    if guarantee is None:
        raise ValueError(f"{name} must have a guarantee to release real data, got none; use another mechanism")
    return CheckedRelease(guarantee, name, open_ledger(ledger), before_release)


def open_ledger(ledger: LedgerLike | None) -> LedgerFile | None:
    """Return a ledger given as such or as the path of an existing file."""
    if ledger is None or isinstance(ledger, LedgerFile):
        return ledger
    if not isinstance(ledger, str | os.PathLike):
        raise ValueError(f"ledger must be a LedgerFile or a path, got {describe(ledger)}; pass one of them")
    if not os.path.exists(ledger):
        raise ValueError(f"ledger must exist, got {os.fspath(ledger)}; start it by LedgerFile(path, budget=3)")
    return LedgerFile(ledger)


class ExactNoise:
    """Exact noise of one release with entropy of the operating system; construction enters the release.

    Tests replace methods of this class, which nothing else in the package can draw without.
    """

    def __init__(self, release: CheckedRelease) -> None:
        if release.ledger is not None:
            release.ledger.spend(release.guarantee, release.ledger.label or release.name)
        if release.before_release is not None:
            release.before_release()

    def laplace(self, scale: float, size: int) -> Integers:
        """Draw independent integers z with Pr[z] exactly proportional to exp(−|z|/scale), scale in (0, 2⁵²]."""
        dp = require_opendp()
        domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return np.array(dp.m.make_laplace(domain, metric, scale=float(scale))([0] * size), dtype=np.int64)

    def gaussian(self, std: float, size: int) -> Integers:
        """Draw independent integers z with Pr[z] exactly proportional to exp(−z²/(2·std²)), std in (0, 2⁵²]."""
        dp = require_opendp()
        domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
        return np.array(dp.m.make_gaussian(domain, metric, scale=float(std))([0] * size), dtype=np.int64)

    def below(self, n: int) -> int:
        """Draw a uniform integer in [0, n), of any size."""
        return secrets.randbelow(n)

    def sum_zero(self, kind: Literal["laplace", "gaussian"], scale: float, k: int) -> Integers:
        """Draw k independent integers given a sum of zero by exact rejection, whose running time depends on no data."""
        draw, expected = getattr(self, kind), expected_rejections(scale, k)
        batch = min(4096, math.ceil(expected))
        for _ in range(math.ceil(60 * expected / batch)):  # the probability that all vectors are rejected is exp(−60)
            vectors = draw(scale, batch * k).reshape(batch, k)
            hits = np.flatnonzero(vectors.sum(axis=1) == 0)
            if hits.size:
                return vectors[hits[0]]
        raise RuntimeError("a lattice vector must be accepted within 60 times the expected number of draws; try again")

    def noisy_sums(self, values: Floats, low: float, high: float, epsilon: float) -> Floats:
        """Return sums of the columns of private values (M, c), clipped to public bounds, with exact noise, each ε-DP.

        Each value is rounded to `low` plus a multiple of the unit u = (high − low)/2³², which changes a sum by at most
        M·u/2, or 2⁻³³·M·ε noise scales. In units of u the sensitivity is 2³² and the scale `noisy_sums_scale`.
        """
        unit = (high - low) * 2.0**-SUM_BITS
        units_above_low = np.clip(np.rint((np.clip(values, low, high) - low) / unit), 0, 2**SUM_BITS)
        noise = self.laplace(noisy_sums_scale(epsilon), values.shape[1])
        sums = [sum(map(int, column)) + z for column, z in zip(units_above_low.T.tolist(), noise.tolist(), strict=True)]
        return np.array([len(values) * low + unit * total for total in sums])


def require_opendp() -> Any:
    """Return the module ``opendp.prelude``, which releases of real data need."""
    try:
        import opendp.prelude as dp
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"OpenDP must be installed to release real data, got: {error}; run: pip install 'dpstudies[release]', or "
            "rehearse with a seed, which is not private"
        ) from error
    dp.enable_features("contrib")
    return dp

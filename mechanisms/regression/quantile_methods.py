"""Methods of `mechanisms.regression.partition_quantile`: the interval to which quantiles are clipped (P2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from mechanisms.metadata import Entry, Style
from mechanisms.regression.partition_probability import with_noiseless


@dataclass(frozen=True)
class QuantileMethod(Entry):
    """Method of choosing the clipping interval."""

    base: str = field(kw_only=True)  # name of the corresponding method with noise
    # the noise of the search is calibrated to its exact privacy loss
    is_exact: bool = field(default=False, kw_only=True)
    has_noise: bool = field(default=True, kw_only=True)
    is_centred: bool = field(kw_only=True)  # the centre of the interval is released instead of being 0

    @property
    def is_private(self) -> bool:
        """True if the release is ε-DP per quantile."""
        return self.has_noise

    @property
    def parts(self) -> tuple[str, ...]:
        """Steps among which the budget is divided."""
        return ("scale", "centre", "noise") if self.is_centred else ("bounds", "noise")


_NOISY = (
    QuantileMethod(
        "quantile",
        "Mean of clipped quantiles, with bounds from the sparse vector technique.",
        base="quantile",
        is_centred=False,
        origin="paper",
        paper="P2",
        style=Style("vermilion", "P"),
    ),
    QuantileMethod(
        "quantile-centred",
        "Mean of clipped quantiles, with bounds around a private centre.",
        base="quantile-centred",
        is_centred=True,
        style=Style("blue", "h"),
    ),
)

_EXACT = QuantileMethod(
    "quantile-exact",
    "As quantile, with the least noise for which the exact loss of the search is its part of epsilon.",
    base="quantile-exact",
    is_exact=True,
    is_centred=False,
    style=Style("orange", "X"),
)

QUANTILE_METHODS: dict[str, QuantileMethod] = {**with_noiseless(_NOISY), _EXACT.name: _EXACT}
"""Methods by name; a variant without noise follows the method with noise."""

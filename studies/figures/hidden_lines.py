"""Statement about the lines that a figure hides at first, which is computed from its estimates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import counted
from studies.figures.first_lines import COMPARISONS
from studies.figures.plot import Plot

_MOST_NAMED = 3  # lines with points outside of an axis


@dataclass(frozen=True)
class HiddenLines:
    """Lines of a figure that are hidden at first, and those of them that are better at some point than all shown ones.

    Attributes
    ----------
    hidden, lines : tuple of str
        Hidden and all lines.
    better : mapping of str to tuple of str
        Phrase such as "lower estimate" -> those lines. It names the vertical axis if not all plots have a direction.
    """

    hidden: tuple[str, ...]
    lines: tuple[str, ...]
    better: Mapping[str, tuple[str, ...]]

    @property
    def note(self) -> str:
        """Phrase for a static image; empty if no line is hidden."""
        if not self.hidden:
            return ""
        phrases = [
            f"{len(names) or 'none'} with a {phrase} at {'some' if names else 'any'} point"
            for phrase, names in self.better.items()
        ]
        n_hidden = len(self.hidden)
        return ", ".join([f"{n_hidden} more line{'s' if n_hidden > 1 else ''} on the interactive page", *phrases])

    @property
    def sentence(self) -> str:
        """Sentences of a caption; empty if no line is hidden."""
        if not self.hidden:
            return ""
        is_one = len(self.hidden) == 1
        # named where no estimate is better than another
        listed = "" if self.better else f": {', '.join(self.hidden)}"
        texts = [f"{len(self.hidden)} of {len(self.lines)} lines {'is' if is_one else 'are'} hidden at first{listed}."]
        for phrase, names in self.better.items():
            if names:
                has = "has" if len(names) == 1 else "have"
                texts.append(f"At some points, {', '.join(names)} {has} a {phrase} than every shown line.")
        if none := [phrase for phrase, names in self.better.items() if not names]:
            line = f"{'the' if is_one else 'a'} hidden line"
            texts.append(f"At no point does {line} have a {' or a '.join(none)} than every shown line.")
        return " ".join(texts)


def describe_hidden(plots: Sequence[Plot]) -> HiddenLines:
    """Return the lines that a figure of some plots, one above the other, hides at first."""
    named = [plot for plot in plots if plot.named]
    shown = {name for plot in named for name in plot.shown}
    lines = dict.fromkeys(name for plot in named for name in plot.series)
    better: dict[str, tuple[str, ...]] = {}
    are_all_directed = all(plot.best for plot in named)
    for plot in named:
        estimate = "estimate" if are_all_directed else f"estimate of the {plot.y.title}"
        for comparative, reduction in COMPARISONS[plot.best].items():
            names = _better_than_shown(plot, shown, reduction)
            phrase = f"{comparative} {estimate}"
            better[phrase] = tuple(dict.fromkeys((*better.get(phrase, ()), *names)))
    return HiddenLines(tuple(name for name in lines if name not in shown), tuple(lines), better)


def describe_outside(plots: Sequence[Plot]) -> str:
    """Return a sentence on the estimates that lie outside of a vertical axis with limits; empty if there are none."""
    outside: dict[str, int] = {}
    for plot in plots:
        low, high = plot.limits
        for estimates in plot.estimates:
            counts = ((estimates < low) | (estimates > high)).sum()
            for name, count in counts[counts > 0].items():
                outside[str(name)] = outside.get(str(name), 0) + int(count)
    if not outside:
        return ""
    texts = [f"{counted(count, 'point')} of {name}" for name, count in outside.items()]
    if len(texts) > _MOST_NAMED:
        texts = [f"{sum(outside.values())} points of {len(texts)} lines"]
    return f"Outside of the axis: {', '.join(texts)}."


def _better_than_shown(plot: Plot, shown: set[str], reduction: str) -> tuple[str, ...]:
    """Return the hidden series of a plot that are better at some point than all shown ones."""
    better: set[str] = set()
    for estimates in plot.estimates:
        sign = 1 if reduction == "min" else -1
        is_shown = estimates.columns.isin(list(shown))
        best_shown = (sign * estimates.loc[:, is_shown]).min(axis=1).fillna(np.inf)
        is_better = (sign * estimates.loc[:, ~is_shown]).lt(best_shown, axis=0).any()
        better.update(is_better.index[is_better])
    return tuple(name for name in plot.series if name in better)

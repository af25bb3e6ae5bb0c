"""Values released by the command ``dpstudies partition``, as text and in files."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mechanisms.core.privacy import Guarantee
from mechanisms.regression.partition_probability import PartitionProbability
from mechanisms.regression.partition_quantile import SCALE_WINDOW, PartitionQuantile
from mechanisms.regression.statistics import LARGEST_NUMBER
from studies.output import print_table, say
from studies.own_data.output import guarantee_values, print_release, state_guarantee

ALLOWED_FAILURE = 0.01
"""Default of the largest allowed probability of a misplaced clipping interval."""

Mechanism = PartitionProbability | PartitionQuantile


@dataclass(frozen=True)
class Release:
    """Released values with their privacy loss.

    `values` has one row per cutoff or probability; the column `epsilon` of a release is its privacy loss. Quantiles
    increase with p, and have the standard deviation of the noise (`noise`), the clipping interval, and `capped`, which
    is True if the search reached the largest number of doublings. All columns are released.
    """

    values: pd.DataFrame
    mechanism: Mechanism
    n_rows: int
    guarantee: Guarantee | None  # of all values jointly; None if not private
    allowed_failure: float = ALLOWED_FAILURE  # largest value of `failure` without a warning
    rehearsal: bool = True  # noise is generated from a seed; not private
    question: Mapping[str, Any] = field(default_factory=dict)  # what the values are of, for JSON

    @property
    def failure(self) -> float:
        """Probability of a misplaced clipping interval, estimated from the released values; 0 for cutoffs.

        For ``quantile-centred``, an interval is misplaced if its scale is wrong by a factor above √2, or its centre by
        more than two scales; for other methods, if the search ends at its largest interval although a much smaller one
        would contain all quantiles of the partitions. See `PartitionQuantile.miss_probability`.
        """
        if isinstance(self.mechanism, PartitionProbability):
            return 0.0
        if not self.mechanism.method.is_centred:
            return self.mechanism.miss_probability(len(self.values))
        low, high = self.values["clipped_from"].to_numpy(), self.values["clipped_to"].to_numpy()
        centres, scales = np.abs(low + high) / 2, (high - low) / (2 * SCALE_WINDOW)
        # the ends of a narrow interval far from 0 may be equal after rounding
        ratios = np.divide(centres, scales, out=np.full_like(centres, math.inf), where=scales > 0)
        return self.mechanism.miss_probability(len(self.values), float(ratios.max()))

    @property
    def budget(self) -> str:
        """Privacy loss of the release, in one line; a rehearsal spends nothing."""
        mechanism = self.mechanism
        shared = f"{mechanism.shared_loss:g} + " if mechanism.shared_loss and mechanism.method.is_private else ""
        losses = f"{shared}{len(self.values)} x {mechanism.loss:g}"
        if self.guarantee is None:
            return f"NOT PRIVATE: the privacy loss of {mechanism.name} is {losses} nats, more than the given epsilon"
        return (
            f"{'no budget spent; a release would spend' if self.rehearsal else 'budget spent:'} {losses} nats, "
            f"{self.guarantee} in total, for all tables of numbers, where those beyond ±{LARGEST_NUMBER:g} count as "
            f"±{LARGEST_NUMBER:g} ({self.guarantee.relation.value})"
        )

    @property
    def lines(self) -> list[str]:
        """Lines of text with the guarantee, the partitions, the privacy loss and warnings."""
        n_partitions, failure = self.mechanism.n_partitions, self.failure
        fewest, n_larger = divmod(self.n_rows, n_partitions)
        sizes = f"{fewest:,} rows" + (f", {n_larger:,} of them with one more" if n_larger else "")
        lines = [
            *state_guarantee(None if self.rehearsal else self.guarantee, self.n_rows),
            f"{self.n_rows:,} rows, divided at random into {n_partitions:,} partitions of {sizes}",
            f"{self.mechanism.name}: {self.budget}",
        ]
        capped = self.values["p"][self.values["capped"]] if "capped" in self.values else []
        if len(capped):
            spent = "" if self.rehearsal else ", and the budget is spent"
            lines.append(
                f"the search for bounds failed at p = {', '.join(f'{p:g}' for p in capped)}: the values are mostly "
                f"noise{spent}; increase --mu, decrease --theta, or use --method quantile-centred"
            )
        if failure > self.allowed_failure:
            lines.append(
                f"a clipping interval is misplaced with a probability of about {failure:.2g}, estimated from the "
                "release, and its quantile is then useless; increase --partitions or --epsilon"
            )
        return lines

    def show(self, coefficient: str, noise: str, as_json: bool) -> None:
        """Print the release, its values as a table, and what they rest on; `noise` describes the noise in words."""
        kind = "Pr[{} <= {:g}]" if "cutoff" in self.values else "quantile of {} at {:g}"
        points, released = self.values.iloc[:, 0], self.values.iloc[:, 1]
        names = [kind.format(coefficient, point) for point in points]
        json_values = {
            **self.question,
            "method": self.mechanism.name,
            "n": self.n_rows,
            "n_partitions": self.mechanism.n_partitions,
            "noise": noise,
            "guarantee": guarantee_values(None if self.rehearsal else self.guarantee),
            "values": self._finite_records(),
        }
        print_release(zip(names, released.tolist(), strict=True), noise, as_json, json_values)
        print_table(self.values.columns, self.formatted())
        for line in self.lines:
            say(line)

    def formatted(self) -> list[list[str]]:
        """Return the rows of `values` as text; quantiles are rounded to two significant digits of their noise."""
        rounded = {"quantile", "noise", "clipped_from", "clipped_to", "probability"}
        rows = []
        for row in self.values.to_dict("records"):
            decimals = _decimals(row["noise"]) if "noise" in row else 4
            texts = {name: str(value) if isinstance(value, bool) else f"{value:.10g}" for name, value in row.items()}
            shown = {name: f"{round(row[name], decimals):.{max(decimals, 0)}f}" for name in texts if name in rounded}
            rows.append(list((texts | shown).values()))
        return rows

    def write(self, path: Path) -> None:
        """Write the values and, for a release, the privacy loss as CSV or JSON."""
        facts = {
            "method": self.mechanism.name,
            "n_rows": self.n_rows,
            "n_partitions": self.mechanism.n_partitions,
            "total_epsilon": None if self.rehearsal or self.guarantee is None else self.guarantee.epsilon,
            "rehearsal": self.rehearsal,
        }
        if path.suffix == ".csv":
            self.values.assign(**facts).to_csv(path, index=False)
        else:
            budget = None if self.rehearsal else self.budget
            written = {**self.question, **facts, "budget": budget, "values": self._finite_records()}
            path.write_text(json.dumps(written, indent=2) + "\n")

    def _finite_records(self) -> list[dict[Any, Any]]:
        """Return the rows of `values` for JSON, which has no infinite numbers: None takes their place."""
        finite = np.isfinite(self.values.astype(np.float64))
        return self.values.astype(object).where(finite, None).to_dict("records")


def _decimals(noise: float) -> int:
    """Return the number of decimals that show two significant digits of the standard deviation of the noise."""
    return 10 if not (math.isfinite(noise) and noise > 0) else 1 - math.floor(math.log10(noise))

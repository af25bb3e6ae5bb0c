"""Releases and posteriors of private linear regression as text, JSON, tables, draws and figures."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pandas as pd

from mechanisms.core.privacy import Neighbouring
from mechanisms.regression.gram_release import RESERVED_NAMES, GramRelease, PublicBox
from mechanisms.regression.private_regression import RegressionPosterior
from studies.option_texts import format_level
from studies.output import format_numbers, print_table, say, writing
from studies.own_data.conditions import OTHER
from studies.own_data.output import (
    describe_dropped,
    print_release,
    read_release,
    reading_release,
    state_guarantee,
    warn_near_end,
    write_plot,
)

_NARROW = 0.75  # width of an interval, relative to a normal posterior of equal sd, below which a line explains it


@dataclass(frozen=True, eq=False)
class StoredRelease:
    """Release with all that inference needs: the public bounds of its columns, and which rows it is about."""

    release: GramRelease
    box: PublicBox
    drops_missing: bool  # rows with missing cells are none of its rows
    references: Mapping[str, str] = field(default_factory=dict)  # reference level of each column with public levels

    @property
    def neighbours(self) -> str:
        """Neighbouring relation, and what it assumes about rows with missing cells."""
        dropped = f"; {describe_dropped(self.release.n)}" if self.drops_missing else ""
        return Neighbouring.REPLACE_ONE.value + dropped

    def to_dict(self) -> dict[str, Any]:
        """Return the release as values for JSON, from which `load_release` restores it."""
        box = self.box
        columns = {name: [low, high] for name, low, high in zip(box.names, box.low, box.high, strict=True)}
        missing = {"missing": "drop"} if self.drops_missing else {}
        references = {"references": dict(self.references)} if self.references else {}
        return {"columns": columns, "order": list(box.names), **references, **missing, **self.release.to_dict()}

    def show(self, as_json: bool) -> None:
        """Print the noisy sums of the scaled columns and of their products, or the release as JSON."""
        noise, names = self.release.noise, self.box.names
        noisy = self.release.noisy.tolist()
        sums = [(f"sum of {name}", noisy[0][k + 1]) for k, name in enumerate(names)]
        products = [
            (f"{name}*{other}", noisy[j + 1][k + 1])
            for j, name in enumerate(names)
            for k, other in enumerate(names)
            if j <= k
        ]
        print_release([*sums, *products], f"{noise.name} of scale {float(noise.scale)!r}", as_json, self.to_dict())


def load_release(path: Path) -> StoredRelease:
    """Return the release in a file with what ``regress --json`` prints, or in a JSON file of its results.

    The text may stand after ``release:``. Earlier versions released features with the names of other results; the word
    "feature" follows these. Those of earlier versions have no reference levels, and no order of the columns but that of
    the keys.
    """
    with reading_release(path, "regress --json"):
        values = read_release(path)
        columns = values.pop("columns")
        order = values.pop("order", list(columns))
        box = PublicBox.of({f"{name} feature" if name in RESERVED_NAMES else name: columns[name] for name in order})
        references = {str(name): str(level) for name, level in values.get("references", {}).items()}
        return StoredRelease(GramRelease.from_dict(values), box, values.get("missing") == "drop", references)


@dataclass(frozen=True, eq=False)
class RegressionAnswer:
    """Posterior of the coefficients given a release, with warnings of its chains."""

    posterior: RegressionPosterior
    stored: StoredRelease
    level: float  # probability of the intervals
    warnings: Sequence[str]

    def show(self, account_lines: Sequence[str], output: Path | None, plot: Path | None) -> None:
        """Print the coefficients and what they rest on, and write the files that are asked for."""
        posterior, release = self.posterior, self.stored.release
        values = posterior.to_dict(self.level)
        shown = self._shown(values)
        rows = [(name, *format_numbers(numbers.values(), numbers["sd"])) for name, numbers in shown.items()]
        print_table(("coefficient", "median", "sd", f"{format_level(self.level)} from", "to"), rows)
        lines = [
            *state_guarantee(release.guarantee, release.n, drops_missing=self.stored.drops_missing),
            *self._heavy_tails(values["coefficients"]),
            *self._unresolved(values["error_bound"]),
            *self._describe_ranges(),
            f"inference: {posterior.method}, {format_level(self.level)} intervals",
            *(f"warning: {warning}" for warning in self.warnings),
            *account_lines,
        ]
        for line in lines:
            say(line)
        if output is not None:
            with writing(output, "the values above are released"):
                self._write(output, values)
            say(f"values: {output}")
        if plot is not None:
            write_plot(plot, self._specify(values))

    def _shown(self, values: dict[str, Any]) -> dict[str, dict[str, float]]:
        """Return the median, which rare distant values do not move, sd and interval of each component."""
        medians = self.posterior.quantile([0.5])[0].tolist()
        return {
            name: {"median": median, **{key: numbers[key] for key in ("sd", "low", "high")}}
            for (name, numbers), median in zip(values["coefficients"].items(), medians, strict=True)
        }

    def _describe_ranges(self) -> list[str]:
        """Return lines on reference levels, public ranges, and noisy means near their ends; indicators have none."""
        box, release = self.stored.box, self.stored.release
        std = math.sqrt(release.noise.variance / (2.0 if release.noise.name == "gaussian" else 1.0)) / release.n
        ranges, warned = [], []
        for name, mean, low, high in zip(box.names, release.noisy[0, 1:] / release.n, box.low, box.high, strict=True):
            if "=" in name and (low, high) == (0.0, 1.0):
                continue
            ranges.append(f"{low:,g} to {high:,g} ({name})")
            warned += warn_near_end(name, float(mean), std, (low, high))
        references = []
        for name, level in self.stored.references.items():
            others = "" if f"{name}={OTHER}" in box.names else ", with all values that are not levels"
            references.append(f"{name}={level}{others}")
        return [
            *([f"reference levels: {'; '.join(references)}"] if references else []),
            f"range: values outside {', '.join(ranges)} count as the nearest end; clamped responses bias the "
            "coefficients",
            *warned,
        ]

    def _heavy_tails(self, coefficients: dict[str, dict[str, float]]) -> list[str]:
        """Return a line on coefficients whose interval is much narrower than that of a normal posterior."""
        normal = 2.0 * NormalDist().inv_cdf(0.5 + self.level / 2.0)
        names = [
            name
            for name, numbers in coefficients.items()
            if numbers["high"] - numbers["low"] < _NARROW * normal * numbers["sd"]
        ]
        if not names:
            return []
        tails = "rare distant values move the mean and enlarge the sd, but not the median and the interval"
        return [f"heavy tails of {', '.join(names)}: {tails}"]

    def _unresolved(self, error_bound: float | None) -> list[str]:
        """Return the lines on what the release does not resolve."""
        lines = []
        if error_bound is not None:
            bound = f"{error_bound:.4g} ({format_level(self.level)})"
            lines.append(f"standard deviation of the error <= {bound}: the release does not resolve it")
        if self.posterior.unresolved_features:
            names = ", ".join(self.posterior.unresolved_features)
            lines.append(
                f"the release does not resolve the spread of {names}: intervals of the slopes rest on the prior, and "
                "are too narrow if a range is 30 times too wide"
            )
        return lines

    def _write(self, path: Path, values: dict[str, Any]) -> None:
        """Write coefficients as JSON, with the release, or CSV, or the draws as NetCDF."""
        if path.suffix == ".nc":
            self.posterior.to_arviz()["posterior"].to_dataset().to_netcdf(path)
            return
        neighbours = self.stored.neighbours
        if path.suffix == ".json":
            written = values | {"neighbours": neighbours, "release": self.stored.to_dict()}
            path.write_text(json.dumps(written, indent=2) + "\n")
            return
        frame = pd.DataFrame.from_dict(values["coefficients"], orient="index")
        frame.assign(level=self.level, guarantee=values["guarantee"] or "none", neighbours=neighbours).to_csv(
            path, index_label="coefficient"
        )

    def _specify(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return a figure of medians and intervals as a Vega-Lite specification, one axis with 0 per coefficient."""
        rows = [{"name": name, **numbers} for name, numbers in self._shown(values).items()]
        x = {"field": "low", "type": "quantitative", "title": None, "scale": {"zero": True}}
        header = {"labelAngle": 0, "labelAlign": "left"}
        guarantee = "none: a rehearsal must not be published"
        if values["guarantee"] is not None:
            guarantee = f"{values['guarantee']} ({self.stored.neighbours})"
        title = {
            "text": f"coefficients with {100 * self.level:g} % intervals",
            "subtitle": f"guarantee: {guarantee}",
        }
        return {
            "title": title,
            "data": {"values": rows},
            "facet": {"row": {"field": "name", "sort": [row["name"] for row in rows], "title": None, "header": header}},
            "resolve": {"scale": {"x": "independent"}},
            "spec": {
                "width": 400,
                "height": 20,
                "layer": [
                    {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {"x": x, "x2": {"field": "high"}}},
                    {"mark": {"type": "point", "filled": True}, "encoding": {"x": {**x, "field": "median"}}},
                ],
            },
        }

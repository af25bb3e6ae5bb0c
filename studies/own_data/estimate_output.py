"""Output of estimates from private records: rows of a table, lines, and a figure of the posterior."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior
from studies.output import print_table, say
from studies.own_data.output import guarantee_values, print_release, state_guarantee, write_plot
from studies.own_data.spending import Account

_BLUE = "#3b6ea8"

Row = tuple[str, float, float, float]
"""Label, posterior mean, and ends of the interval."""


@dataclass(frozen=True)
class Estimate:
    """Posterior of one question about private records, as rows of a table, notes and a figure."""

    title: str  # name of the estimated quantity, with its unit
    rows: tuple[Row, ...]
    posterior: ReleasePosterior  # of the parameter of the records
    notes: tuple[str, ...]  # assumptions that a reader needs
    edges: np.ndarray  # of the cells of `density`, shape (c + 1,); empty for categories
    density: np.ndarray  # posterior probability per unit in each cell, shape (c,)
    statistics: tuple[str, ...]  # names of the released statistics
    total_loss: float  # of all releases of the command, in nats
    remark: str = ""  # about the parts of the loss

    def formatted(self) -> list[tuple[str, ...]]:
        """Return the rows as text, with two digits of the width of the narrowest interval."""
        width = min(high - low for _, _, low, high in self.rows) or 1.0
        decimals = max(0, 1 - math.floor(math.log10(width)))
        return [(label, *(f"{value:,.{decimals}f}" for value in values)) for label, *values in self.rows]

    def show(self, account: Account, rule: str, plot: Path | None, as_json: bool) -> None:
        """Print the release, the estimate and its assumptions, and draw it; a rule states which cells are counted."""
        self._print_release(as_json)
        print_table((self.title, "estimate", "95 % from", "to"), self.formatted())
        for line in (*self._guarantee_lines(), *self.notes, *self._method_lines(rule), *account.describe_rest()):
            say(line)
        if plot is not None:
            write_plot(plot, self.specify())

    def _print_release(self, as_json: bool) -> None:
        posterior = self.posterior
        model = posterior.model
        assert isinstance(model, ReleaseModel)
        assert not isinstance(posterior.guarantee, ConcentratedGuarantee)
        released = posterior.release.tolist()
        json_values = {
            "family": model.family,
            "n": model.n,
            "bounds": model.bounds,
            "outside": model.outside,
            "noise": asdict(model.noise),
            "guarantee": guarantee_values(posterior.guarantee),
            "statistics": dict(zip(self.statistics, released, strict=True)),
        }
        noise = f"{model.noise.name} of scale {model.noise.scale:.4g}"
        print_release(zip(self.statistics, released, strict=True), noise, as_json, json_values)

    def _guarantee_lines(self) -> list[str]:
        """Return the lines on the guarantee of all releases of the command."""
        n_rows, guarantee = self.posterior.model.n, self.posterior.guarantee
        assert isinstance(n_rows, int)
        total = None if guarantee is None else Guarantee(self.total_loss, status=guarantee.status)
        return state_guarantee(total, n_rows, self.remark)

    def _method_lines(self, rule: str) -> list[str]:
        return [f"inference: {self.posterior.method}, {self.posterior.reason}", *([rule] if rule else [])]

    def specify(self) -> dict[str, Any]:
        """Return the figure as a Vega-Lite specification: a density with its interval, or an interval per category."""
        title = {"text": self.title, "subtitle": self._guarantee_lines()[0]}
        if not self.edges.size:
            names = ("name", "mean", "low", "high")
            values: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in self.rows]
            y: dict[str, Any] = {"field": "name", "type": "nominal", "sort": None, "title": None}
            x: dict[str, Any] = {"field": "mean", "type": "quantitative", "title": "share of the population"}
            interval = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
            layers: list[dict[str, Any]] = [
                {"mark": {"type": "bar", "color": _BLUE, "opacity": 0.4}, "encoding": {"y": y, "x": x}},
                {"mark": {"type": "rule", "color": _BLUE, "strokeWidth": 2}, "encoding": {"y": y, **interval}},
            ]
            return {"title": title, "width": 400, "data": {"values": values}, "layer": layers}
        _, mean, low, high = self.rows[0]
        cells = zip(self.edges, self.edges[1:], self.density, strict=False)
        values = [{"x": float(a), "x2": float(b), "density": float(d)} for a, b, d in cells]
        x = {"field": "x", "type": "quantitative", "title": self.title, "scale": {"zero": False}}
        y = {"field": "density", "type": "quantitative", "title": "posterior density"}
        ends = {"x": {"datum": low}, "x2": {"datum": high}}
        cell = {"x": x, "x2": {"field": "x2"}, "y": y, "y2": {"datum": 0}}
        single: dict[str, Any] = {"values": [{}]}  # one mark, not one per cell
        layers = [
            {"data": single, "mark": {"type": "rect", "color": _BLUE, "opacity": 0.15}, "encoding": ends},
            {"mark": {"type": "rect", "color": _BLUE}, "encoding": cell},
            {"data": single, "mark": {"type": "rule", "color": "black"}, "encoding": {"x": {"datum": mean}}},
        ]
        return {"title": title, "width": 400, "height": 250, "data": {"values": values}, "layer": layers}

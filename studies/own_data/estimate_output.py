"""Output of estimates from private records: rows of a table, lines, and a figure of the posterior."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mechanisms.core.noise import Noise
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee
from mechanisms.core.privacy_parameters import add_losses
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior
from mechanisms.inference.sum_release import SumRelease
from pipeline.errors import BadInputError
from studies.output import format_numbers, print_table, say
from studies.own_data.output import (
    guarantee_values,
    print_release,
    read_release,
    reading_release,
    state_guarantee,
    write_plot,
)

_BLUE = "#3b6ea8"


@dataclass(frozen=True)
class Question:
    """Question of a command about private records, which its release contains; all of it is public."""

    command: str  # mean, proportion, count or histogram
    subject: str  # name of a column, or a condition
    unit: str = ""
    labels: tuple[str, ...] = ()  # of the categories of a histogram
    rule: str = ""  # about the cells that satisfy the condition
    search: float | None = None  # loss of the search for the range; None if the range is given

    @property
    def prior(self) -> tuple[float, ...] | None:
        """Hyperparameters of the prior; None for the default prior of records of unknown variance."""
        return {"mean": None, "histogram": (1.0,) * len(self.labels)}.get(self.command, (1.0, 1.0))

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the released statistics."""
        if self.command == "mean":
            return ("sum of scaled values", "sum of their squares")
        if self.command == "histogram":
            return tuple(f"rows of {label}" for label in self.labels)
        return (f"rows with {self.subject}",)


@dataclass(frozen=True, eq=False)
class StoredRelease:
    """Release with the question that it answers, and its guarantee, None for a rehearsal; all of it is public."""

    question: Question
    release: SumRelease
    guarantee: Guarantee | None

    @property
    def statistics(self) -> dict[str, float]:
        """Released statistics by name."""
        return dict(zip(self.question.statistics, np.asarray(self.release.noisy_statistics).tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the release as values for JSON, from which `load_release` restores it."""
        model = self.release.model
        return {
            "question": asdict(self.question),
            "family": model.family,
            "n": model.n,
            "bounds": model.bounds,
            "outside": model.outside,
            "noise": asdict(model.noise),
            "guarantee": guarantee_values(self.guarantee),
            "statistics": self.statistics,
        }

    def show(self, as_json: bool) -> None:
        """Print the release, as text or as JSON."""
        noise = self.release.model.noise
        print_release(self.statistics.items(), f"{noise.name} of scale {float(noise.scale)!r}", as_json, self.to_dict())


Row = tuple[str, float, float, float]
"""Label, posterior median, or mean of shares, which add up to 1, and ends of the interval."""


@dataclass(frozen=True)
class Estimate:
    """Posterior of one question about private records, as rows of a table, notes and a figure."""

    question: Question
    title: str  # name of the estimated quantity, with its unit
    rows: tuple[Row, ...]
    posterior: ReleasePosterior  # of the parameter of the records
    notes: tuple[str, ...]  # assumptions that a reader needs
    edges: np.ndarray  # of the cells of `density`, shape (c + 1,); empty for categories
    density: np.ndarray  # posterior probability per unit in each cell, shape (c,)

    def formatted(self) -> list[tuple[str, ...]]:
        """Return the rows as text, with two digits of the width of the narrowest interval, or as numbers of rows."""
        if self.question.command == "count":
            return [(label, *(f"{value:,.0f}" for value in values)) for label, *values in self.rows]
        width = min(high - low for _, _, low, high in self.rows)
        return [(label, *format_numbers(values, width)) for label, *values in self.rows]

    def show(self, account_lines: Sequence[str], plot: Path | None) -> None:
        """Print the estimate and its assumptions, and draw it; the release is printed before."""
        estimate = "median" if self.edges.size else "mean"
        print_table((self.title, estimate, "95 % from", "to"), self.formatted())
        for line in (*self._guarantee_lines(), *self.notes, *self._method_lines(), *account_lines):
            say(line)
        if plot is not None:
            write_plot(plot, self.specify())

    def _guarantee_lines(self) -> list[str]:
        """Return the lines on the guarantee of all releases of the command."""
        n_rows, guarantee, search = self.posterior.model.n, self.posterior.guarantee, self.question.search
        assert isinstance(n_rows, int)
        assert not isinstance(guarantee, ConcentratedGuarantee)
        if guarantee is None or search is None:
            return state_guarantee(guarantee, n_rows)
        total = Guarantee(add_losses(search, guarantee.epsilon), status=guarantee.status)
        return state_guarantee(total, n_rows, f", of which {search:g} for the range")

    def _method_lines(self) -> list[str]:
        rule = self.question.rule
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
        _, median, low, high = self.rows[0]
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
            {"data": single, "mark": {"type": "rule", "color": "black"}, "encoding": {"x": {"datum": median}}},
        ]
        return {"title": title, "width": 400, "height": 250, "data": {"values": values}, "layer": layers}


def load_release(path: Path, command: str) -> StoredRelease:
    """Return the release in a file with what a command prints.

    The file contains what the command prints with ``--json``; the text may stand after ``release:``.
    """
    with reading_release(path, f"{command} --json"):
        values = read_release(path)
        question = Question(**values["question"] | {"labels": tuple(values["question"]["labels"])})
        bounds, guarantee = values["bounds"], values["guarantee"]
        model = ReleaseModel(
            values["family"],
            values["n"],
            Noise(**values["noise"]),
            None if bounds is None else tuple(bounds),
            values["outside"],
        )
        statistics = values["statistics"]  # tools may reorder the keys of JSON objects
        if set(statistics) != set(question.statistics):
            raise ValueError(f"statistics must be {', '.join(question.statistics)}, got {', '.join(statistics)}")
        release = SumRelease([statistics[name] for name in question.statistics], model)
        stated = None if guarantee is None else Guarantee(**guarantee)
    if question.command != command:
        raise BadInputError(
            f"{path} must contain a release of {command}, got one of {question.command}; pass it to dpstudies "
            f"{question.command} --release"
        )
    return StoredRelease(question, release, stated)

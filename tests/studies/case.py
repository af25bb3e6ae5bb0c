"""Cases of studies: a small run, its verdicts, refused values, and alterations of summaries that change verdicts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import xarray as xr

from pipeline.declare.factors import N_VALUES

Summaries = Mapping[str, xr.Dataset]
Alteration = Callable[[Summaries], Summaries]
EVERY = "*"
"""Every panel that has the measures or coordinates in question."""


@dataclass(frozen=True)
class Flip:
    """Alteration of the summaries, with the verdicts on the altered summaries.

    Attributes
    ----------
    verdicts : mapping
        Claim -> expected verdict.
    alter : callable
        Function that returns the altered summaries.
    others : str, optional
        Expected verdict on all other claims; if empty, other claims are not judged.
    evidence : mapping
        Claim -> text that its evidence must contain.
    """

    verdicts: Mapping[str, str]
    alter: Alteration
    others: str = ""
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """Small run of a study, with the results that the tests of all studies expect.

    Attributes
    ----------
    dims : mapping
        Panel -> names of measures -> dimensions; names are separated by blanks.
    verdicts : mapping
        Claim -> expected verdict on the run.
    flips : tuple of Flip
        Alterations; together with `verdicts`, they give every claim two different decided verdicts.
    refused : mapping
        Panel -> value of the option ``--set`` -> text that the error message must contain.
    run : mapping
        Arguments of `pipeline.run` besides the panels, which are those in `dims`.
    methods : mapping
        Panel -> names of its methods in order, separated by blanks.
    partial : tuple of str
        Panels in which some settings do not apply.
    evidence : mapping
        Claim -> texts that its evidence on the run must contain.
    prepare : callable
        Function from the summaries of the run to those on which the claims are judged.
    needs_all : bool
        False if claims are judged although the run lacks sizes that they need.
    figures : tuple of str
        Names of the figures that can be drawn from the run; all if empty.
    reruns : tuple
        Panel, cell and number of trials that are recomputed.
    part : mapping
        Arguments of `pipeline.run` for a part of the run, which must give the same numbers.
    """

    dims: Mapping[str, Mapping[str, str]]
    verdicts: Mapping[str, str]
    flips: tuple[Flip, ...]
    refused: Mapping[str, Mapping[str, str]]
    run: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    partial: tuple[str, ...] = ()
    evidence: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prepare: Alteration = dict
    needs_all: bool = True
    figures: tuple[str, ...] = ()
    reruns: tuple[tuple[str, Mapping[str, Any], int], ...] = ()
    part: Mapping[str, Any] = field(default_factory=dict)


def chain(*alterations: Alteration) -> Alteration:
    """Return an alteration that applies the given alterations in order."""
    return lambda summaries: reduce(lambda altered, alter: alter(altered), alterations, summaries)


def change(panel: str, where: Mapping[str, Any], **values: Any) -> Alteration:
    """Return an alteration that replaces measures at some coordinates; other ``n_ok`` scale the numbers of values.

    Parameters
    ----------
    panel : str
        A panel, or `EVERY`.
    where : mapping
        Dimension -> one coordinate or several; if empty, the measures are replaced everywhere.
    **values
        Measure -> new value, or function of the panel's summary that returns it.
    """

    def one(ds: xr.Dataset) -> xr.Dataset:
        hit = xr.DataArray(True)
        for dim, chosen in where.items():
            hit = hit & ds[dim].isin(np.atleast_1d(chosen))
        new = {name: value(ds) if callable(value) else value for name, value in values.items()}
        altered = ds.assign({name: ds[name].where(~hit, value) for name, value in new.items()})
        if "n_ok" not in new:
            return altered
        ratio = altered["n_ok"] / ds["n_ok"].where(ds["n_ok"] > 0, 1)
        counts = [name for name in ds if str(name).endswith(f"_{N_VALUES}")]
        return altered.assign({name: (ds[name] * ratio).round().astype(int) for name in counts})

    return _on(panel, one, values)


def scale(panel: str, where: Mapping[str, Any], **factors: float) -> Alteration:
    """Return an alteration that multiplies measures by factors at some coordinates; see `change`."""
    return change(panel, where, **{name: _times(name, factor) for name, factor in factors.items()})


def _times(name: str, factor: float) -> Callable[[xr.Dataset], xr.DataArray]:
    return lambda ds: factor * ds[name]


def exchange(panel: str, dim: str, first: str, second: str) -> Alteration:
    """Return an alteration that exchanges the labels of two methods in the summary of a panel."""
    names = {first: second, second: first}
    return _on(
        panel, lambda ds: ds.assign_coords({dim: [names.get(name, name) for name in ds[dim].values.tolist()]}), (dim,)
    )


def outcomes(claim: str, values: Mapping[str, Any], alter: Callable[[Any], Alteration]) -> tuple[Flip, ...]:
    """Return a flip for each verdict on a claim, whose alteration is a function of the verdict's value."""
    return tuple(Flip({claim: verdict}, alter(value)) for verdict, value in values.items())


def exchanged(claim: str, verdict: str, panel: str, first: str, second: str) -> Flip:
    """Return a flip that exchanges the labels of two mechanisms."""
    return Flip({claim: verdict}, exchange(panel, "mechanism", first, second))


def select(panel: str, **indexers: Any) -> Alteration:
    """Return an alteration that keeps only the selected coordinates of a panel."""
    return _on(panel, lambda ds: ds.sel(indexers), indexers)


def drop(panel: str, **labels: Any) -> Alteration:
    """Return an alteration that removes some coordinates of a panel."""
    return _on(panel, lambda ds: ds.drop_sel(labels), labels)


def only(*panels: str) -> Alteration:
    """Return an alteration that keeps only the named panels."""
    return lambda summaries: {panel: summaries[panel] for panel in panels}


def without(*panels: str) -> Alteration:
    return lambda summaries: {panel: ds for panel, ds in summaries.items() if panel not in panels}


def _on(panel: str, one: Callable[[xr.Dataset], xr.Dataset], names: Any) -> Alteration:
    def alter(summaries: Summaries) -> Summaries:
        chosen = (
            [panel] if panel != EVERY else [key for key, ds in summaries.items() if set(names) <= set(ds.variables)]
        )
        assert chosen, f"no panel has {', '.join(names)}"
        return {**summaries, **{key: one(summaries[key]) for key in chosen}}

    return alter

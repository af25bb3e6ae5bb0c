"""Typed, named values: the axes of a panel, its constants, and what it measures.

A value has one canonical form whatever way it was written (``1``, ``1.0`` and ``"1"`` are the same float), because the
canonical form decides the random stream of every trial that depends on it (`pipeline.declare.streams`).
"""

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, SupportsIndex

import numpy as np

from pipeline.errors import BadInputError

Kind = Literal["int", "float", "str", "vector"]
Value = int | float | str | tuple[float, ...]

_EXPECTED = {
    "int": "a whole number",
    "float": "a finite number",
    "str": "a non-empty text",
    "vector": "finite numbers separated by ':', such as 1:1",
}


def _cast(kind: Kind, value: Any) -> Value:
    """Return the canonical form of `value`, or raise ValueError or TypeError."""
    if kind == "str":
        if not isinstance(value, str) or not value:
            raise ValueError
        return value
    if kind == "vector":
        entries = value.split(":") if isinstance(value, str) else value
        entries = entries if isinstance(entries, Iterable) else [entries]
        vector = tuple(float(_cast("float", entry)) for entry in entries)  # type: ignore[arg-type]
        if not vector:
            raise ValueError
        return vector
    if isinstance(value, bool):
        raise ValueError
    if kind == "int":
        whole = int(value)
        if (not isinstance(value, str) and whole != value) or abs(whole) >= 2**63:
            raise ValueError
        return whole
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number + 0.0  # -0.0 and 0.0 are one value


def require_integer(name: str, value: Any, least: int, most: int) -> int:
    """Return a whole number in its allowed range as an int; BadInputError says what is allowed."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise BadInputError(f"{name} must be a whole number, got {value!r}")
    whole = operator.index(value)
    if whole < least:
        raise BadInputError(f"{name} must be >= {least}, got {whole}")
    if whole > most:
        raise BadInputError(f"{name} must be <= {most:,}, got {whole:,}")
    return whole


def format_value(value: Value) -> str:
    """Write a value as a user would type it.

    Examples
    --------
    >>> format_value((1.0, 0.5)), format_value(1e-8), format_value(300)
    ('1:0.5', '1e-08', '300')
    """
    if isinstance(value, tuple):
        return ":".join(format_value(entry) for entry in value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Factor:
    """A named, typed list of values: an axis of a panel, or a constant where there is just one value.

    Attributes
    ----------
    name : str
        Name of the dimension or scalar coordinate in the store.
    values : tuple
        The values, distinct, in the order in which they are stored.
    meaning : str
        What the values are, one phrase; becomes ``long_name``.
    kind : {"int", "float", "str", "vector"}
        Type of a value. Text is converted to it, and a value that does not fit is refused.
    unit : str
        Unit of the values, ``"1"`` for a pure number.

    Examples
    --------
    >>> Factor("n", ("100", 200.0), "number of records", "int").values
    (100, 200)
    >>> Factor("prior", ("1:1",), "Dirichlet parameters", "vector").values
    ((1.0, 1.0),)
    """

    name: str
    values: tuple[Value, ...]
    meaning: str
    kind: Kind = "float"
    unit: str = "1"

    def __post_init__(self) -> None:
        if not self.values:
            raise BadInputError(f"{self.name} must have at least one value, got none")
        canonical = tuple(self.cast(value) for value in self.values)
        if len(set(canonical)) < len(canonical):
            raise BadInputError(f"{self.name} must have distinct values, got {', '.join(map(format_value, canonical))}")
        object.__setattr__(self, "values", canonical)

    def cast(self, value: Any) -> Value:
        """Return the canonical form of a value; ValueError says what is allowed."""
        try:
            return _cast(self.kind, value)
        except (TypeError, ValueError, OverflowError):
            raise BadInputError(f"{self.name} must be {_EXPECTED[self.kind]}, got {value!r}") from None

    def with_values(self, values: Iterable[Any]) -> "Factor":
        """Return the same factor with other values."""
        return replace(self, values=tuple(values))

    @property
    def value(self) -> Value:
        """The only value of a constant."""
        (value,) = self.values
        return value


@dataclass(frozen=True)
class Measure:
    """A quantity that the methods of a panel return and the store keeps.

    Attributes
    ----------
    name, meaning, unit, dtype : str
        Variable name, ``long_name``, ``units`` and numpy dtype in the store. A trial fails if the dtype cannot hold one
        of its values: a value out of range, or a fraction or NaN for an integer or boolean dtype. A floating dtype
        holds the nearest number.
    dims : tuple of str
        Output dimensions, in order, beside the trial.
    per_trial : bool
        False for a quantity that belongs to the cell and the setting, not to a trial (an exact expectation): every
        block computes the same value.
    ragged : bool
        True where NaN pads rows of unequal length. Elsewhere a NaN makes its trial a failed one.
    """

    name: str
    meaning: str
    unit: str = "1"
    dims: tuple[str, ...] = ()
    dtype: str = "float64"
    per_trial: bool = True
    ragged: bool = False

    def __post_init__(self) -> None:
        if not _is_stored(self.dtype):
            raise BadInputError(
                f"measure {self.name} must have the name of a boolean, whole or floating dtype of at most 8 bytes, "
                f"such as 'float64', got {self.dtype!r}"
            )


def _is_stored(dtype: object) -> bool:
    """Return whether a dtype is given by a name that the spec can hold, and is one that Zarr stores."""
    try:
        found = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        return False
    if not isinstance(dtype, str) or found.kind not in "biuf" or found.itemsize > 8:
        return False
    return found.num == np.dtype(found.name).num  # ulonglong is another type of the same name


@dataclass(frozen=True)
class Statistic:
    """A summary of a measure over its trials that a study needs beside means and quantiles, such as a test of its distribution.

    It is computed from what is stored, whenever a store is summarised: to change or add one changes no store.

    Attributes
    ----------
    name, measure, meaning, unit : str
        ``{measure}_{name}`` is the variable of the summary; `meaning` and `unit` describe it.
    function : callable
        Values of the trials that are ok, shape ``(trial,)``, at least one, to a number or an array over `axis`.
    axis : Factor or None
        The dimension of an array, with its values.
    """

    name: str
    measure: str
    meaning: str
    function: Callable[[np.ndarray], Any] = field(repr=False)
    unit: str = "1"
    axis: Factor | None = None


@dataclass(frozen=True)
class Method:
    """One of the methods that a panel compares on the same simulated data.

    Attributes
    ----------
    name : str
        Its label in the store.
    evaluate : callable
        ``(data, setting, streams) -> {measure: array}``, a pure function. A measure per trial has the shape
        ``(trial, *dims)``. The optional entry ``"error"``, texts of shape ``(trial,)``, marks the trials that failed.
    uses : tuple of str
        The method factors it depends on; it is computed once for all values of the others.
    version : int
        Raised whenever its numbers change.
    note : str
        What a reader of its results must know; "Not private: ..." marks the method in figures.
    """

    name: str
    evaluate: Any = field(repr=False)
    uses: tuple[str, ...] = ()
    version: int = 1
    note: str = ""

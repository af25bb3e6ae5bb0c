"""Declaration of factors, measures, statistics and methods.

Every value has one canonical form (``1``, ``1.0`` and ``"1"`` are the same float), because the canonical form is part
of the key of the random streams (`pipeline.declare.streams`).
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, SupportsIndex

import numpy as np

from pipeline.errors import BadInputError, require_known
from pipeline.redact import short_repr, text_of

MAX_VALUES = 10**6
_UNSEEDED = "Unseeded: repeated evaluations give different numbers."
_NAME = re.compile(r"(?!zarr\.json$)\w[\w.-]{0,99}")
_MOST_BYTES = 255  # of a name, as file systems allow
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be encoded
Kind = Literal["int", "float", "str", "vector"]
Value = int | float | str | tuple[float, ...]

_EXPECTED = {
    "int": "an integer",
    "float": "a finite number",
    "str": "a non-empty string without control characters",
    "vector": "finite numbers separated by ':', such as 1:1",
}


def _cast(kind: Kind, value: Any) -> Value:
    """Return the canonical form of `value`, or raise ValueError or TypeError."""
    if kind == "str":
        return require_text("text", value)
    if kind == "vector":
        entries = value.split(":") if isinstance(value, str) else value
        entries = entries if isinstance(entries, Iterable) else [entries]
        vector = tuple(float(_cast("float", entry)) for entry in entries)  # type: ignore[arg-type]
        if not vector:
            raise ValueError
        return vector
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # Python accepts 2_0 as 20
        raise ValueError
    if kind == "int":
        integer = int(value)
        if (not isinstance(value, str) and integer != value) or abs(integer) >= 2**63:
            raise ValueError
        return integer
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number + 0.0  # -0.0 and 0.0 are one value and need one canonical form


def require_integer(name: str, value: Any, least: int, most: int) -> int:
    """Return an integer in [least, most] as an int; raise BadInputError for other values."""
    try:
        if isinstance(value, bool):
            raise TypeError
        integer = operator.index(value)
    except TypeError as error:
        raise BadInputError(f"{name} must be an integer, got {short_repr(value)}") from error
    if integer < least:
        raise BadInputError(f"{name} must be >= {least}, got {integer}")
    if integer > most:
        raise BadInputError(f"{name} must be <= {most:,}, got {integer:,}")
    return integer


def require_types(declared: Any, **expected: Any) -> None:
    """Raise BadInputError for a field of a declaration that has not its type; ``[Kind]`` is a tuple of such objects."""
    for name, kind in expected.items():
        value = getattr(declared, name)
        if isinstance(kind, list):
            is_valid = isinstance(value, tuple | list) and all(isinstance(entry, kind[0]) for entry in value)
            words = f"a tuple of {kind[0].__name__} objects"
        else:
            is_valid = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
            is_valid &= not isinstance(value, str) or value.isascii() or not _SURROGATE.search(value)
            words = f"of type {getattr(kind, '__name__', kind)}"
        if not is_valid:
            raise BadInputError(f"{name} of a {type(declared).__name__} must be {words}, got {short_repr(value)}")


def require_name(label: str, name: Any) -> str:
    """Return a name that is used in paths and options; raise BadInputError for other values."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name.encode()) > _MOST_BYTES:
        raise BadInputError(
            f"{label} must consist of 1 to 100 letters, digits, '_', '.' and '-' of at most {_MOST_BYTES} bytes, begin "
            f"with a letter, digit or '_', and differ from 'zarr.json', got {short_repr(name)}"
        )
    return name


def require_callable(label: str, function: Any) -> None:
    """Raise BadInputError for anything but a function."""
    if not callable(function):
        raise BadInputError(f"{label} must be callable, got {short_repr(function)}")


def require_distinct(label: str, names: Sequence[str]) -> None:
    """Raise BadInputError for a name that occurs twice."""
    if len(set(names)) < len(names):
        raise BadInputError(f"{label} must be distinct, got {', '.join(names)}")


def require_text(label: str, text: Any) -> str:
    """Return a label; raise BadInputError for an empty string, control characters or another type."""
    if not isinstance(text, str) or not text or _CONTROL.search(text):
        raise BadInputError(f"{label} must be a non-empty string without control characters, got {short_repr(text)}")
    return text


def format_value(value: Value) -> str:
    """Format a value as on the command line."""
    if isinstance(value, tuple):
        return ":".join(format_value(entry) for entry in value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def format_values(values: Mapping[str, Value]) -> list[str]:
    """Format values with their names, such as ``n=100``."""
    return [f"{name}={format_value(value)}" for name, value in values.items()]


@dataclass(frozen=True)
class Factor:
    """Named, typed list of values: an axis of a panel, or a constant if there is only one value.

    Attributes
    ----------
    name, meaning, unit : str
        Name of the dimension or scalar coordinate in the store, description in one phrase, and unit of the values,
        ``"1"`` for dimensionless numbers.
    values : tuple
        Distinct values, in storage order.
    kind : {"int", "float", "str", "vector"}
        Type of the values. Strings are converted to it; values that cannot be converted raise BadInputError. By default
        "int" if all values are integers, "vector" if all are tuples or lists, "str" if all are strings and not all are
        numbers, and "float" otherwise: write 1.0, not 1, if fractions are allowed.
    stream_key : str, optional
        Name in the keys of random streams, by default `name`. A renamed factor keeps its earlier name here, so that its
        numbers do not change.
    categories : tuple of str, optional
        Texts that runs may choose, for the kind "str": by default the declared values if there are several. Every text
        if it is empty, and by default for a single value, such as the path of a file. Not part of the spec.

    Examples
    --------
    >>> Factor("prior", ("1:1",), "Dirichlet parameters", "vector").values
    ((1.0, 1.0),)
    >>> Factor("n", (10, 20), "records").kind, Factor("epsilon", (0.5, 1), "loss").kind
    ('int', 'float')
    """

    name: str
    values: tuple[Value, ...]
    meaning: str
    kind: Kind = None  # type: ignore[assignment]  # set by __post_init__
    unit: str = "1"
    stream_key: str | None = None
    categories: tuple[str, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_name("the name of a factor", self.name)
        require_types(self, meaning=str, unit=str, stream_key=str | None, values=Sequence)
        if isinstance(self.values, str | bytes):
            raise BadInputError(f"values of {self.name} must be a tuple, got {short_repr(self.values)}; add a comma")
        require_types(self, categories=tuple | None)
        if self.kind is None:
            object.__setattr__(self, "kind", _infer_kind(self.values))
        if self.kind not in (*_EXPECTED,):
            raise BadInputError(f"kind of {self.name} must be {', '.join(_EXPECTED)}, got {short_repr(self.kind)}")
        if not self.values:
            raise BadInputError(f"{self.name} must have at least one value, got none")
        if len(self.values) > MAX_VALUES:
            raise BadInputError(f"{self.name} must have at most {MAX_VALUES:,} values, got more")
        canonical = tuple(self.cast(value) for value in self.values)
        if len(set(canonical)) < len(canonical):
            raise BadInputError(f"{self.name} must have distinct values, got {', '.join(map(format_value, canonical))}")
        if self.kind == "str" and self.categories is None:
            object.__setattr__(self, "categories", canonical if len(canonical) > 1 else ())
        if self.categories:
            require_known(self.name, canonical, self.categories)
        object.__setattr__(self, "values", canonical)

    def cast(self, value: Any) -> Value:
        """Return the canonical form of a value; raise BadInputError if it has the wrong type."""
        try:
            return _cast(self.kind, value)
        except (TypeError, ValueError, OverflowError):
            raise BadInputError(f"{self.name} must be {_EXPECTED[self.kind]}, got {text_of(value, repr)}") from None

    def with_values(self, values: Iterable[Any]) -> "Factor":
        """Return the same factor with other values."""
        return replace(self, values=tuple(islice(values, MAX_VALUES + 1)))

    @property
    def value(self) -> Value:
        """The only value of a constant."""
        (value,) = self.values
        return value


def _infer_kind(values: Sequence[Any]) -> Kind:
    """Return the type of values that are declared without one."""
    if all(isinstance(value, SupportsIndex) and not isinstance(value, bool) for value in values):
        return "int"
    if all(isinstance(value, tuple | list) for value in values):
        return "vector"
    if all(isinstance(value, str) for value in values):
        try:
            return "float" if [float(value) for value in values] else "str"
        except ValueError:
            return "str"
    return "float"


@dataclass(frozen=True)
class Measure:
    """Quantity that the methods of a panel return and that is stored.

    Attributes
    ----------
    name, meaning, unit : str
        Variable name, ``long_name`` and ``units`` in the store.
    dtype : str
        NumPy dtype of the values. A trial fails if it cannot represent one of its values: a value out of range, or a
        fraction or NaN for an integer or boolean dtype. Values of a floating dtype are rounded. A
        masked or missing value fails its trial as well. A store has the values
        exactly, and xarray reads them as float64, with NaN for trials that are not ok; integers beyond 2⁵³ in absolute
        value are rounded then. Stores mark missing values by the smallest number of int32 and int64, and by the largest
        number of uint32 and uint64 that is a float64; a trial fails if one of its values is this number or a larger
        unsigned one.
    dims : tuple of str
        Output dimensions, in order, without the trial dimension.
    per_trial : bool
        False for a quantity per cell and setting, such as an exact expectation, which is the same in every block.
    ragged : bool
        True if NaN pads rows of unequal length; masked and missing values become NaN. Otherwise a trial with one fails.
    event : bool
        True if the values are 0 or 1, as those of the dtype ``"bool"`` are: a trial with another value fails. Summaries
        of events have an interval for their probability, since none or all of a few trials do not make it certain. Not
        part of the spec.
    nominal : float, optional
        Value that the mean of the measure should have, such as 0.95 for the coverage of intervals; figures show it.
    """

    name: str
    meaning: str
    unit: str = "1"
    dims: tuple[str, ...] = ()
    dtype: str = "float64"
    per_trial: bool = True
    ragged: bool = False
    nominal: float | None = None
    event: bool = False

    def __post_init__(self) -> None:
        require_name("the name of a measure", self.name)
        require_types(self, meaning=str, unit=str, dims=[str], event=bool)
        require_distinct(f"dims of measure {self.name}", self.dims)
        if self.nominal is not None and not (isinstance(self.nominal, int | float) and math.isfinite(self.nominal)):
            raise BadInputError(
                f"measure {self.name} must have a finite number as nominal value, got "
                f"{text_of(self.nominal, repr)}; give e.g. 0.95"
            )
        if not _is_stored(self.dtype):
            raise BadInputError(
                f"measure {self.name} must have the name of a boolean, integer or floating dtype of at most 8 bytes, "
                f"such as 'float64', got {text_of(self.dtype, repr)}"
            )

    @property
    def is_event(self) -> bool:
        """True if the values are 0 or 1: declared as an event, or of dtype bool."""
        return self.event or self.dtype == "bool"


def _is_stored(dtype: object) -> bool:
    """Return True if a dtype is given by its name, as specs require, and Zarr supports it."""
    try:
        stored = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return False
    if not isinstance(dtype, str) or stored.kind not in "biuf" or stored.itemsize > 8:
        return False
    return stored.num == np.dtype(stored.name).num  # ulonglong is a different type with the same name


def stored_dtype(dtype: str) -> np.dtype:
    """Return the dtype in which a store has a measure, such that xarray decodes float64.

    Means of float16 overflow, those of float32 lose digits, and xarray decodes integers below 32 bits as float32.
    """
    declared = np.dtype(dtype)
    return np.dtype("float64" if declared.kind == "f" else declared.name if declared.itemsize >= 4 else "int32")


def missing_value(dtype: str) -> float | int:
    """Return the number that a store has in place of missing values of a measure, and that no ok trial has."""
    stored = stored_dtype(dtype)
    if stored.kind == "f":
        return math.nan
    # a float64 too, so that xarray writes it again for NaN
    return int(np.iinfo(stored).min or math.nextafter(2.0 ** (8 * stored.itemsize), 0))


def integer_range(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest number that a trial may have for a measure of an integer dtype."""
    limits, missing = np.iinfo(dtype), int(missing_value(dtype))
    if missing < 0:
        return max(limits.min, missing + 1), limits.max
    return limits.min, missing - 1


QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
"""Name of a quantile in summaries -> probability."""

STANDARD_STATISTICS = ("mean", "mcse", "sd", *QUANTILES, *(f"{name}_mcse" for name in QUANTILES))
"""Names of the statistics of every measure in summaries, of type float."""

ENDS = ("low", "high")
"""Names of the ends of the interval for the probability of an event, in summaries."""

N_VALUES = "n_values"
"""Name of the number of values of a measure in summaries."""


@dataclass(frozen=True)
class Statistic:
    """Summary of a measure over its trials in addition to means and quantiles, such as a test of its distribution.

    Statistics are computed from stored values when a store is summarised, so that they can change without a rerun.

    Attributes
    ----------
    name, measure, meaning, unit : str
        ``{measure}_{name}`` is the variable of the summary, with `meaning` and `unit` as attributes.
    function : callable
        Function that takes the values of the ok trials, shape ``(trial,)``, and returns a number or an array over
        `axis`; it is called only if a trial is ok.
    axis : Factor or None
        Dimension of the returned array, with its values.
    """

    name: str
    measure: str
    meaning: str
    function: Callable[[np.ndarray], Any] = field(repr=False)
    unit: str = "1"
    axis: Factor | None = None

    def __post_init__(self) -> None:
        require_callable(f"the function of statistic {self.name}", self.function)


@dataclass(frozen=True)
class Method:
    """Method that a panel compares with others on the same simulated data.

    Attributes
    ----------
    name, note : str
        Label in the store, and a note for readers of the results.
    evaluate : callable
        ``(data, setting, streams) -> {measure: array}``, a pure function. Per-trial measures have shape
        ``(trial, *dims)``. The optional entry ``"error"``, shape ``(trial,)``, has a text or an exception for each
        failed trial, and an empty string, None or False for the others; True is a failure without a reason, and a
        single None, empty string or False stands for all trials. Every exception is a failure of its trial.
    uses : tuple of str
        Method factors that the method depends on; it is computed once for all values of other method factors.
    version : int
        Version, increased whenever the numbers change.
    is_private : bool
        False for a method that figures mark as not private. Not part of the spec.
    audit : callable, optional
        ``(panel) -> dict`` of JSON values: the result of an audit of the method at the values of a panel. It is called
        once, before a store is created or gains the method, and the store contains the result as text in the
        attribute ``audits`` of the dimension of the methods. Not part of the spec.
    stream_key : str, optional
        Name in the keys of random streams, as of a `Factor`.
    unseeded : bool
        True for a method whose numbers differ when it is evaluated again, such as a program without a seed. Other
        methods are evaluated twice in one process before a run, and refused if they differ; `verify` finds numbers that
        differ between processes. The note states it, and its stored numbers are not compared with recomputed ones.
    supports : callable, optional
        ``(cell, setting) -> bool``: False if the method does not apply to a cell; called after `Panel.validate`. Not
        part of the spec.
    is_added : bool
        True for a method of a user that `Study.with_methods` added to those of the panel. Not part of the spec.
    code : str
        SHA-256 of the code of the file of an added method, by which a store recognises that it was edited.
    """

    name: str
    evaluate: Any = field(repr=False)
    uses: tuple[str, ...] = ()
    version: int = 1
    note: str = ""
    is_private: bool = True
    audit: Callable[[Any], Mapping[str, Any]] | None = field(default=None, repr=False)
    stream_key: str | None = None
    unseeded: bool = False
    supports: Callable[[Mapping[str, Value], Mapping[str, Value]], bool] | None = field(default=None, repr=False)
    is_added: bool = False
    code: str = ""

    def __post_init__(self) -> None:
        require_text("the name of a method", self.name)
        require_types(self, uses=[str], version=int, note=str, stream_key=str | None, unseeded=bool)
        require_types(self, is_added=bool, code=str)
        require_distinct(f"uses of method {self.name}", self.uses)
        if self.unseeded and _UNSEEDED not in self.note:
            object.__setattr__(self, "note", f"{self.note} {_UNSEEDED}".strip())

"""Searches from a privacy loss to the parameter of a mechanism.

A predicate states whether a parameter is private. `bisect` needs one change of its value between two parameters, at
which it is not evaluated; `largest_below` first searches a grid downwards, for losses that need not be monotone.
"""

from collections.abc import Callable, Iterable

_STEPS = 200  # adjacent doubles are reached earlier, unless the limit is 0
_MARGIN = 1e-12  # so that an audit with different rounding stays below epsilon


def bisect(
    is_below: Callable[[float], bool], low: float, high: float, relative: float = 0.0, absolute: float = 0.0
) -> tuple[float, float]:
    """Return the narrowest interval in which `is_below` changes from True to False.

    The search ends at adjacent doubles, or at a width of `relative` times the upper end, or of `absolute`.
    """
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low <= max(relative * high, absolute):
            break
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high


def first_private(is_private: Callable[[float], bool], descending: Iterable[float]) -> tuple[float, float]:
    """Return the first private value of a descending grid and the value before it, or the first value twice."""
    high = None
    for low in descending:
        if is_private(low):
            return low, low if high is None else high
        high = low
    raise AssertionError(f"no parameter is private down to {high}")


def largest_below(is_private: Callable[[float], bool], top: float, tolerance: float) -> float:
    """Return the largest private argument in (0, top], found in steps of top/32 and by bisection to `tolerance`."""
    grid = (top * step / 32 for step in range(32, -1, -1))
    low, high = first_private(lambda value: value == 0.0 or is_private(value), grid)
    return bisect(is_private, low, high, relative=tolerance)[0] * (1.0 - _MARGIN)

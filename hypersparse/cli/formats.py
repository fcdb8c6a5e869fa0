"""Number formats of the terminal."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

STEPS = "▁▂▃▄▅▆▇█"


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction in per cent; empty for None.

    >>> percent(0.9917), percent(None)
    ('99.17', '')
    """
    return "" if value is None else f"{100 * value:.{digits}f}"


def count(value: int | None) -> str:
    """An integer with thousands separators.

    >>> count(77072)
    '77,072'
    """
    return "" if value is None else f"{value:,}"


def flops(result: Mapping[str, Any]) -> str | None:
    """FLOPs of a training and of its network; None if unknown.

    >>> flops({"training_flops": 2e12, "training_flops_sparse": 5e11, "inference_flops_sparse": 3e6})
    '2e+12 FLOPs of training, 5e+11 without those on zeros; 3e+06 an image at inference'
    """
    names = ("training_flops", "training_flops_sparse", "inference_flops_sparse")
    dense, sparse, image = (result.get(name) for name in names)
    if dense is None or sparse is None or image is None:
        return None
    return f"{dense:.3g} FLOPs of training, {sparse:.3g} without those on zeros; {image:.3g} an image at inference"


def duration(seconds: float | None) -> str:
    """A time in a suitable unit.

    >>> duration(45.8), duration(600), duration(9000)
    ('46 s', '10 min', '2.5 h')
    """
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in one line of at most `width` characters, from its lowest value to its highest.

    >>> sparkline([1, 2, 3, 8], 4)
    '▁▂▃█'
    """
    pieces = _pieces(values, min(width, len(values)))
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high == low:
        return STEPS[3] * len(pieces)
    return "".join(STEPS[round((value - low) / (high - low) * (len(STEPS) - 1))] for value in pieces)


def _pieces(values: Sequence[float], count: int) -> list[float]:
    """The means of `count` stretches of about the same length."""
    edges = [number * len(values) // count for number in range(count + 1)] if count else [0]
    return [mean(values[start:end]) for start, end in pairwise(edges)]

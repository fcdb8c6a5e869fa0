"""Statistics of runs over seeds: mean, deviation, confidence interval, and methods compared seed by seed.

With three or five seeds little can be said for sure. Paired comparisons are the most precise. The same seed gives two
methods the same initial weights and the same order of images, so their difference varies less than either accuracy.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt

import numpy as np
from scipy import special

CONFIDENCE = 0.95
MOST_SIGNS = 16  # differences whose signs are all tried, 65,536 ways; above it a sample of them is
SAMPLED_SIGNS = 50_000
TIE = 1e-9  # relative: sums of the same numbers in another order


@dataclass(frozen=True)
class Paired:
    """One method minus another over the seeds that both have."""

    count: int
    difference: float  # mean of the differences
    deviation: float | None
    low: float | None
    high: float | None
    t_p: float | None  # two-sided, Student's t; none for a single seed or differences that are all the same
    flip_p: float  # two-sided, of all ways to flip the signs of the differences


def mean(values: Sequence[float]) -> float | None:
    """The mean; None without values.

    >>> mean([1.0, 2.0, 6.0])
    3.0
    """
    return sum(values) / len(values) if values else None


def deviation(values: Sequence[float]) -> float | None:
    """The sample deviation (n - 1); None for fewer than two values.

    >>> deviation([90.0, 92.0, 94.0])
    2.0
    """
    if len(values) < 2:
        return None
    middle = sum(values) / len(values)
    return sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


def pooled_deviation(one: float, one_count: int, other: float, other_count: int) -> float:
    """The pooled deviation of two samples.

    >>> pooled_deviation(3.0, 2, 0.0, 9)
    1.0
    """
    squares = (one_count - 1) * one**2 + (other_count - 1) * other**2
    return sqrt(squares / (one_count + other_count - 2))


def interval(values: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """The confidence interval of the mean by Student's t; None for fewer than two values."""
    middle, spread = mean(values), deviation(values)
    if middle is None or spread is None:
        return None, None
    half = float(special.stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * spread / sqrt(len(values))
    return middle - half, middle + half


def compare_paired(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> Paired | None:
    """One minus the other over the keys (seeds) that both have; None without common keys."""
    differences = [one[key] - other[key] for key in one if key in other]
    if not differences:
        return None
    low, high = interval(differences)
    return Paired(
        count=len(differences),
        difference=sum(differences) / len(differences),
        deviation=deviation(differences),
        low=low,
        high=high,
        t_p=t_test(differences),
        flip_p=sign_flip_test(differences),
    )


def t_test(differences: Sequence[float]) -> float | None:
    """Two-sided p of the paired t-test: the mean of normal differences is zero."""
    spread = deviation(differences)
    if spread is None or spread <= TIE * max(map(abs, differences)):  # one test image more in every seed, and rounding
        return None
    t = sum(differences) / len(differences) / (spread / sqrt(len(differences)))
    return float(2 * special.stdtr(len(differences) - 1, -abs(t)))


def sign_flip_test(differences: Sequence[float]) -> float:
    """Two-sided p of the sign-flip test: every difference may have either sign.

    It supposes nothing else; with n seeds it cannot be less than 2 / 2^n: five seeds never get below 0.0625.

    >>> sign_flip_test([1.0, 2.0, 3.0])
    0.25
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) <= MOST_SIGNS:
        signs = np.array(list(product((1.0, -1.0), repeat=len(values))))
    else:
        drawn = np.random.default_rng(0).choice((1.0, -1.0), size=(SAMPLED_SIGNS, len(values)))
        signs = np.vstack([np.ones(len(values)), drawn])  # what was seen is one of the ways
    sums = np.abs(signs @ values)
    seen = abs(values.sum())
    return float(np.mean(sums >= seen - TIE * np.abs(values).sum()))

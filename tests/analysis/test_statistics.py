"""Numbers worked out by hand, and scipy's where a hand would take too long."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hypersparse.analysis.statistics import (
    compare_paired,
    deviation,
    interval,
    mean,
    pooled_deviation,
    sign_flip_test,
    t_test,
)

VALUES = st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=2, max_size=8)


def test_a_mean_and_its_interval() -> None:
    values = [90.0, 92.0, 94.0]
    assert (mean(values), deviation(values)) == (92.0, 2.0)
    low, high = interval(values)
    half = 4.302652729911275 * 2 / sqrt(3)  # the 97.5 % quantile of Student's t with two degrees of freedom
    assert low == pytest.approx(92 - half)
    assert high == pytest.approx(92 + half)


def test_a_single_value_has_no_deviation_and_no_value_no_mean() -> None:
    assert (mean([5.0]), deviation([5.0]), interval([5.0])) == (5.0, None, (None, None))
    assert (mean([]), deviation([]), interval([])) == (None, None, (None, None))


def test_pairs_are_of_the_same_seed() -> None:
    found = compare_paired({0: 93.0, 1: 94.0, 2: 96.0, 7: 0.0}, {2: 93.0, 1: 92.0, 0: 92.0, 8: 100.0})
    assert found is not None
    assert (found.count, found.difference, found.deviation) == (3, 2.0, 1.0)  # 1, 2 and 3
    assert found.flip_p == 0.25  # all three are positive: two of eight ways
    assert found.t_p == pytest.approx(stats.ttest_rel([93, 94, 96], [92, 92, 93]).pvalue)
    assert found.low == pytest.approx(2 - 4.302652729911275 / sqrt(3))
    assert compare_paired({0: 1.0}, {1: 1.0}) is None


def test_one_seed_or_equal_differences_say_nothing_by_t() -> None:
    single = compare_paired({0: 2.0}, {0: 1.0})
    assert single is not None
    assert (single.difference, single.deviation, single.t_p, single.flip_p) == (1.0, None, None, 1.0)
    assert t_test([1.0, 1.0]) is None
    assert t_test([0.0, 0.0]) is None
    images = (351, 352, 355)
    one_more = compare_paired(
        {seed: 100 * (right / 360) for seed, right in enumerate(images)},
        {seed: 100 * ((right - 1) / 360) for seed, right in enumerate(images)},
    )
    assert one_more is not None
    assert one_more.deviation  # rounding, of which no certainty may be made
    assert one_more.t_p is None
    assert sign_flip_test([0.0, 0.0]) == 1.0


def test_signs_by_hand() -> None:
    assert sign_flip_test([3.0, -1.0]) == 1.0  # sums 2, 4, -4, -2: all as far as 2
    assert sign_flip_test([3.0, 1.0]) == 0.5  # of the same four, 4 and -4
    assert sign_flip_test([0.1] * 5) == 2 / 32


@given(VALUES)
def test_as_scipy_has_it(values: list[float]) -> None:
    assert mean(values) == pytest.approx(np.mean(values), abs=1e-9)
    spread = deviation(values)
    assert spread == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    if spread and spread > 1e-6:
        assert t_test(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-9)
        expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), spread / sqrt(len(values)))
        assert interval(values) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.integers(-800, 800).map(lambda eighths: eighths / 8), min_size=2, max_size=8))  # sums are exact
def test_signs_as_scipy_flips_them(values: list[float]) -> None:
    found = stats.permutation_test(
        (values,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", vectorized=True, n_resamples=1000
    )
    assert sign_flip_test(values) == pytest.approx(found.pvalue, abs=1e-9)


def test_many_differences_are_sampled() -> None:
    differences = list(np.random.default_rng(1).normal(0.3, 1.0, 30))
    exact = stats.ttest_1samp(differences, 0).pvalue  # near it for so many
    assert sign_flip_test(differences) == pytest.approx(exact, abs=0.02)
    assert sign_flip_test(differences) == sign_flip_test(differences)


def test_two_deviations_as_one() -> None:
    assert pooled_deviation(2.0, 3, 2.0, 5) == 2.0
    assert pooled_deviation(1.0, 5, 3.0, 5) == pytest.approx(sqrt(5))

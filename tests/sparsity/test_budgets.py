"""Exact counts from a sparsity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypersparse.errors import OptionError
from hypersparse.sparsity.budgets import check_sparsity, keep_count

SPARSITIES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
# Prunable weights, and those kept by the authors' rule, which is one fewer than nominal (facts 5.3).
KEPT_BY_AUTHORS = {
    1_855_584: (185_558, 92_779, 37_111, 18_555, 9_277, 3_711),
    1_867_104: (186_710, 93_355, 37_342, 18_671, 9_335, 3_734),
    1_879_904: (187_990, 93_995, 37_598, 18_799, 9_399, 3_759),
    20_024_000: (2_002_399, 1_001_199, 400_479, 200_239, 100_119, 40_047),
    20_070_080: (2_007_007, 1_003_503, 401_401, 200_700, 100_350, 40_140),
    20_121_280: (2_012_127, 1_006_063, 402_425, 201_212, 100_606, 40_242),
}


@pytest.mark.parametrize("total", KEPT_BY_AUTHORS)
def test_the_papers_networks(total: int) -> None:
    nominal = tuple(keep_count(total, sparsity) for sparsity in SPARSITIES)
    assert nominal == tuple(kept + 1 for kept in KEPT_BY_AUTHORS[total])


def test_the_product_is_taken_in_decimal() -> None:
    assert int(0.7 * 90) == 62  # what binary floating point would remove
    assert keep_count(90, 0.7) == 90 - 63


@pytest.mark.parametrize(
    ("total", "sparsity", "kept"), [(10, 0.0, 10), (10, 0.9, 1), (10, 0.99, 1), (1, 0.5, 1), (3, 0.5, 2), (7, 0, 7)]
)
def test_small_counts(total: int, sparsity: float, kept: int) -> None:
    assert keep_count(total, sparsity) == kept


@given(total=st.integers(1, 10**9), sparsity=st.floats(0, 1, exclude_max=True))
def test_no_sparsity_leaves_nothing(total: int, sparsity: float) -> None:
    assert 1 <= keep_count(total, sparsity) <= total


@given(percent=st.integers(0, 99), hundreds=st.integers(1, 10**6))
def test_whole_percentages_of_hundreds_are_exact(percent: int, hundreds: int) -> None:
    assert keep_count(100 * hundreds, percent / 100) == (100 - percent) * hundreds


@pytest.mark.parametrize(
    ("sparsity", "says"),
    [
        (98, "must be in [0, 1); got 98. For 98 % sparsity pass 0.98."),
        (99.5, "got 99.5. For 99.5 % sparsity pass 0.995."),
        (1.0, "got 1."),
        (100, "got 100."),
        (-0.1, "got -0.1."),
        (float("nan"), "got nan."),
        (float("inf"), "got inf."),
        (True, "got 1."),
        (False, "got 0."),
    ],
)
def test_what_is_no_sparsity_says_what_to_pass(sparsity: float, says: str) -> None:
    for function in (check_sparsity, lambda value: keep_count(100, value)):
        with pytest.raises(OptionError) as error:
            function(sparsity)
        assert says in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("sparsity", [0, 0.0, 0.5, 0.999])
def test_a_sparsity_is_returned(sparsity: float) -> None:
    assert check_sparsity(sparsity) == sparsity

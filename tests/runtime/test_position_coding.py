"""Positions of kept weights as bytes."""

from math import lgamma, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypersparse_runtime.position_coding import COLUMNS, PLAIN, ROWS, CodingError, Layout, decode, encode


def bound_bits(size: int, kept: int) -> float:
    """log2 of the number of masks that keep so many."""
    return (lgamma(size + 1) - lgamma(kept + 1) - lgamma(size - kept + 1)) / log(2)


def test_gaps_by_hand() -> None:
    """Positions 0 and 6 of 8: gaps 0 and 5; with one low bit 0 is 1|0 and 5 is 001|1, six bits in all."""
    mask = np.zeros(8, bool)
    mask[[0, 6]] = True
    (layout,), strings = encode([mask])
    assert layout == Layout((8,), 2, PLAIN, 1)
    assert strings == [b"", b"", bytes([0b10010000]), bytes([0b01000000])]


def test_more_than_half_kept_codes_the_zeros() -> None:
    mask = np.ones((40, 50), bool)
    mask[3, 7] = False
    _, strings = encode([mask])
    assert sum(map(len, strings)) <= 4
    assert (next(decode(*encode([mask]))) == mask).all()


def test_rows_and_columns_are_taken_where_they_are_empty() -> None:
    generator = np.random.default_rng(0)
    mask = np.zeros((64, 64, 3, 3), bool)
    mask[::8] = generator.random((8, 64, 3, 3)) < 0.1
    assert encode([mask])[0][0].layout == ROWS
    assert encode([np.swapaxes(mask, 0, 1)])[0][0].layout == COLUMNS


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(1, 9)), max_size=4),
    st.sampled_from([0.0, 0.01, 0.2, 0.5, 0.9, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_every_mask_comes_back(shapes: list[tuple[int, ...]], density: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    masks = [generator.random(shape) < density for shape in shapes]
    back = list(decode(*encode(masks)))
    assert all(one.shape == other.shape and (one == other).all() for one, other in zip(masks, back, strict=True))


@pytest.mark.parametrize("density", [0.5, 0.382, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.002])
def test_random_masks_cost_at_most_a_tenth_more_than_their_bound(density: float) -> None:
    generator = np.random.default_rng(1)
    masks = [
        generator.random(shape) < density for shape in [(64, 64, 3, 3), (128, 64, 3, 3), (64, 32, 1, 1), (10, 128)]
    ]
    _, strings = encode(masks)
    bound = sum(bound_bits(mask.size, int(mask.sum())) for mask in masks)
    assert 8 * sum(map(len, strings)) <= 1.1 * bound


@pytest.mark.parametrize("change", ["unary", "low", "counts", "outside"])
def test_bytes_that_are_no_positions_are_refused(change: str) -> None:
    mask = np.random.default_rng(0).random((8, 400)) < 0.02
    mask[::2], mask[1, 399] = False, True
    layouts, strings = encode([mask])
    assert layouts[0].layout == ROWS
    if change == "unary":
        strings[2] = strings[2][:-1]
    elif change == "low":
        strings[3] += b"\0"
    elif change == "counts":
        layouts[0] = Layout((8, 400), layouts[0].kept + 1, ROWS, layouts[0].bits)
    else:
        layouts[0] = Layout((8, 390), layouts[0].kept, ROWS, layouts[0].bits)
    with pytest.raises(CodingError):
        list(decode(layouts, strings))

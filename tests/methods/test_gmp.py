"""GMP: the cubic schedule, and masks that only shrink."""

from itertools import pairwise

import pytest

from hypersparse import GMP
from hypersparse.errors import OptionError
from hypersparse.sparsity.distributions import Distribution
from tests.methods.tiny import attached, epochs_of


def test_the_cubic_schedule_by_hand() -> None:
    method = GMP(sparsity=0.9, start=0.1, end=0.5)
    # From epoch 1 to 5 of 10: 100 + 900 (1 - p)³ of 1000 are kept, p = 0, 1/4, 1/2, 3/4, 1.
    assert [method.keep_in(epoch, 10, 1000) for epoch in range(10)] == [
        1000,
        1000,
        100 + 379,  # 900 * 27/64 = 379.7
        100 + 112,  # 900 * 1/8 = 112.5
        100 + 14,  # 900 * 1/64 = 14.1
        *[100] * 5,
    ]


@pytest.mark.parametrize("epochs", [1, 2, 3, 7])
@pytest.mark.parametrize(("start", "end"), [(0.0, 0.1), (0.5, 1.0), (0.9, 1.0), (0.0, 1.0)])
def test_the_last_epoch_is_as_sparse_as_asked(epochs: int, start: float, end: float) -> None:
    method = GMP(sparsity=0.75, start=start, end=end)
    counts = [method.keep_in(epoch, epochs, 108) for epoch in range(epochs)]
    assert counts[-1] == 27
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("distribution", ["global", "uniform", "erk", "sratio"])
def test_masks_shrink_to_the_counts_of_the_schedule_and_then_stay(distribution: Distribution) -> None:
    method = GMP(sparsity=0.75, start=0.0, end=0.5, distribution=distribution)
    sparsifier = attached(method, epochs=6)
    masks = []
    for _ in epochs_of(sparsifier):
        assert sparsifier.mask is not None
        masks.append(sparsifier.mask)
    assert [mask.kept for mask in masks] == [method.keep_in(epoch, 6, 108) for epoch in range(6)]
    assert [mask.kept for mask in masks] == [108, 51, 30, 27, 27, 27]  # 81 * 8/27 = 24, 81 * 1/27 = 3
    assert all((later - earlier).kept == 0 for earlier, later in pairwise(masks))


def test_an_end_before_the_start_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"from `start` to `end`, which is later; got 0\.6 and 0\.5"):
        GMP(start=0.6, end=0.5)

"""How gradients of convolution weights are cut into programs."""

from dataclasses import replace

import pytest
from torch import nn

from hypersparse.training.kernels import conv_tiling
from hypersparse.training.kernels.conv_tiling import Convolution, Tiling, kernel_takes, key_of, tiling_of, worth_it

FIRST_STAGE = Convolution(64, 32, 32, 32, 32, 3, 1, 1)


@pytest.fixture(autouse=True)
def _nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_tiling, "MEASURED", {})


def test_sizes_are_those_of_the_convolution() -> None:
    into_the_second = Convolution(64, 32, 64, 32, 32, 3, 2, 1)
    assert (into_the_second.out_height, into_the_second.out_width) == (16, 16)
    assert into_the_second.pixels == 64 * 256
    assert into_the_second.weights == 64 * 9 * 32
    assert into_the_second.flops == 2 * 64 * 256 * 64 * 9 * 32
    uneven = Convolution(1, 16, 16, 7, 4, 3, 2, 0)
    assert (uneven.out_height, uneven.out_width) == (3, 1)


def test_shares_take_all_pixels_and_none_is_empty() -> None:
    tiling = Tiling(32, 32, 3, block=64, shares=100, warps=2, stages=3)
    assert tiling.blocks(FIRST_STAGE) == 11  # 65 536 pixels, 1024 blocks
    assert tiling.used_shares(FIRST_STAGE) == 94  # the last has one block
    assert tiling.tiles(FIRST_STAGE) == 3


@pytest.mark.parametrize("channels", [16, 32, 48, 64, 128, 160, 512])
@pytest.mark.parametrize("filters", [16, 48, 64, 512])
@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize("pixels", [1, 8, 32])
def test_every_tiling_fits(channels: int, filters: int, side: int, pixels: int) -> None:
    convolution = Convolution(3, channels, filters, pixels, pixels, side, 1, side // 2)
    tiling = tiling_of(convolution)
    assert tiling.fits(convolution)
    assert tiling.tiles(convolution) * tiling.filters * tiling.channels * tiling.taps == convolution.weights
    shares, blocks = tiling.used_shares(convolution), tiling.blocks(convolution)
    assert (shares - 1) * blocks * tiling.block < convolution.pixels <= shares * blocks * tiling.block
    sums_a_thread = tiling.filters * tiling.channels * tiling.taps / (32 * tiling.warps)
    assert sums_a_thread <= 128  # all are kept in registers


def test_the_first_stage_gives_every_processor_two_programs_of_two_warps() -> None:
    tiling = tiling_of(FIRST_STAGE)
    assert tiling == Tiling(32, 32, 3, block=64, shares=88, warps=2, stages=3)
    assert tiling.tiles(FIRST_STAGE) * tiling.shares == 264


def test_tiles_that_leave_something_over_do_not_fit() -> None:
    assert not Tiling(64, 32, 3, block=64, shares=1, warps=4, stages=3).fits(FIRST_STAGE)
    assert not Tiling(32, 32, 2, block=64, shares=1, warps=4, stages=3).fits(FIRST_STAGE)


@pytest.mark.parametrize(
    ("layer", "taken"),
    [
        (nn.Conv2d(32, 64, 3, padding=1), True),
        (nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), True),
        (nn.Conv2d(32, 64, 1, stride=2), True),
        (nn.Conv2d(48, 16, 3), True),
        (nn.Conv2d(3, 64, 3, padding=1), False),
        (nn.Conv2d(32, 40, 3, padding=1), False),
        (nn.Conv2d(32, 32, 5, padding=1), False),
        (nn.Conv2d(32, 32, 3, padding=2), False),
        (nn.Conv2d(32, 32, 3, padding="same"), False),
        (nn.Conv2d(32, 32, 3, padding=1, padding_mode="circular"), False),
        (nn.Conv2d(32, 32, (1, 3)), False),
        (nn.Conv2d(32, 32, 3, stride=(1, 2)), False),
        (nn.Conv2d(32, 32, 3, padding=(1, 0)), False),
        (nn.Conv2d(32, 32, 3, dilation=2), False),
        (nn.Conv2d(32, 32, 3, groups=2), False),
        (nn.ConvTranspose2d(32, 32, 3), False),
        (nn.Linear(32, 32), False),
    ],
    ids=str,
)
def test_which_layers_the_kernel_takes(layer: nn.Module, taken: bool) -> None:
    assert kernel_takes(layer) == taken


def test_more_numbers_than_positions_stay_with_the_library() -> None:
    assert worth_it(FIRST_STAGE)
    assert not worth_it(Convolution(1024, 64, 32, 256, 256, 3, 1, 1))
    assert not worth_it(Convolution(1024, 32, 64, 256, 256, 3, 1, 1))


def test_large_ones_stay_with_the_library_unless_they_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Convolution(64, 128, 256, 8, 8, 3, 1, 1)
    assert worth_it(replace(large, filters=128, height=9))
    assert not worth_it(large)
    monkeypatch.setitem(conv_tiling.MEASURED, key_of(large), tiling_of(large))
    assert worth_it(large)


def test_what_was_measured_goes_before_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Tiling(32, 16, 9, block=64, shares=66, warps=2, stages=1)
    monkeypatch.setitem(conv_tiling.MEASURED, key_of(FIRST_STAGE), fast)
    assert tiling_of(FIRST_STAGE) == fast
    assert tiling_of(replace(FIRST_STAGE, batch=32)) == fast  # with half the blocks in a share
    assert worth_it(FIRST_STAGE)
    monkeypatch.setitem(conv_tiling.MEASURED, key_of(FIRST_STAGE), None)
    assert not worth_it(FIRST_STAGE)
    assert worth_it(replace(FIRST_STAGE, stride=2))

"""How the kernels of a fused network cut convolutions into programs."""

from dataclasses import dataclass

from hypersparse.training.kernels.conv_tiling import MOST_PAIRS, Convolution, Key, Tiling, key_of, tiling_of

LARGEST = 128  # pixels of a tile, unless measured otherwise
SMALLEST = 16  # of every side of a product on tensor cores
FUSED_PAIRS = MOST_PAIRS  # of channels; layers with more are cuDNN's
WITH_CUDNN = False  # whether networks with such layers are fused, which has not been measured


@dataclass(frozen=True)
class Tiles:
    """A program makes `pixels` x `filters` outputs (or `channels`, of a gradient), adding `channels` at a time."""

    pixels: int
    filters: int
    channels: int
    warps: int
    stages: int


# The fastest tiles on an H200 by channels, filters, height, width, side, stride and padding, for one run and for five.
# Lines are those of `python -m benchmarks.fused_tilings`, with microseconds of both. Others follow the rules below.
FORWARD: dict[Key, Tiles] = {
    (16, 32, 32, 32, 3, 1, 1): Tiles(256, 32, 16, warps=4, stages=4),  # 6.4 and 23.4
    (32, 32, 32, 32, 3, 1, 1): Tiles(256, 32, 32, warps=4, stages=3),  # 9.1 and 39.3; by the rule 10.8 and 40.5
    (64, 128, 16, 16, 3, 2, 1): Tiles(64, 128, 64, warps=4, stages=3),  # 5.4 and 11.2; 5.4 and 15.6
    (128, 128, 8, 8, 3, 1, 1): Tiles(64, 128, 64, warps=4, stages=3),  # 7.2 and 15.4; 9.3 and 18.8
}
DATA: dict[Key, Tiles] = {
    (32, 32, 32, 32, 3, 1, 1): Tiles(256, 32, 32, warps=4, stages=3),  # 11.5 and 51.6; 13.3 and 51.6
    (32, 64, 32, 32, 3, 2, 1): Tiles(256, 64, 32, warps=4, stages=3),  # 10.2 and 49.1; 12.1 and 48.1
    (32, 64, 32, 32, 1, 2, 0): Tiles(256, 64, 32, warps=4, stages=3),  # 7.2 and 38.3; 10.0 and 37.8
    (128, 128, 8, 8, 3, 1, 1): Tiles(64, 64, 128, warps=4, stages=3),  # 8.9 and 20.0; 9.7 and 22.2
}
WEIGHTS: dict[Key, Tiling] = {
    (32, 32, 32, 32, 3, 1, 1): Tiling(32, 32, 3, block=128, shares=43, warps=2, stages=3),  # 13.4 and 38.6
    (64, 64, 16, 16, 3, 1, 1): Tiling(64, 64, 1, block=64, shares=14, warps=4, stages=3),  # 9.3 and 28.3
    (64, 128, 16, 16, 3, 2, 1): Tiling(64, 64, 1, block=64, shares=7, warps=4, stages=3),  # 8.0 and 24.0
    (128, 128, 8, 8, 3, 1, 1): Tiling(64, 64, 1, block=64, shares=3, warps=4, stages=3),  # 9.9 and 29.4
}


def forward_tiles(convolution: Convolution) -> Tiles:
    """The tiles of the forward pass."""
    if measured := FORWARD.get(key_of(convolution)):
        return measured
    pixels = pixel_block(convolution.pixels, LARGEST)
    return Tiles(pixels, _power(convolution.filters, 64), _power(convolution.channels, 64), 4, 3)


def data_tiles(convolution: Convolution) -> Tiles:
    """The tiles of the gradient of the images."""
    if measured := DATA.get(key_of(convolution)):
        return measured
    pixels = convolution.batch * convolution.height * convolution.width // convolution.stride**2
    return Tiles(pixel_block(pixels, LARGEST), _power(convolution.filters, 64), _power(convolution.channels, 64), 4, 3)


def weight_tiling(convolution: Convolution) -> Tiling:
    """The tiling of the gradient of the weights."""
    return WEIGHTS.get(key_of(convolution)) or tiling_of(convolution)


def fuses(convolution: Convolution) -> bool:
    """Whether the fused kernels compute a convolution, and not cuDNN."""
    return convolution.channels * convolution.filters <= FUSED_PAIRS


def fits(convolution: Convolution) -> bool:
    """Whether the kernels take a convolution of this size, and are known to be faster than cuDNN's."""
    images = convolution.batch * convolution.height * convolution.width
    whole = convolution.channels % SMALLEST == convolution.filters % SMALLEST == 0
    even = convolution.stride == 1 or convolution.height % 2 == convolution.width % 2 == 0
    tiles = images // convolution.stride**2 % SMALLEST == convolution.pixels % SMALLEST == 0
    same = convolution.padding == convolution.side // 2
    small = max(images * convolution.channels, convolution.pixels * convolution.filters) < 2**27  # for 16 runs
    measured = WITH_CUDNN or fuses(convolution)
    return whole and even and tiles and same and small and measured


def pixel_block(pixels: int, largest: int) -> int:
    """The largest power of two that divides the pixels, up to a limit."""
    return _power(pixels, largest)


def _power(count: int, largest: int) -> int:
    return min(count & -count, largest)

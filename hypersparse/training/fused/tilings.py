"""How the kernels of a fused network cut convolutions into programs."""

from dataclasses import dataclass

from hypersparse.training.kernels.conv_tiling import Convolution, Key, Tiling, key_of, tiling_of

LARGEST = 128  # pixels of a tile, unless measured otherwise
SMALLEST = 16  # of every side of a product on tensor cores


@dataclass(frozen=True)
class Tiles:
    """A program makes `pixels` x `filters` outputs (or `channels`, of a gradient), adding `channels` at a time."""

    pixels: int
    filters: int
    channels: int
    warps: int
    stages: int


# The fastest tiles on an H200 by channels, filters, height, width, side, stride and padding.
FORWARD: dict[Key, Tiles] = {}
DATA: dict[Key, Tiles] = {}
WEIGHTS: dict[Key, Tiling] = {}


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
    return Tiles(
        pixel_block(pixels, LARGEST), _power(convolution.filters, 64), _power(convolution.channels, 64), 4, 3
    )


def weight_tiling(convolution: Convolution) -> Tiling:
    """The tiling of the gradient of the weights."""
    return WEIGHTS.get(key_of(convolution)) or tiling_of(convolution)


def fits(convolution: Convolution) -> bool:
    """Whether the kernels take a convolution of this size."""
    images = convolution.batch * convolution.height * convolution.width
    whole = convolution.channels % SMALLEST == convolution.filters % SMALLEST == 0
    even = convolution.stride == 1 or convolution.height % 2 == convolution.width % 2 == 0
    tiles = images // convolution.stride**2 % SMALLEST == convolution.pixels % SMALLEST == 0
    same = convolution.padding == convolution.side // 2
    small = max(images * convolution.channels, convolution.pixels * convolution.filters) < 2**27  # for 16 runs
    return whole and even and tiles and same and small


def pixel_block(pixels: int, largest: int) -> int:
    """The largest power of two that divides the pixels, up to a limit."""
    return _power(pixels, largest)


def _power(count: int, largest: int) -> int:
    return min(count & -count, largest)

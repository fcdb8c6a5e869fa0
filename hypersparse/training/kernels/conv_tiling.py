"""Which convolutions the kernel in `conv_kernel` takes, and how it cuts the gradient of their weights into programs."""

from dataclasses import astuple, dataclass, replace
from math import ceil

from torch import Tensor, nn

PROCESSORS = 132  # of an H200; a constant, so that every GPU adds in the same order
WARPS = 4  # on each of them; more programs leave more sums to be added
BLOCK = 64  # pixels
STAGES = 3
LARGEST_TILE = 64  # filters or channels
MOST_PAIRS = 128 * 128  # of filters and channels; beyond, cuDNN was as fast or faster where it was measured
MOST_NUMBERS = 2**31  # of a tensor; positions are 32-bit integers


@dataclass(frozen=True)
class Convolution:
    """The sizes of a square 2-D convolution and of what goes in."""

    batch: int
    channels: int
    filters: int
    height: int
    width: int
    side: int  # of the filter
    stride: int
    padding: int

    @classmethod
    def of(cls, images: Tensor, filters: int, *, side: int, stride: int, padding: int) -> "Convolution":
        """Of images [N, C, H, W]."""
        batch, channels, height, width = images.shape
        return cls(batch, channels, filters, height, width, side, stride, padding)

    @property
    def out_height(self) -> int:
        """Of what comes out."""
        return (self.height + 2 * self.padding - self.side) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Of what comes out."""
        return (self.width + 2 * self.padding - self.side) // self.stride + 1

    @property
    def pixels(self) -> int:
        """That come out, of all images."""
        return self.batch * self.out_height * self.out_width

    @property
    def weights(self) -> int:
        """How many numbers the gradient has."""
        return self.filters * self.side**2 * self.channels

    @property
    def flops(self) -> int:
        """Of the gradient of the weights."""
        return 2 * self.pixels * self.weights


@dataclass(frozen=True)
class Tiling:
    """A program adds up `filters` x `channels` x `taps` sums over a share of the pixels, `block` at a time."""

    filters: int
    channels: int
    taps: int  # of the filter: one, a row, or all
    block: int
    shares: int  # at most: where fewer take all pixels, there are fewer
    warps: int
    stages: int  # of blocks on their way; with 1 they come through the cache of the processor

    def blocks(self, convolution: Convolution) -> int:
        """In each share."""
        return ceil(convolution.pixels / (self.shares * self.block))

    def used_shares(self, convolution: Convolution) -> int:
        """Those that have pixels."""
        return ceil(convolution.pixels / (self.blocks(convolution) * self.block))

    def tiles(self, convolution: Convolution) -> int:
        """Programs a share needs."""
        return convolution.weights // (self.filters * self.channels * self.taps)

    def fits(self, convolution: Convolution) -> bool:
        """Whether the tiles cover the weights exactly."""
        whole = convolution.filters % self.filters == convolution.channels % self.channels == 0
        return whole and self.taps in {1, convolution.side, convolution.side**2}


Key = tuple[int, ...]
# The fastest tiling by channels, filters, height, width, side, stride and padding; None where cuDNN is faster. Lines
# are those of `benchmarks/conv_weight_gradient.py --python`. Other convolutions follow the rule in `tiling_of`.
MEASURED: dict[Key, Tiling | None] = {
    # ResNet-32 on an H200
    (32, 32, 32, 32, 3, 1, 1): Tiling(32, 32, 3, block=64, shares=86, warps=2, stages=3),  # 26.4 to 12.5 us
    (32, 64, 32, 32, 3, 2, 1): Tiling(64, 32, 3, block=64, shares=43, warps=4, stages=3),  # 15.6 to 8.3 us
    (64, 64, 16, 16, 3, 1, 1): Tiling(64, 64, 1, block=64, shares=29, warps=4, stages=3),  # 15.7 to 9.6 us
    (32, 64, 32, 32, 1, 2, 0): Tiling(32, 32, 1, block=64, shares=64, warps=2, stages=3),  # 13.9 to 6.3 us
    (64, 128, 16, 16, 3, 2, 1): Tiling(64, 64, 1, block=64, shares=13, warps=4, stages=3),  # 10.8 to 8.5 us
    (128, 128, 8, 8, 3, 1, 1): Tiling(64, 64, 3, block=64, shares=11, warps=4, stages=3),  # 10.8 to 10.7 us
    (64, 128, 16, 16, 1, 2, 0): Tiling(32, 32, 1, block=64, shares=16, warps=2, stages=3),  # 10.3 to 4.6 us
}


def kernel_takes(module: nn.Module) -> bool:
    """Whether the kernel can make the gradient of this layer's weights."""
    if type(module) is not nn.Conv2d or isinstance(module.padding, str) or module.padding_mode != "zeros":
        return False
    sides, strides, paddings = set(module.kernel_size), set(module.stride), set(module.padding)
    square = len(sides) == len(strides) == len(paddings) == 1
    known = sides <= {1, 3} and strides <= {1, 2} and paddings <= {0, 1}
    plain = module.groups == 1 and set(module.dilation) == {1}
    return square and known and plain and module.in_channels % 16 == module.out_channels % 16 == 0


def worth_it(convolution: Convolution) -> bool:
    """Whether the kernel is likely to beat cuDNN, and 32 bits hold the position of every number in it."""
    images = convolution.batch * convolution.height * convolution.width * convolution.channels
    sums = tiling_of(convolution).shares * convolution.weights
    addressable = max(images, convolution.pixels * convolution.filters, sums) < MOST_NUMBERS
    key = key_of(convolution)
    faster = MEASURED[key] is not None if key in MEASURED else convolution.channels * convolution.filters <= MOST_PAIRS
    return addressable and faster


def tiling_of(convolution: Convolution) -> Tiling:
    """The tiling that was measured, or else the largest tiles, a row of taps, and four warps for every processor."""
    if measured := MEASURED.get(key_of(convolution)):
        return measured
    filters, channels = tile_of(convolution.filters), tile_of(convolution.channels)
    warps = filters // 16  # each multiplies 16 filters
    tiling = Tiling(filters, channels, convolution.side, block=BLOCK, shares=1, warps=warps, stages=STAGES)
    return shared_out(tiling, convolution, PROCESSORS * WARPS // warps)


def key_of(convolution: Convolution) -> Key:
    """All sizes but the batch's."""
    sizes = astuple(convolution)
    return sizes[1:]


def shared_out(tiling: Tiling, convolution: Convolution, programs: int) -> Tiling:
    """The tiling with as many shares as make that many programs, if there are pixels for so many."""
    most = ceil(convolution.pixels / tiling.block)
    return replace(tiling, shares=max(1, min(programs // tiling.tiles(convolution), most)))


def tile_of(count: int) -> int:
    """The largest power of two that divides a multiple of 16, up to the limit."""
    return min(count & -count, LARGEST_TILE)

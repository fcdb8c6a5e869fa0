"""Gradients of the weights of small 2-D convolutions as Triton kernels; `convolution` holds the same in plain PyTorch.

cuDNN takes 19 us for a convolution of ResNet-32 on an H200, at batch 64 and on average; bytes and products need 3 to 6.
Here the output pixels are divided into equal shares. For its share a program sums one tile of filters x channels for
some taps in float32, and multiplies blocks of pixels on tensor cores. A second kernel adds the
shares, always in the same order: the same input gives the same bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hypersparse.training.kernels.conv_tiling import Convolution, Tiling

WEIGHTS = 64  # whose shares a program of the second kernel adds; divides their number, a multiple of 256
SHARES = 32  # that it adds at once, at most


@triton.jit(do_not_specialize=["pixels", "blocks"])
def _sum_shares(
    images,  # [N, H, W, C] in memory
    gradients,  # [N, P, Q, K] in memory, of what came out
    sums,  # [shares, K, R, S, C] in memory
    pixels,  # N P Q
    blocks,  # in each share
    channels: tl.constexpr,
    filters: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    side: tl.constexpr,
    stride: tl.constexpr,
    padding: tl.constexpr,
    tile_filters: tl.constexpr,
    tile_channels: tl.constexpr,
    taps: tl.constexpr,
    block: tl.constexpr,
):
    tile, share = tl.program_id(0), tl.program_id(1)
    groups: tl.constexpr = side * side // taps
    tiles: tl.constexpr = channels // tile_channels
    first_tap = tile % groups * taps
    first_row, first_column = first_tap // side, first_tap % side
    channel = tile // groups % tiles * tile_channels + tl.arange(0, tile_channels)
    filter_ = tile // (groups * tiles) * tile_filters + tl.arange(0, tile_filters)
    totals = ()
    for _ in tl.static_range(taps):
        totals += (tl.zeros([tile_filters, tile_channels], tl.float32),)  # type: ignore[assignment]
    for number in range(blocks):
        pixel = (share * blocks + number) * block + tl.arange(0, block)
        inside = pixel < pixels
        # Loaded as it is multiplied: turned in registers it would not be fetched ahead.
        gradient = tl.load(gradients + pixel[None, :] * filters + filter_[:, None], mask=inside[None, :], other=0.0)
        line = pixel // out_width
        top = line % out_height * stride - padding + first_row
        left = pixel % out_width * stride - padding + first_column
        corner = (line // out_height * height + top) * width + left  # of what the first tap sees
        corners = images + corner[:, None] * channels + channel[None, :]
        added = ()
        for tap in tl.static_range(taps):
            y = top + tap // side
            x = left + tap % side
            there = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            shift = (tap // side * width + tap % side) * channels
            values = tl.load(corners + shift, mask=there[:, None], other=0.0)
            added += (tl.dot(gradient, values, totals[tap]),)  # type: ignore[assignment]
        totals = added
    row = (share * filters + filter_) * (side * side) + first_tap
    for tap in tl.static_range(taps):
        tl.store(sums + (row + tap)[:, None] * channels + channel[None, :], totals[tap])


@triton.jit(do_not_specialize=["shares"])
def _add_shares(sums, gradient, total, shares, chunk: tl.constexpr, block: tl.constexpr):
    weight = tl.program_id(0) * block + tl.arange(0, block)
    totals = tl.zeros([chunk, block], tl.float32)
    for first in range(0, shares, chunk):
        share = first + tl.arange(0, chunk)
        totals += tl.load(sums + share[:, None] * total + weight[None, :], mask=(share < shares)[:, None], other=0.0)
    tl.store(gradient + weight, tl.sum(totals, 0))


def weight_gradient(images: Tensor, gradients: Tensor, convolution: Convolution, tiling: Tiling) -> Tensor:
    """The gradient [K, C, R, S] of the weights, channels-last as the images [N, C, H, W] and gradients [N, K, P, Q]."""
    images = images.contiguous(memory_format=torch.channels_last)
    gradients = gradients.contiguous(memory_format=torch.channels_last)
    side, shares = convolution.side, tiling.used_shares(convolution)
    result = torch.empty(
        (convolution.filters, convolution.channels, side, side),
        dtype=images.dtype,
        device=images.device,
        memory_format=torch.channels_last,
    )
    # The sums of a single share are the gradient already.
    sums = result if shares == 1 else result.new_empty(shares * convolution.weights, dtype=torch.float32)
    _sum_shares[(tiling.tiles(convolution), shares)](
        images, gradients, sums, convolution.pixels, tiling.blocks(convolution), **constants(convolution, tiling)
    )
    if shares > 1:
        chunk = min(triton.next_power_of_2(shares), SHARES)
        grid = (convolution.weights // WEIGHTS,)
        _add_shares[grid](sums, result, convolution.weights, shares, chunk=chunk, block=WEIGHTS, num_warps=4)
    return result


def constants(convolution: Convolution, tiling: Tiling) -> dict[str, int]:
    """What the first kernel is compiled for."""
    return {
        "channels": convolution.channels,
        "filters": convolution.filters,
        "height": convolution.height,
        "width": convolution.width,
        "out_height": convolution.out_height,
        "out_width": convolution.out_width,
        "side": convolution.side,
        "stride": convolution.stride,
        "padding": convolution.padding,
        "tile_filters": tiling.filters,
        "tile_channels": tiling.channels,
        "taps": tiling.taps,
        "block": tiling.block,
        "num_warps": tiling.warps,
        "num_stages": tiling.stages,
    }

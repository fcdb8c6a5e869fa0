"""The operations of a fused network as Triton kernels; `PlainOperations` says what each computes."""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from hypersparse.training.fused.operations import Norm, Normed, Sums
from hypersparse.training.fused.tilings import SMALLEST, Tiles, data_tiles, forward_tiles, pixel_block, weight_tiling
from hypersparse.training.kernels import fused_conv, fused_norm
from hypersparse.training.kernels.conv_tiling import Convolution

CHUNK = 64  # tiles whose sums are added at once
PROGRAMS = 132  # that pass over pixels, one for each processor of an H200: each adds up the sums of all tiles first
BLOCK = 8192  # numbers that such a program has at once
SMALL_BLOCK = 2048
MANY = 2**20  # numbers; with more a program has the larger block
MOST_TILES = 256  # that every program adds up; more are first added in groups
GROUPS = 64
TILES = 256  # about as many programs make sums, of one tile each: two for each processor
TILE_BLOCK = 4096  # numbers that such a program has at once


class TritonOperations:
    """Launches the kernels."""

    def conv(self, convolution: Convolution, images: Tensor, weights: Tensor, norm: Norm) -> Normed:
        tiles = forward_tiles(convolution)
        runs, pixels = len(images), convolution.pixels
        values = images.new_empty(
            runs, convolution.batch, convolution.out_height, convolution.out_width, convolution.filters
        )
        moments = images.new_empty(runs, pixels // tiles.pixels, 2, convolution.filters, dtype=torch.float32)
        grid = (pixels // tiles.pixels, convolution.filters // tiles.filters, runs)
        fused_conv.conv_forward[grid](
            images,
            weights,
            values,
            moments,
            weights.stride(0),
            pixels=pixels,
            **_sizes(convolution),
            **_blocks(tiles),
        )
        return Normed(norm, values, *_fewer_moments(moments, tiles.pixels))

    def tile_moments(self, values: Tensor) -> tuple[Tensor, int]:
        """The `moments` and the `count` of the output of a convolution."""
        runs, *sides, channels = values.shape
        tiles, blocks = _tiles(math.prod(sides), channels, TILE_BLOCK)
        moments = values.new_empty(runs, tiles, 2, channels, dtype=torch.float32)
        fused_norm.tile_moments[tiles, channels // blocks["block_channels"], runs](
            values, moments, channels=channels, num_warps=4, **blocks
        )
        return moments, math.prod(sides) // tiles

    def activate(self, first: Normed, second: Normed | None, shortcut: Tensor | None, *, pool: int) -> Tensor:
        runs, batch, height, width, channels = first.values.shape
        results = first.values.new_empty(runs, batch, height // pool, width // pool, channels)
        pixels = batch * (height // pool) * (width // pool)
        grid, blocks = _grid(pixels, channels, runs, BLOCK)
        other = second or first
        fused_norm.activate[grid](
            first.values,
            *_statistics(first),
            shortcut if second is None else second.values,
            *(_statistics(second) if second else [None] * 7),
            results,
            first.norm.scales.stride(0),
            first.norm.momentum,
            first.norm.epsilon,
            other.norm.momentum,
            other.norm.epsilon,
            first.moments.shape[1],
            first.count,
            other.moments.shape[1],
            other.count,
            channels=channels,
            height=height,
            width=width,
            pool=pool,
            pixels=pixels,
            programs=grid[0],
            chunk=CHUNK,
            num_warps=4,
            **blocks,
        )
        return results

    def relu_gradient(
        self, gradients: Tensor, activations: Tensor, first: Normed, second: Normed | None, *, pool: int
    ) -> Sums:
        runs, batch, height, width, channels = first.values.shape
        norms = 1 if second is None else 2
        pixels = batch * (height // pool) * (width // pool)
        tiles, blocks = _tiles(pixels, channels, TILE_BLOCK if pool == 1 else SMALL_BLOCK)
        results = torch.empty_like(first.values)
        sums = gradients.new_empty(runs, tiles, 1 + norms, channels, dtype=torch.float32)
        fused_norm.relu_gradient[tiles, channels // blocks["block_channels"], runs](
            gradients,
            activations,
            first.values,
            first.norm.saved,
            second and second.values,
            second and second.norm.saved,
            first.norm.scales,
            first.norm.shifts,
            results,
            sums,
            first.norm.scales.stride(0),
            channels=channels,
            height=height,
            width=width,
            pool=pool,
            norms=norms,
            pixels=pixels,
            num_warps=4,
            **blocks,
        )
        return Sums(results, sums)

    def norm_gradient(self, sums: Sums, normed: Normed, *, number: int) -> Tensor:
        runs, batch, height, width, channels = normed.values.shape
        norm, results = normed.norm, torch.empty_like(normed.values)
        pixels = batch * height * width
        large = channels <= 32 or pixels * channels > MANY
        grid, blocks = _grid(pixels, channels, runs, BLOCK if large else SMALL_BLOCK)
        fused_norm.norm_gradient[grid](
            sums.gradients,
            normed.values,
            norm.saved,
            norm.scales,
            sums.tiles,
            norm.scale_gradients,
            norm.shift_gradients,
            results,
            norm.scales.stride(0),
            sums.tiles.shape[1],
            channels=channels,
            norms=sums.tiles.shape[2] - 1,
            number_of_norm=number,
            pixels=pixels,
            programs=grid[0],
            chunk=CHUNK,
            num_warps=4,
            **blocks,
        )
        return results

    def conv_data_gradient(
        self, convolution: Convolution, gradients: Tensor, weights: Tensor, skip: Tensor | None
    ) -> Tensor:
        return self._data_gradient(convolution, gradients, weights, skip, None, ()).gradients

    def conv_relu_gradient(
        self,
        convolution: Convolution,
        gradients: Tensor,
        weights: Tensor,
        skip: Tensor | None,
        activations: Tensor,
        first: Normed,
        second: Normed | None,
    ) -> Sums:
        norms = (first,) if second is None else (first, second)
        return self._data_gradient(convolution, gradients, weights, skip, activations, norms)

    def _data_gradient(
        self,
        convolution: Convolution,
        gradients: Tensor,
        weights: Tensor,
        skip: Tensor | None,
        activations: Tensor | None,
        norms: tuple[Normed, ...],
    ) -> Sums:
        tiles = data_tiles(convolution)
        runs, pixels = len(gradients), convolution.batch * convolution.height * convolution.width
        results = gradients.new_empty(
            runs, convolution.batch, convolution.height, convolution.width, convolution.channels
        )
        shape = (runs, pixels // tiles.pixels, 1 + len(norms), convolution.channels)
        sums = gradients.new_empty(shape if norms else 0, dtype=torch.float32)
        saved: list[Tensor | None] = [part for norm in norms for part in (norm.values, norm.norm.saved)]
        grid = (pixels // tiles.pixels, convolution.channels // tiles.channels, runs)
        fused_conv.conv_data_gradient[grid](
            gradients,
            weights,
            skip,
            activations,
            *saved,
            *[None] * (4 - len(saved)),
            results,
            sums,
            weights.stride(0),
            pixels=pixels,
            norms=len(norms),
            **_sizes(convolution),
            **_blocks(tiles),
        )
        return Sums(results, _fewer_sums(sums) if norms else sums)

    def conv_weight_gradient_(
        self, convolution: Convolution, images: Tensor, gradients: Tensor, results: Tensor
    ) -> None:
        tiling = weight_tiling(convolution)
        runs, shares = len(images), tiling.used_shares(convolution)
        sums = images.new_empty(runs, shares, convolution.weights, dtype=torch.float32)
        fused_conv.conv_weight_gradient[tiling.tiles(convolution), shares, runs](
            images,
            gradients,
            sums,
            tiling.blocks(convolution),
            pixels=convolution.pixels,
            **_sizes(convolution),
            tile_filters=tiling.filters,
            tile_channels=tiling.channels,
            taps=tiling.taps,
            block=tiling.block,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )
        _add_shares(sums, results, runs, shares, convolution.weights, result_stride=results.stride(0))


def _fewer_moments(moments: Tensor, count: int) -> tuple[Tensor, int]:
    """The moments of tiles, or of larger ones where there are many."""
    runs, tiles, two, channels = moments.shape
    groups = pixel_block(tiles, GROUPS)
    if tiles <= MOST_TILES or groups == 1:
        return moments, count
    results, block = moments.new_empty(runs, groups, two, channels), min(channels & -channels, 64)
    fused_norm.combine_moments[groups, channels // block, runs](
        moments, results, tiles // groups, count, channels=channels, block_channels=block, chunk=CHUNK, num_warps=4
    )
    return results, tiles // groups * count


def _fewer_sums(sums: Tensor) -> Tensor:
    """The sums of tiles, or of larger ones where there are many."""
    runs, tiles, parts, channels = sums.shape
    groups, width = pixel_block(tiles, GROUPS), parts * channels
    if tiles <= MOST_TILES or groups == 1:
        return sums
    results = sums.new_empty(runs, groups, parts, channels)
    _add_shares(sums, results, runs * groups, tiles // groups, width, result_stride=width)
    return results


def _add_shares(sums: Tensor, results: Tensor, runs: int, shares: int, weights: int, *, result_stride: int) -> None:
    chunk = min(triton.next_power_of_2(shares), 16)
    block = 1024 // chunk
    fused_conv.add_shares[triton.cdiv(weights, block), runs](
        sums, results, weights, shares, result_stride, chunk=chunk, block=block, num_warps=4
    )


def _statistics(normed: Normed) -> list[Tensor | None]:
    norm = normed.norm
    return [normed.moments, norm.scales, norm.shifts, norm.means, norm.variances, norm.bias, norm.saved]


def _sizes(convolution: Convolution) -> dict[str, int]:
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
    }


def _blocks(tiles: Tiles) -> dict[str, int]:
    return {
        "block_pixels": tiles.pixels,
        "block_filters": tiles.filters,
        "block_channels": tiles.channels,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }


def _grid(pixels: int, channels: int, runs: int, block: int) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """Programs for passes over pixels, and their blocks."""
    block_channels = min(channels & -channels, 64)
    block_pixels = pixel_block(pixels, block // block_channels)
    across = channels // block_channels
    programs = max(1, min(pixels // block_pixels, PROGRAMS // across))
    return (programs, across, runs), {"block_pixels": block_pixels, "block_channels": block_channels}


def _tiles(pixels: int, channels: int, block: int) -> tuple[int, dict[str, int]]:
    """How many tiles sums are made of, and the blocks of a program that makes one; the same for any number of runs."""
    block_channels = min(channels & -channels, 64)
    least = triton.cdiv(pixels * (channels // block_channels), TILES)
    count = pixel_block(pixels, max(SMALLEST, triton.next_power_of_2(least)))
    block_pixels = min(count, block // block_channels)
    blocks = {"block_pixels": block_pixels, "block_channels": block_channels, "blocks": count // block_pixels}
    return pixels // count, blocks

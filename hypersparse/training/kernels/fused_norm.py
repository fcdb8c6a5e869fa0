"""Triton kernels for batch norm, ReLU, shortcuts and pooling, over a leading axis of runs.

The sums over all pixels were stored tile by tile by the convolutions' kernels. Each program adds them up for its
channels, always in the same order; the first one also stores what they make: statistics, or gradients of a norm.
"""

import triton
import triton.language as tl


@triton.jit
def _mean_and_variance(moments, run, channel, channels: tl.constexpr, tiles, count, chunk: tl.constexpr):
    """Combine means and sums of squares of tiles of `count` pixels, around the first tile's mean."""
    block: tl.constexpr = channel.shape[0]
    moments += run * tiles * 2 * channels
    around = tl.load(moments + channel)
    shifts = tl.zeros([chunk, block], tl.float32)
    squares = tl.zeros([chunk, block], tl.float32)
    for first in range(0, tiles, chunk):
        tile = first + tl.arange(0, chunk)
        there = (tile < tiles)[:, None]
        place = moments + tile[:, None] * (2 * channels) + channel[None, :]
        shift = tl.where(there, tl.load(place, mask=there, other=0.0) - around[None, :], 0.0)
        shifts += shift
        squares += shift * shift * count + tl.load(place + channels, mask=there, other=0.0)
    shift = tl.sum(shifts, 0) / tiles
    variance = tl.sum(squares, 0) / (tiles * count) - shift * shift
    return around + shift, tl.maximum(variance, 0.0)


@triton.jit
def _scale_and_shift(
    moments,
    scales,  # the norm's weight, a run every `norm_stride`; so are the other three
    shifts,
    means,
    variances,
    bias,  # of the convolution before it, or None
    saved,  # [runs, 2, C]
    norm_stride,
    momentum,
    epsilon,
    run,
    channel,
    channels: tl.constexpr,
    tiles,
    count,
    chunk: tl.constexpr,
):
    mean, variance = _mean_and_variance(moments, run, channel, channels, tiles, count, chunk)
    inverse = 1.0 / tl.sqrt(variance + epsilon)
    place = run * norm_stride + channel
    if tl.program_id(0) == 0:
        tl.store(saved + run * 2 * channels + channel, mean)
        tl.store(saved + (run * 2 + 1) * channels + channel, inverse)
        observed = mean
        if bias is not None:
            observed += tl.load(bias + place)
        total = tiles * count
        unbiased = variance * (total / (total - 1.0))
        tl.store(means + place, tl.load(means + place) * (1.0 - momentum) + momentum * observed)
        tl.store(variances + place, tl.load(variances + place) * (1.0 - momentum) + momentum * unbiased)
    scale = tl.load(scales + place) * inverse
    return scale, tl.load(shifts + place) - mean * scale


@triton.jit
def activate(
    inputs,  # [runs, N, H, W, C], of a convolution
    moments,  # [runs, tiles, 2, C]
    scales,
    shifts,
    means,
    variances,
    bias,
    saved,
    shortcut,  # [runs, N, H, W, C], added; or the output of a second convolution; or None
    other_moments,  # of that, and its norm; or None
    other_scales,
    other_shifts,
    other_means,
    other_variances,
    other_bias,
    other_saved,
    results,  # [runs, N, H / pool, W / pool, C]
    norm_stride,
    momentum,
    epsilon,
    other_momentum,
    other_epsilon,
    tiles,
    count,  # pixels in a tile
    other_tiles,
    other_count,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    pool: tl.constexpr,
    pixels: tl.constexpr,  # of the results, of one run
    programs: tl.constexpr,
    block_pixels: tl.constexpr,
    block_channels: tl.constexpr,
    chunk: tl.constexpr,
):
    run = tl.program_id(2)
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    scale, shift = _scale_and_shift(
        moments, scales, shifts, means, variances, bias, saved, norm_stride, momentum, epsilon,
        run, channel, channels, tiles, count, chunk,
    )  # fmt: skip
    if other_moments is not None:
        other_scale, other_shift = _scale_and_shift(
            other_moments, other_scales, other_shifts, other_means, other_variances, other_bias, other_saved,
            norm_stride, other_momentum, other_epsilon, run, channel, channels, other_tiles, other_count, chunk,
        )  # fmt: skip
    inputs += run * (pixels * pool * pool * channels)
    for number in range(tl.program_id(0), pixels // block_pixels, programs):
        pixel = number * block_pixels + tl.arange(0, block_pixels)
        offsets = pixel[:, None] * channels + channel[None, :]
        if pool == 1:
            value = tl.load(inputs + offsets).to(tl.float32) * scale[None, :] + shift[None, :]
            if shortcut is not None:
                added = tl.load(shortcut + run * (pixels * channels) + offsets).to(tl.float32)
                if other_moments is not None:
                    added = added * other_scale[None, :] + other_shift[None, :]
                value += added
        else:
            corner = _corner(pixel, height, width)[:, None] * channels + channel[None, :]
            value = tl.load(inputs + corner).to(tl.float32) * scale[None, :] + shift[None, :]
            for place in tl.static_range(1, 4):
                offset = (place // 2 * width + place % 2) * channels
                added = tl.load(inputs + corner + offset).to(tl.float32) * scale[None, :] + shift[None, :]
                value = tl.maximum(value, added)
        tl.store(
            results + run * (pixels * channels) + offsets,
            tl.maximum(value, 0.0).to(results.dtype.element_ty),
        )


@triton.jit
def _corner(pixel, height: tl.constexpr, width: tl.constexpr):
    """The first of four pixels of images [N, H, W] that become one."""
    line = pixel // (width // 2)
    return (line // (height // 2) * height + line % (height // 2) * 2) * width + pixel % (width // 2) * 2


@triton.jit
def tile_moments(
    inputs,  # [runs, N, H, W, C]
    moments,  # [runs, tiles, 2, C]: mean of a tile, sum of squares around it
    channels: tl.constexpr,
    blocks: tl.constexpr,  # in a tile
    block_pixels: tl.constexpr,
    block_channels: tl.constexpr,
):
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    count: tl.constexpr = blocks * block_pixels
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inputs += tile * (count * channels)
    around = tl.load(inputs + channel).to(tl.float32)  # near the mean, so that little cancels
    shifts = tl.zeros([block_pixels, block_channels], tl.float32)
    squares = tl.zeros([block_pixels, block_channels], tl.float32)
    for number in range(blocks):
        pixel = number * block_pixels + tl.arange(0, block_pixels)
        value = tl.load(inputs + pixel[:, None] * channels + channel[None, :]).to(tl.float32) - around[None, :]
        shifts += value
        squares += value * value
    shift = tl.sum(shifts, 0) / count
    place = moments + tile * (2 * channels) + channel
    tl.store(place, around + shift)
    tl.store(place + channels, tl.maximum(tl.sum(squares, 0) - shift * shift * count, 0.0))


@triton.jit
def combine_moments(
    moments,  # [runs, groups, members, 2, C], of tiles of `count` pixels
    results,  # [runs, groups, 2, C]
    members,
    count,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    chunk: tl.constexpr,
):
    group = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    mean, variance = _mean_and_variance(moments, group, channel, channels, members, count, chunk)
    place = results + group * (2 * channels) + channel
    tl.store(place, mean)
    tl.store(place + channels, variance * (members * count))


@triton.jit
def relu_gradient(
    gradients,  # [runs, N, H / pool, W / pool, C], of the activations
    activations,  # like the gradients; without pooling
    first,  # [runs, N, H, W, C], the input of the batch norm
    first_saved,
    second,  # of the other norm, or None; without pooling
    second_saved,
    scales,  # of the batch norm; with pooling
    shifts,
    results,  # [runs, N, H, W, C]
    sums,  # [runs, tiles, 1 + norms, C]
    norm_stride,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    pool: tl.constexpr,
    norms: tl.constexpr,
    pixels: tl.constexpr,  # of the gradients, of one run
    blocks: tl.constexpr,  # in a tile
    block_pixels: tl.constexpr,
    block_channels: tl.constexpr,
):
    tile, run = tl.program_id(0), tl.program_id(2)
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    mean = tl.load(first_saved + run * 2 * channels + channel)
    inverse = tl.load(first_saved + (run * 2 + 1) * channels + channel)
    if norms > 1:
        other_mean = tl.load(second_saved + run * 2 * channels + channel)
        other_inverse = tl.load(second_saved + (run * 2 + 1) * channels + channel)
    scale = tl.load(scales + run * norm_stride + channel) * inverse
    shift = tl.load(shifts + run * norm_stride + channel) - mean * scale
    total = tl.zeros([block_pixels, block_channels], tl.float32)
    products = tl.zeros([block_pixels, block_channels], tl.float32)
    other_products = tl.zeros([block_pixels, block_channels], tl.float32)
    for number in range(blocks):
        pixel = (tile * blocks + number) * block_pixels + tl.arange(0, block_pixels)
        offsets = (run * pixels + pixel)[:, None] * channels + channel[None, :]
        gradient = tl.load(gradients + offsets).to(tl.float32)
        if pool == 1:
            gradient = tl.where(tl.load(activations + offsets) > 0, gradient, 0.0)
            result = gradient.to(results.dtype.element_ty)
            tl.store(results + offsets, result)
            rounded = result.to(tl.float32)
            total += rounded
            products += rounded * ((tl.load(first + offsets).to(tl.float32) - mean[None, :]) * inverse[None, :])
            if norms > 1:
                value = tl.load(second + offsets).to(tl.float32)
                other_products += rounded * ((value - other_mean[None, :]) * other_inverse[None, :])
        else:
            corner = _corner(pixel, height, width)[:, None] * channels + channel[None, :]
            corner += run * (pixels * 4 * channels)
            largest = tl.load(first + corner).to(tl.float32) * scale[None, :] + shift[None, :]
            for place in tl.static_range(1, 4):
                offset = (place // 2 * width + place % 2) * channels
                value = tl.load(first + corner + offset).to(tl.float32) * scale[None, :] + shift[None, :]
                largest = tl.maximum(largest, value)
            left = tl.where(largest > 0, gradient, 0.0)  # goes to the first pixel that has the largest value
            for place in tl.static_range(4):
                offset = (place // 2 * width + place % 2) * channels
                given = tl.load(first + corner + offset).to(tl.float32)
                chosen = given * scale[None, :] + shift[None, :] == largest
                result = tl.where(chosen, left, 0.0).to(results.dtype.element_ty)
                left = tl.where(chosen, 0.0, left)
                tl.store(results + corner + offset, result)
                rounded = result.to(tl.float32)
                total += rounded
                products += rounded * ((given - mean[None, :]) * inverse[None, :])
    to_sums = sums + ((run * tl.num_programs(0) + tile) * (1 + norms)) * channels + channel
    tl.store(to_sums, tl.sum(total, 0))
    tl.store(to_sums + channels, tl.sum(products, 0))
    if norms > 1:
        tl.store(to_sums + 2 * channels, tl.sum(other_products, 0))


@triton.jit
def norm_gradient(
    gradients,  # [runs, N, H, W, C], of the outputs of a batch norm
    inputs,  # [runs, N, H, W, C], of the batch norm
    saved,  # [runs, 2, C]
    scales,
    sums,  # [runs, tiles, 1 + norms, C]
    scale_gradients,  # where the norm's own gradients go
    shift_gradients,
    results,  # [runs, N, H, W, C]
    norm_stride,
    tiles,
    channels: tl.constexpr,
    norms: tl.constexpr,
    number_of_norm: tl.constexpr,  # 1 or 2: which products to take
    pixels: tl.constexpr,  # of one run
    programs: tl.constexpr,
    block_pixels: tl.constexpr,
    block_channels: tl.constexpr,
    chunk: tl.constexpr,
):
    run = tl.program_id(2)
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    totals = tl.zeros([chunk, block_channels], tl.float32)
    products = tl.zeros([chunk, block_channels], tl.float32)
    for first in range(0, tiles, chunk):
        tile = first + tl.arange(0, chunk)
        there = (tile < tiles)[:, None]
        place = sums + (run * tiles + tile)[:, None] * ((1 + norms) * channels) + channel[None, :]
        totals += tl.load(place, mask=there, other=0.0)
        products += tl.load(place + number_of_norm * channels, mask=there, other=0.0)
    total, product = tl.sum(totals, 0), tl.sum(products, 0)
    if tl.program_id(0) == 0:
        tl.store(shift_gradients + run * norm_stride + channel, total)
        tl.store(scale_gradients + run * norm_stride + channel, product)
    mean = tl.load(saved + run * 2 * channels + channel)
    inverse = tl.load(saved + (run * 2 + 1) * channels + channel)
    scale = tl.load(scales + run * norm_stride + channel) * inverse
    # gradient - mean gradient - normalized input * mean product, times the scale
    slope = -scale * inverse * (product / pixels)
    constant = -scale * (total / pixels) - slope * mean
    for number in range(tl.program_id(0), pixels // block_pixels, programs):
        pixel = run * pixels + number * block_pixels + tl.arange(0, block_pixels)
        offsets = pixel[:, None] * channels + channel[None, :]
        gradient = tl.load(gradients + offsets).to(tl.float32)
        value = tl.load(inputs + offsets).to(tl.float32)
        result = gradient * scale[None, :] + value * slope[None, :] + constant[None, :]
        tl.store(results + offsets, result.to(results.dtype.element_ty))

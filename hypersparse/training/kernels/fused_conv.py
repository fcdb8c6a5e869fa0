"""Triton kernels for convolutions that share their passes over memory with batch norm, over a leading axis of runs.

Images are [runs, N, H, W, C] and weights [runs, K, S, S, C] in memory. A program of the forward pass and of the
gradient of the images makes one tile of pixels and channels, and stores the tile's sums for the batch norm beside it.
The next kernel adds these in a fixed order, so that the same input gives the same bits, whatever the number of runs.
"""

import triton
import triton.language as tl


@triton.jit
def conv_forward(
    images,  # [runs, N, H, W, C]
    weights,  # [runs, K, S, S, C]
    outputs,  # [runs, N, P, Q, K]
    moments,  # [runs, tiles, 2, K]: mean of a tile, sum of squares around it
    weight_stride,  # from one run to the next
    channels: tl.constexpr,
    filters: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    side: tl.constexpr,
    stride: tl.constexpr,
    padding: tl.constexpr,
    pixels: tl.constexpr,  # N P Q
    block_pixels: tl.constexpr,
    block_filters: tl.constexpr,
    block_channels: tl.constexpr,
):
    tile, run = tl.program_id(0), tl.program_id(2)
    images += run * (pixels // (out_height * out_width) * height * width * channels)
    weights += run * weight_stride
    pixel = tile * block_pixels + tl.arange(0, block_pixels)
    filter_ = tl.program_id(1) * block_filters + tl.arange(0, block_filters)
    channel = tl.arange(0, block_channels)
    line = pixel // out_width
    top = line % out_height * stride - padding
    left = pixel % out_width * stride - padding
    corner = (line // out_height * height + top) * width + left
    from_images = images + corner[:, None] * channels + channel[None, :]
    from_weights = weights + filter_[None, :] * (side * side * channels) + channel[:, None]
    parts: tl.constexpr = channels // block_channels
    total = tl.zeros([block_pixels, block_filters], tl.float32)
    for number in range(side * side * parts):
        tap, first = number // parts, number % parts * block_channels
        row, column = tap // side, tap % side
        y, x = top + row, left + column
        there = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        values = tl.load(from_images + ((row * width + column) * channels + first), mask=there[:, None], other=0.0)
        kernel = tl.load(from_weights + (tap * channels + first))
        total = tl.dot(values, kernel, total)
    result = total.to(outputs.dtype.element_ty)
    tl.store(outputs + (run * pixels + pixel)[:, None] * filters + filter_[None, :], result)
    rounded = result.to(tl.float32)
    mean = tl.sum(rounded, 0) / block_pixels
    apart = rounded - mean[None, :]
    place = moments + ((run * (pixels // block_pixels) + tile) * 2) * filters + filter_
    tl.store(place, mean)
    tl.store(place + filters, tl.sum(apart * apart, 0))


@triton.jit
def conv_data_gradient(
    gradients,  # [runs, N, P, Q, K], of the outputs
    weights,  # [runs, K, S, S, C]
    skip,  # [runs, N, H, W, C], added; or None
    activations,  # [runs, N, H, W, C], the images: 0 where a ReLU cut them
    first,  # [runs, N, H, W, C], the input of the first batch norm before the ReLU
    first_saved,  # [runs, 2, C], its mean and inverse standard deviation
    second,  # the same of the other batch norm, or None
    second_saved,
    results,  # [runs, N, H, W, C]
    sums,  # [runs, tiles, 1 + norms, C]: of the gradients, and of the gradients times each normalized input
    weight_stride,
    channels: tl.constexpr,
    filters: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    side: tl.constexpr,
    stride: tl.constexpr,  # 1, or 2 with even sides
    padding: tl.constexpr,
    pixels: tl.constexpr,  # N H W
    norms: tl.constexpr,  # 0 leaves the ReLU and the sums to another kernel
    block_pixels: tl.constexpr,
    block_filters: tl.constexpr,
    block_channels: tl.constexpr,
):
    tile, run = tl.program_id(0), tl.program_id(2)
    gradients += run * (pixels // (height * width) * out_height * out_width * filters)
    weights += run * weight_stride
    # With a stride of 2 a program has pixels of one parity of row and column, which see the same taps.
    parity = tile * block_pixels // (pixels // (stride * stride))
    down, right = parity // stride, parity % stride
    place = tile * block_pixels - parity * (pixels // (stride * stride)) + tl.arange(0, block_pixels)
    row = place // (width // stride) % (height // stride) * stride + down
    column = place % (width // stride) * stride + right
    image = place // ((width // stride) * (height // stride))
    first_row, first_column = (down + padding) % stride, (right + padding) % stride
    taps_across = (side - first_column + stride - 1) // stride
    taps = (side - first_row + stride - 1) // stride * taps_across
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    filter_ = tl.arange(0, block_filters)
    line, across = (row + padding - first_row) // stride, (column + padding - first_column) // stride
    corner = (image * out_height + line) * out_width + across
    from_gradients = gradients + corner[:, None] * filters + filter_[None, :]
    from_weights = weights + filter_[:, None] * (side * side * channels) + channel[None, :]
    parts: tl.constexpr = filters // block_filters
    total = tl.zeros([block_pixels, block_channels], tl.float32)
    for number in range(taps * parts):
        tap, begin = number // parts, number % parts * block_filters
        up, back = tap // taps_across, tap % taps_across
        y, x = line - up, across - back
        there = (y >= 0) & (y < out_height) & (x >= 0) & (x < out_width)
        values = tl.load(from_gradients + (begin - (up * out_width + back) * filters), mask=there[:, None], other=0.0)
        tap_of_all = (first_row + up * stride) * side + first_column + back * stride
        kernel = tl.load(from_weights + (begin * side * side + tap_of_all) * channels)
        total = tl.dot(values, kernel, total)
    pixel = run * pixels + (image * height + row) * width + column
    offsets = pixel[:, None] * channels + channel[None, :]
    if skip is not None:
        total += tl.load(skip + offsets).to(tl.float32)
    if norms > 0:
        total = tl.where(tl.load(activations + offsets) > 0, total, 0.0)
    result = total.to(results.dtype.element_ty)
    tl.store(results + offsets, result)
    if norms > 0:
        rounded = result.to(tl.float32)
        to_sums = sums + ((run * (pixels // block_pixels) + tile) * (1 + norms)) * channels + channel
        tl.store(to_sums, tl.sum(rounded, 0))
        tl.store(to_sums + channels, _normalized_sum(rounded, first, offsets, first_saved, run, channel, channels))
        if norms > 1:
            other = _normalized_sum(rounded, second, offsets, second_saved, run, channel, channels)
            tl.store(to_sums + 2 * channels, other)


@triton.jit
def _normalized_sum(gradient, inputs, offsets, saved, run, channel, channels: tl.constexpr):
    mean = tl.load(saved + run * 2 * channels + channel)
    scale = tl.load(saved + (run * 2 + 1) * channels + channel)
    normalized = (tl.load(inputs + offsets).to(tl.float32) - mean[None, :]) * scale[None, :]
    return tl.sum(gradient * normalized, 0)


@triton.jit
def conv_weight_gradient(
    images,  # [runs, N, H, W, C]
    gradients,  # [runs, N, P, Q, K], of the outputs
    sums,  # [runs, shares, K, S, S, C]
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
    pixels: tl.constexpr,  # N P Q
    tile_filters: tl.constexpr,
    tile_channels: tl.constexpr,
    taps: tl.constexpr,
    block: tl.constexpr,
):
    tile, share, run = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    images += run * (pixels // (out_height * out_width) * height * width * channels)
    gradients += run * (pixels * filters)
    sums += (run * tl.num_programs(1) + share) * (filters * side * side * channels)
    groups: tl.constexpr = side * side // taps
    tiles: tl.constexpr = channels // tile_channels
    first_tap = tile % groups * taps
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
        top = line % out_height * stride - padding + first_tap // side
        left = pixel % out_width * stride - padding + first_tap % side
        corner = (line // out_height * height + top) * width + left
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
    row = filter_ * (side * side) + first_tap
    for tap in tl.static_range(taps):
        tl.store(sums + (row + tap)[:, None] * channels + channel[None, :], totals[tap])


@triton.jit
def add_shares(
    sums,  # [runs, shares, weights]
    results,  # [runs, ...]: the weights of a run lie `result_stride` after those of the one before
    weights,
    shares,
    result_stride,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    run = tl.program_id(1)
    weight = tl.program_id(0) * block + tl.arange(0, block)
    inside = weight < weights
    totals = tl.zeros([chunk, block], tl.float32)
    for first in range(0, shares, chunk):
        share = first + tl.arange(0, chunk)
        there = (share < shares)[:, None] & inside[None, :]
        totals += tl.load(sums + (run * shares + share)[:, None] * weights + weight[None, :], mask=there, other=0.0)
    tl.store(results + run * result_stride + weight, tl.sum(totals, 0), mask=inside)

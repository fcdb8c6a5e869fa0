"""Winograd's F(4, 3) on the columns of 3-row kernels: fewer products where kernels have many weights.

Four rows of an output need twelve products with the three weights of a kernel column, but six with combinations of
them. Combinations that are zero are skipped: a column with one weight needs four or five products, one with two weights
five or six. Rows are combined before and after, which pays for layers with many weights in each channel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hypersparse_runtime.sparse_layers import Array, Entries, Layer, Network, Pair

Shape = tuple[int, ...]  # channels, height and width
ROWS, TAPS, COMPONENTS = 4, 3, 6  # of a tile, of a kernel, and planes for each channel
ALIGNED = 16  # floats that rows are multiples of
# The weights of each component, for the points 0, 1, -1, 2, -2 and infinity; those of rows are in conv_winograd.h.
WEIGHTS = np.array(
    [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], dtype=np.float64
) / np.array([24])
MOST_FLOATS = 2**18  # of the planes between, so that they stay in the second cache
COST = 15  # products that combining takes as long as, for each element that is read or made: 8 to 14 were measured


@dataclass(frozen=True, eq=False)
class Columns:
    """What a `winograd_input` reads."""

    channels: Array
    first: int  # the distance of the first tap from the output row


def with_winograd(network: Network, *, cost: float = COST) -> Network:
    """The network with the same outputs within rounding, and fewer products."""
    layers, shapes = list[Layer](), dict(network.shapes)
    for layer in network.layers:
        layers += _transformed(layer, shapes, cost) if _is_able(layer, shapes) else [layer]
    return replace(network, layers=tuple(layers), shapes=shapes)


def fits(rows: int, stride: Pair, dilation: Pair, before: Shape, after: Shape) -> bool:
    """Whether a convolution has three rows of taps next to each other and makes rows of whole vectors."""
    unmoved = rows == TAPS and stride == dilation == (1, 1)
    return unmoved and before[2] == after[2] and after[2] % ALIGNED == 0 and after[1] >= ROWS


def _is_able(layer: Layer, shapes: Mapping[str, Shape]) -> bool:
    """Whether it is such a convolution with nothing added to it."""
    if layer.kind != "conv" or layer.entries is None or not len(layer.entries) or layer.work is not None:
        return False
    if layer.residual is not None or layer.plane is not None or not np.isfinite(layer.entries.weight).all():
        return False
    return fits(layer.kernel[0], layer.stride, layer.dilation, shapes[layer.input], shapes[layer.output])


def products_with_winograd(layer: Layer, shapes: Mapping[str, tuple[int, int, int]], cost: float) -> float:
    """The products that a layer takes as long as, transformed where that is worth it."""
    made = _transformed(layer, dict(shapes), cost) if _is_able(layer, shapes) else [layer]
    products, (_, height, width) = (
        sum(len(each.entries) for each in made if each.entries is not None),
        shapes[layer.output],
    )
    if len(made) == 1:
        return products * height * width
    moved = len(made[0].work.channels) + len(layer.rows)
    return (products + cost * ROWS * moved) * -(-height // ROWS) * width


def _transformed(layer: Layer, shapes: dict[str, tuple[int, int, int]], cost: float) -> list[Layer]:
    """The layer in the planes of components, or as it is if that is not worth it."""
    assert layer.entries is not None
    assert layer.bias is not None
    channels, place = np.unique(layer.entries.channel, return_inverse=True)
    row = np.searchsorted(layer.rows, layer.entries.row)
    entries = combined(replace(layer.entries, row=row, channel=place.reshape(-1)))
    _, height, width = shapes[layer.output]
    tiles = -(-height // ROWS)
    planes = (COMPONENTS * len(channels), tiles, width), (COMPONENTS * len(layer.rows), tiles, width)
    saved = len(layer.entries) * height - sum(map(len, entries)) * tiles
    if saved < cost * ROWS * tiles * (len(channels) + len(layer.rows)):
        return [layer]
    if max(channels * tiles * width for channels, *_ in planes) > MOST_FLOATS:
        return [layer]
    before, after = f"{layer.output} columns", f"{layer.output} sums"
    shapes[before], shapes[after] = planes
    work = Columns(channels, -layer.padding[0])
    made = [Layer("winograd_input", layer.input, before, np.arange(planes[0][0]), work=work)]
    nothing = np.zeros(planes[1][0])
    for component, part in enumerate(entries):
        rows = component * len(layer.rows) + np.arange(len(layer.rows))
        moved = replace(part, row=rows[part.row], channel=component * len(channels) + part.channel)
        padding, kernel = (0, layer.padding[1]), (1, layer.kernel[1])
        made.append(Layer("conv", before, after, rows, moved, nothing, kernel=kernel, padding=padding))
    last = Layer("winograd_output", after, layer.output, layer.rows, bias=layer.bias, relu=layer.relu, clip=layer.clip)
    return [*made, last]


def combined(entries: Entries) -> list[Entries]:
    """The weights of each component, for entries of three rows of taps.

    >>> middle = Entries(*(np.array([number]) for number in (0, 0, 1, 2, 3.0)))  # row, channel, y, x, weight
    >>> [each.weight.tolist() for each in combined(middle)]
    [[], [-0.5], [0.5], [0.25], [-0.25], []]
    """
    wide, channels = int(entries.x.max()) + 1, int(entries.channel.max()) + 1
    number = (entries.row.astype(np.int64) * channels + entries.channel) * wide + entries.x
    known, column = np.unique(number, return_inverse=True)
    taps = np.zeros((len(known), TAPS))
    taps[column.reshape(-1), entries.y] = entries.weight
    parts = []
    for factors in WEIGHTS:
        weight = (taps * factors).sum(axis=1)
        kept = np.flatnonzero(weight)
        kernel, x = np.divmod(known[kept], wide)
        row, channel = np.divmod(kernel, channels)
        parts.append(Entries(row, channel, np.zeros_like(row), x, weight[kept]))
    return parts

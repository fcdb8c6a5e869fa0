"""Convolutions in int8: products of four bytes at once with sums in int32, on CPUs with AVX-512 VNNI.

Four input channels become one channel of quads, words of four bytes. A quad of weights that are all zero is skipped.
Channels are sorted by their number of weights first, so that fewer quads have a weight.

Weights have a scale for each output channel, as in files with `--int8`. An input is rounded to 0 to 255 times a scale,
that of its largest number in this image. It comes from a ReLU, and padding stays zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hypersparse_runtime.plane_layout import ALIGNED, Placed
from hypersparse_runtime.row_quantization import STEPS
from hypersparse_runtime.shared_loads import MAX_SHIFTS, MAX_TILE
from hypersparse_runtime.sparse_layers import Array, Entries, Layer, Network
from hypersparse_runtime.winograd import COST as WINOGRAD_COST
from hypersparse_runtime.winograd import products_with_winograd

Shape = tuple[int, int, int]
QUAD, MOST_STEPS = 4, 255  # channels of a word, and steps of an input
MIN_WIDTH, MAX_WIDTH = 5, MAX_TILE * ALIGNED  # of a row: at most two of them in a vector, and one in a tile
LEAST, MOST = 1e-30, 1e30  # magnitudes of weights: their scales are normal float32
COST = 5  # products that rounding takes as long as, for each element that is read: 3 to 6 were measured
WORTH = 0.95  # of the products in float32, at most: loops of few quads end unforeseen more often


@dataclass(frozen=True, eq=False)
class Quads:
    """The channels that `largest` and `quantize` read, and the value with the scale for `quantize`."""

    channels: Array  # four in a row, for `quantize`
    other: str | None = None


@dataclass(frozen=True, eq=False)
class Scales:
    """The scales of a convolution of quads: one for each output channel, and the value with that of its input."""

    rows: Array
    other: str


def with_int8(network: Network, *, cost: float = COST, worth: float = WORTH) -> Network:
    """The network with those convolutions in int8 that need fewer products so."""
    shapes, vectors, layers = dict(network.shapes), set(network.vectors), list[Layer]()
    positive = _positive(network)
    for layer in network.layers:
        made = [layer]
        if layer.input in positive and _is_able(layer, shapes):
            made = _in_quads(layer, shapes, cost, worth)
        if len(made) > 1:
            vectors.add(made[0].output)
        layers += made
    return replace(network, layers=tuple(layers), shapes=shapes, vectors=frozenset(vectors))


def count_int8(placed: Placed) -> int:
    """The number of convolutions in int8; 0 if rows of one are not whole vectors that a tile holds."""
    steps = (step for step in placed.steps if isinstance(step, Layer) and isinstance(step.work, Scales))
    values = [placed.values[step.output] for step in steps]
    return len(values) if all(value.rows and MIN_WIDTH < value.pitch <= MAX_WIDTH for value in values) else 0


def _positive(network: Network) -> set[str]:
    """The values that are never negative: every layer that makes them keeps to that."""
    positive, negative = set[str](), set[str]()
    for layer in network.layers:
        kept = layer.kind == "max_pool" and layer.input in positive - negative
        (positive if kept or _is_positive(layer) else negative).add(layer.output)
    return positive - negative


def _is_positive(layer: Layer) -> bool:
    """Whether a layer makes no negative number, whatever it reads."""
    if layer.relu or (layer.clip is not None and layer.clip[0] >= 0):
        return True
    if layer.bias is None or layer.plane is not None or layer.entries is None or len(layer.entries):
        return False
    if layer.floor is None or layer.offset is None:
        return layer.residual is None and bool((layer.bias[layer.rows] >= 0).all())
    least = layer.bias + np.where(np.isnan(layer.offset), 0, layer.floor)  # NaN: nothing is added to the bias
    return bool((least[layer.rows] >= 0).all())


def _is_able(layer: Layer, shapes: Mapping[str, Shape]) -> bool:
    """Whether it is a convolution without a stride whose loads can be shared."""
    if layer.kind != "conv" or layer.entries is None or layer.stride != (1, 1) or not len(layer.entries):
        return False
    if shapes[layer.input][1:] != shapes[layer.output][1:]:
        return False
    most = float(np.abs(layer.entries.weight).max())
    distances = {0, *(layer.entries.x * layer.dilation[1] - layer.padding[1]).tolist()}
    narrow = MIN_WIDTH <= shapes[layer.output][2] <= MAX_WIDTH and max(map(abs, distances)) <= ALIGNED
    return most <= MOST and narrow and len(distances) <= MAX_SHIFTS  # of NaN too the first is not true


def _in_quads(layer: Layer, shapes: dict[str, Shape], cost: float, worth: float) -> list[Layer]:
    """The steps of the layer in int8, or the layer alone if that is not worth it."""
    assert layer.entries is not None
    channels, place, counts = np.unique(layer.entries.channel, return_inverse=True, return_counts=True)
    order = np.argsort(counts, kind="stable")
    rank = np.argsort(order, kind="stable")[place.reshape(-1)]
    entries, scales, largest_sum = packed_quads(layer.entries, rank, shapes[layer.output][0])
    _, height, width = shapes[layer.output]
    products = (len(entries) + cost * len(channels)) * height * width
    if products > worth * products_with_winograd(layer, shapes, WINOGRAD_COST) or largest_sum * MOST_STEPS >= 2**31:
        return [layer]
    filled = np.minimum(np.arange(-(-len(order) // QUAD) * QUAD), len(order) - 1)  # weights of repeated ones are zero
    sources, number = channels[order][filled].reshape(-1, QUAD), len(shapes)  # several layers may read one value
    scale, quads = f"{layer.input} scale {number}", f"{layer.input} quads {number}"
    shapes[scale], shapes[quads] = (ALIGNED, 1, 1), (len(sources), height, width)
    return [
        Layer("largest", layer.input, scale, np.arange(ALIGNED), work=Quads(channels)),
        Layer("quantize", layer.input, quads, np.arange(len(sources)), work=Quads(sources, scale)),
        replace(layer, input=quads, entries=entries, work=Scales(scales, scale)),
    ]


def packed_quads(entries: Entries, rank: Array, rows: int) -> tuple[Entries, Array, int]:
    """Entries with quads as channels and words as weights, the scale of each row, and the largest sum of steps.

    `rank` is the place of each entry's channel; four places are a quad.

    >>> two = Entries(*map(np.array, ([0, 0], [0, 1], [1, 1], [1, 1], [1.0, -0.5])))
    >>> quads, scales, largest_sum = packed_quads(two, np.array([0, 1]), 1)
    >>> quads.weight.view(np.int8).tolist(), largest_sum
    ([127, -64, 0, 0], 191)
    """
    most = np.zeros(rows)
    np.maximum.at(most, entries.row, np.abs(entries.weight))
    scales = np.where(most > LEAST, most / STEPS, 1)
    steps = np.rint(entries.weight / scales[entries.row]).astype(np.int8)
    largest_sum = int(np.bincount(entries.row, weights=np.abs(steps.astype(np.int64))).max())
    quad, lane = np.divmod(rank, QUAD)
    y, x = entries.y - entries.y.min(), entries.x - entries.x.min()
    place = (entries.row.astype(np.int64) * (int(quad.max()) + 1) + quad) * (int(y.max()) + 1) + y
    place = place * (int(x.max()) + 1) + x
    _, first, word = np.unique(place, return_index=True, return_inverse=True)
    words = np.zeros((len(first), QUAD), dtype=np.int8)
    words[word.reshape(-1), lane] = steps
    packed = replace(entries, channel=quad.astype(np.int32)).where(first)
    return replace(packed, weight=words.view(np.int32).reshape(-1)), scales, largest_sum

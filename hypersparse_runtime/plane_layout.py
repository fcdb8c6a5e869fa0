"""How values lie in memory: planes of rows with zeros between them, so that every tap is a constant offset.

A convolution sums its input at constant distances from the output position, over a whole plane in one run. Its input
and output therefore have the same pitch, the distance between two rows. Between two planes there are as many zero rows
as a tap reaches over the edge.

There are two layouts for taps to the side:

- `rows`: a row is a whole number of vectors, or a vector holds several rows, so that loads are aligned. Taps at the
  same distance to the side are summed first. The sum is shifted once.
- `padded`: there are zero columns between two rows too.

A convolution with a stride reads phases of its input: every stride-th row and column, copied to planes of their own.

Rows of half a vector may be folded: vector i of a plane is row i and row i + fold. A tap up or down is then a whole
vector away. Above the first vector and below the last, rows fold - 1 and fold are repeated for it, beside zeros.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hypersparse_runtime.sparse_layers import Array, Entries, Layer, Network, Pair, ValueStep, distinct

ALIGNED = 16  # floats of the widest vector: planes begin at multiples of it


@dataclass(frozen=True)
class PlaneLayout:
    """The layout of one value in positions: its sides, and the distances between rows and between planes."""

    channels: int
    height: int
    width: int
    pitch: int
    plane: int
    margin: int  # zero positions before the first plane and after the last
    rows: bool  # in which layout
    padded: bool  # whether somebody reads between the rows
    group: int  # values of one group have the same pitch and planes
    widest: int  # width of the widest value of the group
    fold: int = 0  # rows of half a vector: how far below is the row that fills it up; 0: rows follow each other

    @property
    def run(self) -> int:
        """The number of positions from the first to the last."""
        if self.fold:
            return self.fold * self.below
        return (self.height - 1) * self.pitch + (self.pitch if self.rows else self.width)

    @property
    def below(self) -> int:
        """The distance between a row and the next."""
        return 2 * self.pitch if self.fold else self.pitch

    @property
    def is_even(self) -> bool:
        """Whether rows follow each other without padding."""
        return not self.fold and (self.height == 1 or self.pitch == self.width)

    def places(self) -> Array:
        """The position of each row and column in a plane."""
        row = np.arange(self.height)
        half, line = np.divmod(row, self.fold) if self.fold else (np.zeros_like(row), row)
        places: Array = (half * self.pitch + line * self.below)[:, None] + np.arange(self.width)
        return places


@dataclass(frozen=True, eq=False)
class Split:
    """Copies of some phases of channels as planes, given by channel, first row and first column."""

    input: str
    output: str
    phases: Array
    stride: Pair
    lazy_bias: Array | None = None  # two numbers a phase: max(input + lazy_bias[0], lazy_bias[1]) is copied


@dataclass(frozen=True, eq=False)
class Placed:
    """A network whose convolutions have stride 1 and taps as distances (y, x), with the layouts of its values."""

    steps: tuple[Layer | Split, ...]
    values: dict[str, PlaneLayout]
    output: str
    output_shape: tuple[int, ...]

    @cached_property
    def read(self) -> dict[str, Array]:
        """The channels of each value that are read."""
        parts: dict[str, list[Array]] = {name: [np.zeros(0, dtype=np.int64)] for name in self.values}
        parts[self.output].append(np.arange(self.values[self.output].channels))
        for step in self.steps:
            if isinstance(step, Split):
                parts[step.input].append(step.phases[:, 0])
                continue
            if step.is_whole:
                for name in step.reads:
                    parts[name].append(np.arange(self.values[name].channels))
                continue
            parts[step.input].append(_read(step, self.values))
            if step.residual is not None:
                parts[step.residual].append(step.rows)
            for name in step.others:
                parts[name].append(np.arange(self.values[name].channels))
        return {name: distinct(np.concatenate(each)) for name, each in parts.items()}


def _read(step: Layer, values: dict[str, PlaneLayout]) -> Array:
    """The channels of its input that a layer reads."""
    if step.kind in ("winograd_input", "largest", "quantize"):
        channels: Array = step.work.channels.reshape(-1)
        return channels
    if step.kind == "winograd_output":
        return np.arange(values[step.input].channels)
    return step.rows if step.entries is None else step.entries.channel


@dataclass
class _Reach:
    """The largest number of positions read beyond the edges of a value."""

    rows: int = 0
    columns: int = 0
    taps: int = 0  # the furthest row above or below that is read, within the edges or not


@dataclass
class _Groups:
    """Values that must have the same pitch."""

    parent: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str:
        """The representative of the group."""
        while self.parent.setdefault(name, name) != name:
            self.parent[name] = self.parent[self.parent[name]]  # else long chains take the square of their length
            name = self.parent[name]
        return name

    def join(self, first: str, second: str) -> None:
        """Merge the groups of two values."""
        self.parent[self.find(first)] = self.find(second)


def place(network: Network, *, rows: bool, folded: bool = False) -> Placed:
    """Replace strides by splits and taps by distances, and choose a layout for every value.

    Rows are folded only for a CPU with the widest vectors; on other CPUs they are whole vectors.
    """
    shapes, steps = dict(network.shapes), []
    sharing = _sharing(network.layers)
    shared: dict[str, dict[Pair, Split]] = defaultdict(dict)
    for number, layer in enumerate(network.layers):
        steps += _stride_free(layer, sharing.get(number, []), shapes, shared[layer.input])
        shared.pop(layer.output, None)
    groups = _Groups()
    reaches: dict[str, _Reach] = defaultdict(_Reach)
    for name in shapes:
        groups.find(name)
    for step in steps:
        if isinstance(step, Layer):
            _relate(step, shapes, groups, reaches)
    values = _layouts(network, shapes, groups, reaches, rows=rows, folded=folded and rows)
    return Placed(tuple(steps), values, network.output, network.output_shape)


def rows_fit(placed: Placed, vector: int, most: int) -> bool:
    """Whether tiles of `most` vectors hold a row of every value, and every tap reaches at most one vector aside."""
    for step in placed.steps:
        if isinstance(step, Split) or step.kind != "conv" or step.entries is None:
            continue
        furthest = int(np.abs(step.entries.x).max()) if len(step.entries) else 0
        pitch = placed.values[step.output].pitch
        if pitch > vector * most or (pitch >= vector and furthest > vector):
            return False
    return True


def row_pitch(width: int) -> int:
    """The next power of two up to the width of a vector, or a whole number of vectors.

    >>> [row_pitch(width) for width in (1, 7, 16, 28, 56)]
    [1, 8, 16, 32, 64]
    """
    return 1 << (width - 1).bit_length() if width <= ALIGNED else -(-width // ALIGNED) * ALIGNED


def _sharing(layers: Sequence[Layer]) -> dict[int, list[Layer]]:
    """For the first convolution that reads phases of a value: all that share them before the value is overwritten."""
    found: dict[int, list[Layer]] = {}
    first: dict[str, dict[Pair, int]] = defaultdict(dict)  # of the phases of a value, by stride
    for number, layer in enumerate(layers):
        if layer.kind == "conv" and layer.stride != (1, 1):
            found.setdefault(first[layer.input].setdefault(layer.stride, number), []).append(layer)
        first.pop(layer.output, None)
    return found


def _stride_free(
    layer: Layer,
    sharing: list[Layer],
    shapes: dict[str, tuple[int, int, int]],
    shared: dict[Pair, Split],
) -> list[Layer | Split]:
    """A convolution with its taps as distances. A stride becomes a split before it, which others may share."""
    if layer.kind != "conv" or layer.entries is None:
        return [layer]
    if layer.stride == (1, 1):
        y, x = _distances(layer)
        return [replace(layer, entries=replace(layer.entries, y=y, x=x))]
    made = []
    if layer.stride not in shared:
        wanted = distinct(np.concatenate([_phases(each, shapes)[0] for each in sharing]))
        phases = np.stack(np.unravel_index(wanted, shapes[layer.input]), axis=1)
        lazy_bias = None if layer.lazy_bias is None else layer.lazy_bias[:, phases[:, 0]]
        split = Split(layer.input, _phases_name(layer, shapes), phases, layer.stride, lazy_bias)
        sides = [-(-side // step) for side, step in zip(shapes[layer.input][1:], layer.stride, strict=True)]
        shapes[split.output] = (max(len(split.phases), 1), sides[0], sides[1])
        shared[layer.stride], made = split, [split]
    split = shared[layer.stride]
    wanted, moved = _phases(layer, shapes)
    known = np.ravel_multi_index(tuple(split.phases.T), shapes[layer.input])
    channel = np.searchsorted(known, wanted).astype(np.int32)
    free = replace(layer, input=split.output, entries=replace(moved, channel=channel), stride=(1, 1), lazy_bias=None)
    return [*made, free]


def _phases_name(layer: Layer, taken: dict[str, tuple[int, int, int]]) -> str:
    """A new name for phases of a value; several layers may make one value, each from its own phases."""
    name = f"{layer.output} phases"
    while name in taken:
        name += "'"
    return name


def _distances(layer: Layer) -> tuple[Array, Array]:
    assert layer.entries is not None
    y = layer.entries.y * layer.dilation[0] - layer.padding[0]
    x = layer.entries.x * layer.dilation[1] - layer.padding[1]
    return y, x


def _phases(layer: Layer, shapes: dict[str, tuple[int, int, int]]) -> tuple[Array, Entries]:
    """The phase that each entry reads, by its first position, and the entries with distances inside the phase."""
    assert layer.entries is not None
    y, x = _distances(layer)
    shift_y, phase_y = np.divmod(y, layer.stride[0])
    shift_x, phase_x = np.divmod(x, layer.stride[1])
    _, height, width = shapes[layer.input]
    inside = (phase_y < height) & (phase_x < width)  # a phase beyond the last row is all padding
    part = layer.entries.where(inside)
    wanted = (part.channel.astype(np.int64) * height + phase_y[inside]) * width + phase_x[inside]
    return wanted, replace(part, y=shift_y[inside], x=shift_x[inside])


def _relate(layer: Layer, shapes: dict[str, tuple[int, int, int]], groups: _Groups, reaches: dict[str, _Reach]) -> None:
    if layer.residual is not None:
        groups.join(layer.residual, layer.output)
    if layer.kind == "quantize" or (isinstance(layer.work, ValueStep) and layer.work.alike):
        groups.join(layer.input, layer.output)
    if layer.kind != "conv" or layer.entries is None:
        return
    groups.join(layer.input, layer.output)
    reach, entries = reaches[layer.input], layer.entries
    _, height, width = shapes[layer.input]
    _, out_height, out_width = shapes[layer.output]
    if len(entries):
        reach.rows = max(reach.rows, -int(entries.y.min()), int(entries.y.max()) + out_height - height)
        reach.taps = max(reach.taps, int(np.abs(entries.y).max()))
        reach.columns = max(reach.columns, -int(entries.x.min()), int(entries.x.max()) + out_width - width)


def _layouts(
    network: Network,
    shapes: dict[str, tuple[int, int, int]],
    groups: _Groups,
    reaches: dict[str, _Reach],
    *,
    rows: bool,
    folded: bool,
) -> dict[str, PlaneLayout]:
    members = defaultdict(list)
    for name in shapes:
        members[groups.find(name)].append(name)
    # Rows of a folded plane are not evenly apart, as a product of matrices needs them.
    matrices = {name for layer in network.layers if layer.kind == "matmul" for name in layer.reads}
    values = {}
    for number, names in enumerate(members.values()):
        reach = [reaches[name] for name in names]
        width = max(shapes[name][2] for name in names)
        pitch = max(shapes[name][2] + reaches[name].columns for name in names)
        if rows:
            pitch = row_pitch(width)
        lines = max(shapes[name][1] + reaches[name].rows for name in names)
        vector = all(name in network.vectors for name in names)
        plane = 1 if vector else -(-lines * pitch // ALIGNED) * ALIGNED
        furthest = max(each.rows * pitch + each.columns for each in reach)
        fold, taps = 0, max(each.taps for each in reach)
        if folded and 2 * pitch == ALIGNED and taps and matrices.isdisjoint(names):
            fold = -(-max(shapes[name][1] for name in names) // 2)
            plane = (fold + 2 * taps) * ALIGNED
            furthest = taps * ALIGNED + max(each.columns for each in reach)
        padded = any(each.rows or each.columns for each in reach)
        margin = -(-(furthest + pitch) // ALIGNED) * ALIGNED
        for name in names:
            laid = PlaneLayout(*shapes[name], pitch, plane, margin, rows and not vector, padded, number, width)
            values[name] = replace(laid, fold=fold)
    return values

"""Whether a program keeps to its workspace, its tables, the images and the outputs: looked at once, before it runs.

The kernel checks nothing. What its steps read and write follows from their words and tables; here that is computed for
every step, and a program that would leave its memory is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.kernel_tables import KINDS, Ints
from hypersparse_runtime.plane_layout import ALIGNED
from hypersparse_runtime.shared_loads import PATTERN_ORDER, PATTERNS

LANES_OF_SHIFTS = 4 + 8 + 16  # words of a group, for vectors of each length
MAX_SMALL_PLANE = 4  # vectors of a plane
MOST_FUNCTIONS, MOST_OPERATORS, MOST_REDUCTIONS = 18, 8, 4  # in kernel.h
MOST_LANES = 64  # as in kernel.c


@dataclass(frozen=True, eq=False)
class Memory:
    """Of a program: its tables, the floats of its workspace, and those of an image and an output."""

    tables: Ints
    workspace: int
    image: int
    output: int


class _Step:
    """One step's words, and what it may touch."""

    def __init__(self, words: NDArray[Any], memory: Memory) -> None:
        self.memory, self.kind = memory, KINDS[int(words["kind"])]
        self.words: dict[str, int] = dict(zip(words.dtype.names or (), words.item(), strict=True))

    def __getattr__(self, name: str) -> int:
        try:
            return self.words[name]
        except KeyError:
            raise AttributeError(name) from None

    def need(self, condition: bool, what: str) -> None:
        """Refuse the program unless the condition holds."""
        if not condition:
            raise GraphError(f"The network needs a program whose step `{self.kind}` leaves its memory ({what}).")

    def table(self, at: int, length: int, what: str) -> Ints:
        """Some words of the tables."""
        self.need(at >= 0 and length >= 0 and at + length <= len(self.memory.tables), what)
        return self.memory.tables[at : at + length]

    def floats(self, first: int, end: int, what: str) -> None:
        """Floats of the workspace, from the first to the end."""
        self.need(first >= 0 and end <= self.memory.workspace, what)

    def planes(self, channels: Ints, at: int, plane: int, span: int, what: str) -> None:
        """So many floats of the planes of some channels."""
        if len(channels):
            self.need(int(channels.min()) >= 0, what)
            self.floats(at, at + int(channels.max()) * plane + span, what)

    @property
    def read_span(self) -> int:
        """Floats from the first position of an input plane to the last."""
        return _span(self.height, self.width, self.pitch, self.fold) * self.lanes

    @property
    def written_span(self) -> int:
        """The same of an output plane."""
        return _span(self.out_height, self.out_width, self.out_pitch, self.out_fold) * self.lanes


def check_program(steps: NDArray[Any], memory: Memory) -> None:
    """Raise GraphError if a step would touch anything outside."""
    for words in steps:
        step = _Step(words, memory)
        step.need(1 <= step.lanes <= MOST_LANES and step.lanes == 1 << step.lane_shift and step.rows >= 0, "lanes")
        _CHECKS[step.kind](step)


def _span(height: int, width: int, pitch: int, fold: int) -> int:
    """Positions from the first to the last of a plane.

    >>> _span(3, 5, 8, 0), _span(3, 5, 8, 2)
    (21, 21)
    """
    upper = min(height, fold) if fold else 0
    last = max(2 * (upper - 1), 2 * (height - 1 - fold) + 1) if fold else height - 1
    return last * pitch + width


def _extent(step: _Step) -> int:
    """Floats of an output plane that a sum computes, whole vectors, by rows or in one run."""
    before = (step.segments - 1) * step.segment_stride
    return before + max(_vectors(step.segment_length), _vectors(before + step.segment_length) - before)


def _vectors(length: int) -> int:
    return -(-length // ALIGNED) * ALIGNED


def _sum(step: _Step) -> None:
    """What all sums of products share: rows, what is added to them, and their outputs."""
    extent, rows = _extent(step), step.rows
    step.need(min(step.segments, step.segment_length, step.segment_stride + 1, step.groups) > 0, "segments")
    channels = step.table(step.channels, rows, "channels")
    step.planes(channels, step.output, step.output_plane, extent, "output")
    if step.residual >= 0:
        step.planes(channels, step.residual, step.output_plane, extent, "residual")
    step.table(step.bias, rows, "bias")
    if step.lazy_bias >= 0:
        step.table(step.lazy_bias, 2 * rows, "lazy_bias")
    if step.clip >= 0:
        step.table(step.clip, 2, "clip")
    if step.mask >= 0:
        step.table(step.mask, extent, "mask")
    if step.plane >= 0:
        read = extent if step.lanes == 1 else (extent - 1 >> step.lane_shift) + 1
        step.table(step.plane, max(rows - 1, 0) * step.plane_size + read, "plane")


def _entries(step: _Step, extent: int) -> Ints:
    """Where each row's and group's entries begin; what they read is in the workspace."""
    starts = step.table(step.starts, step.rows * step.groups + 1, "starts")
    counts = np.diff(starts)
    whole = step.chains if step.kind != "dot" else 4
    step.need(starts[0] >= 0 and not (counts < 0).any() and not (counts % whole).any(), "starts")
    offsets = step.table(step.entries, 2 * int(starts[-1]), "entries")[2 * int(starts[0]) :: 2]
    _offsets(step, offsets, extent)
    return starts


def _offsets(step: _Step, offsets: Ints, extent: int) -> None:
    if len(offsets):
        step.floats(step.input + int(offsets.min()), step.input + int(offsets.max()) + extent, "input")


def _conv(step: _Step) -> None:
    _sum(step)
    _entries(step, _extent(step))
    step.table(step.distances, step.groups, "distances")
    if step.shifts >= 0:
        step.table(step.shifts, LANES_OF_SHIFTS * step.groups, "shifts")


def _dot(step: _Step) -> None:
    _sum(step)
    _entries(step, 1)


def _few_taps(step: _Step) -> None:
    _sum(step)
    starts = _entries(step, _extent(step))
    step.table(step.edge_masks, int(starts[-1]), "edge_masks")


def _small_planes(step: _Step) -> None:
    _sum(step)
    step.need(_extent(step) <= MAX_SMALL_PLANE * ALIGNED, "vectors")
    step.need(not (np.diff(_entries(step, _extent(step))) % 2).any(), "starts")  # they are read in pairs
    step.table(step.distances, 2 * step.groups, "distances")
    step.table(step.shifts, ALIGNED * step.groups, "shifts")


def _shared_loads(step: _Step) -> None:
    _sum(step)
    starts = step.table(step.starts, step.rows * step.blocks * PATTERNS + 1, "starts")
    counts = np.diff(starts)
    sizes = np.tile([1 + each.bit_count() for each in PATTERN_ORDER], step.rows * step.blocks)
    step.need(starts[0] >= 0 and not (counts < 0).any() and not (counts % sizes).any(), "starts")
    words = step.table(step.entries, int(starts[-1]), "entries")
    loads = counts // sizes
    cells = np.repeat(np.arange(len(loads)), loads)
    place = np.arange(len(cells)) - np.repeat(np.cumsum(loads) - loads, loads)
    _offsets(step, words[starts[:-1][cells] + place * sizes[cells]], _extent(step))
    step.table(step.distances, step.groups, "distances")
    step.table(step.shifts, LANES_OF_SHIFTS * step.groups, "shifts")


def _split(step: _Step) -> None:
    phases = step.table(step.channels, 3 * step.rows, "phases").reshape(-1, 3)
    if not step.rows:
        return
    step.need(min(step.stride_y, step.stride_x) > 0 and int(phases.min()) >= 0, "phases")
    _, row, column = phases.max(axis=0)
    step.need(int(row) < step.height and int(column) < step.width, "phases")
    step.need((step.out_height - 1) * step.stride_y < step.height <= step.out_height * step.stride_y, "rows")
    step.need((step.out_width - 1) * step.stride_x < step.width <= step.out_width * step.stride_x, "columns")
    beyond = ALIGNED if step.stride_x == 2 and step.lanes == 1 else 0  # pairs of vectors end behind odd widths
    step.planes(phases[:, 0], step.input, step.input_plane, step.read_span + beyond, "input")
    step.floats(step.output, step.output + (step.rows - 1) * step.output_plane + step.written_span, "output")
    if step.lazy_bias >= 0:
        step.table(step.lazy_bias, 2 * step.rows, "lazy_bias")


def _pool(step: _Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    step.planes(channels, step.input, step.input_plane, step.read_span, "input")
    step.planes(channels, step.output, step.output_plane, step.written_span, "output")
    step.need(min(step.kernel_y, step.kernel_x, step.stride_y, step.stride_x) > 0, "window")
    unpadded = step.pad_y == 0 and step.pad_x == 0  # windows of two and more are not looked at one by one
    inside = [(step.out_height - 1) * step.stride_y + step.kernel_y <= step.height]
    inside += [(step.out_width - 1) * step.stride_x + step.kernel_x <= step.width]
    step.need(not unpadded or all(inside), "window")


def _mean(step: _Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    step.need(step.lanes == 1 or step.fold == 0, "fold")
    step.planes(channels, step.input, step.input_plane, step.read_span, "input")
    step.planes(channels, step.output, step.output_plane, step.lanes, "output")


def _pack(step: _Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    step.planes(channels, step.output, step.output_plane, step.written_span, "output")
    size = step.out_height * step.out_width
    step.need(step.rows == 0 or (int(channels.max()) + 1) * size <= step.memory.image, "image")


def _unpack(step: _Step) -> None:
    last = (step.rows - 1) * step.input_plane
    step.floats(step.input, step.input + last + step.read_span, "input")
    step.need(step.rows * step.height * step.width <= step.memory.output, "output")


def _repeat_rows(step: _Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    vector, beyond = 2 * step.pitch, step.segments
    step.need(0 <= beyond <= step.fold and vector == ALIGNED, "rows")
    step.floats(step.input - beyond * vector + step.pitch, step.input, "above")
    step.planes(channels, step.input, step.input_plane, (step.fold + beyond) * vector, "below")


def _clear(step: _Step) -> None:
    runs = step.table(step.channels, 2 * step.rows, "runs").reshape(-1, 2).astype(np.int64)
    if len(runs):
        ends = runs[:, 0] + -(-runs[:, 1] // ALIGNED) * ALIGNED
        step.floats(step.output + int(runs[:, 0].min()), step.output + int(ends.max()), "output")


def _shares(step: _Step) -> None:
    step.need(step.rows > 0, "rows")
    for at, plane in ((step.input, step.input_plane), (step.output, step.output_plane)):
        step.floats(at, at + (step.rows - 1) * plane + step.lanes, "classes")


def _values(step: _Step, words: int, what: str) -> Ints:
    """The runs of a step, each of so many numbers of which the last is a count."""
    runs: Ints = step.table(step.channels, words * step.rows, what).reshape(-1, words)
    step.need(not (runs < 0).any() and not (runs[:, -1] == 0).any(), what)
    return runs


def _operand(step: _Step, runs: Ints, column: int, *, at: int, stride: int, what: str) -> None:
    """What runs take of a value, or of a table of constants where `at` is none."""
    if not len(runs):
        return
    first = runs[:, column].astype(np.int64)
    last = first + (runs[:, -1].astype(np.int64) - 1) * stride
    low, high = int(min(first.min(), last.min())), int(max(first.max(), last.max())) + 1
    step.need(low >= 0, what)
    if at < 0:
        step.need(high <= step.plane_size, what)
        step.table(step.plane, step.plane_size, what)
    else:
        step.floats(at + low * step.lanes, at + high * step.lanes, what)


def _copy(step: _Step) -> None:
    runs = _values(step, 3, "runs")
    _operand(step, runs, 0, at=step.output, stride=1, what="output")
    _operand(step, runs, 1, at=-1 if step.plane >= 0 else step.input, stride=step.stride_x, what="input")


def _elementwise(step: _Step) -> None:
    runs = _values(step, 3, "runs")
    step.need(0 <= step.kernel_y < MOST_FUNCTIONS, "function")
    step.table(step.bias, 1, "bias")
    for column, at in ((0, step.output), (1, step.input)):
        _operand(step, runs, column, at=at, stride=1, what="runs")


def _arithmetic(step: _Step) -> None:
    runs = _values(step, 4, "runs")
    step.need(0 <= step.kernel_y < MOST_OPERATORS, "operator")
    _operand(step, runs, 0, at=step.output, stride=1, what="output")
    _operand(step, runs, 1, at=step.input, stride=step.stride_y, what="input")
    _operand(step, runs, 2, at=step.residual, stride=step.stride_x, what="second operand")


def _planes(step: _Step, *, reduced: bool = False) -> None:
    """Groups of planes: whole vectors, but for values that lie close together."""
    step.need(step.rows > 0 and step.groups > 0 and step.rows % step.groups == 0 and step.segment_length > 0, "groups")
    span = step.segment_length * step.lanes
    step.floats(step.input, step.input + (step.rows - 1) * step.input_plane + span, "input")
    made = step.rows // step.groups if reduced else step.rows
    step.floats(step.output, step.output + (made - 1) * step.output_plane + span, "output")
    if step.mask >= 0:
        step.table(step.mask, _vectors(step.segment_length), "mask")


def _norm(step: _Step) -> None:
    _planes(step)
    many = step.rows if step.kind == "group_norm" else step.groups
    step.table(step.bias, 2 * many, "gain")
    step.table(step.clip, 1, "epsilon")
    for at, plane in ((step.input, step.input_plane), (step.output, step.output_plane)):
        step.floats(at, at + (step.rows - 1) * plane + step.read_span, "rows")


def _reduce(step: _Step) -> None:
    step.need(0 <= step.kernel_y < MOST_REDUCTIONS, "function")
    _planes(step, reduced=True)


def _matmul(step: _Step) -> None:
    step.need(min(step.rows, step.groups, step.segments, step.segment_length) > 0 and step.lanes == 1, "sizes")
    batches = step.table(step.channels, 2 * step.segments, "batches").reshape(-1, 2).astype(np.int64)
    step.table(step.bias, 1, "scale")
    factors = [(step.rows - 1) * step.stride_y, (step.groups - 1) * step.stride_x]
    low, high = (sum(part(0, each) for each in factors) for part in (min, max))
    step.floats(step.input + int(batches[:, 0].min()) + low, step.input + int(batches[:, 0].max()) + high + 1, "first")
    last = (step.groups - 1) * step.segment_stride
    run = _vectors(step.segment_length)
    at = step.residual + int(batches[:, 1].min()), step.residual + int(batches[:, 1].max())
    step.need(step.residual >= 0, "second")
    step.floats(at[0] + min(0, last), at[1] + max(0, last) + run, "second")
    made = (step.segments * step.rows - 1) * step.output_plane + step.segment_length
    step.floats(step.output, step.output + made, "output")


def _embedding(step: _Step) -> None:
    ids = step.table(step.channels, step.segment_length, "ids")
    step.need(min(step.segment_length, step.rows, step.groups) > 0 and step.lanes == 1, "sizes")
    step.need(step.groups * step.rows <= step.plane_size, "weights")
    step.table(step.plane, step.plane_size, "weights")
    step.floats(step.input + int(ids.min()), step.input + int(ids.max()) + 1, "ids")
    step.floats(step.output, step.output + (step.rows - 1) * step.output_plane + step.segment_length, "output")


def _resample(step: _Step) -> None:
    step.need(step.rows > 0 and step.segment_length > 0, "rows")
    places = step.table(step.channels, step.segment_length, "places")
    starts = step.table(step.starts, step.segment_length + 1, "starts")
    step.need(starts[0] >= 0 and not (np.diff(starts) < 0).any(), "starts")
    offsets = step.table(step.entries, 2 * int(starts[-1]), "entries")[::2]
    for found, at, plane in ((places, step.output, step.output_plane), (offsets, step.input, step.input_plane)):
        if len(found):
            step.need(int(found.min()) >= 0, "places")
            step.floats(at, at + (step.rows - 1) * plane + (int(found.max()) + 1) * step.lanes, "places")


def _recurrent(step: _Step) -> None:
    gates = 4 if step.kind == "lstm" else 3
    step.need(step.rows > 0 and step.segment_length > 0 and step.groups == gates and step.lanes == 1, "sizes")
    starts = step.table(step.starts, gates * step.rows + 1, "starts")
    step.need(starts[0] >= 0 and not (np.diff(starts) < 0).any(), "starts")
    offsets = step.table(step.entries, 2 * int(starts[-1]), "entries")[::2]
    step.table(step.bias, step.rows if step.kind == "gru" else 0, "bias")
    length = step.segment_length
    step.floats(step.input, step.input + (gates * step.rows - 1) * step.input_plane + length, "gates")
    step.floats(step.output, step.output + (step.rows - 1) * step.output_plane + length, "output")
    if len(offsets):
        step.need(int(offsets.min()) >= 0, "hidden state")
        step.floats(step.output, step.output + int(offsets.max()) + length, "hidden state")


_CHECKS: Mapping[str, Callable[[_Step], None]] = MappingProxyType(
    {
        "conv": _conv,
        "dot": _dot,
        "split": _split,
        "max_pool": _pool,
        "mean": _mean,
        "pack": _pack,
        "unpack": _unpack,
        "conv_few_taps": _few_taps,
        "conv_small_planes": _small_planes,
        "conv_shared_loads": _shared_loads,
        "repeat_rows": _repeat_rows,
        "clear": _clear,
        "softmax": _shares,
        "log_softmax": _shares,
        "copy": _copy,
        "elementwise": _elementwise,
        "arithmetic": _arithmetic,
        "layer_norm": _norm,
        "group_norm": _norm,
        "matmul": _matmul,
        "softmax_planes": _planes,
        "reduce": _reduce,
        "embedding": _embedding,
        "resample": _resample,
        "lstm": _recurrent,
        "gru": _recurrent,
    }
)

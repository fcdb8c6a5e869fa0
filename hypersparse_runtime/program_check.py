"""Check once, before a program runs, that it stays inside its workspace, its tables, the images and the outputs.

The kernel checks nothing. This module computes what each step reads and writes from its words and tables. A program
that would access other memory is refused.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.checked_step import Memory, Step, vectors
from hypersparse_runtime.int8 import QUAD
from hypersparse_runtime.kernel_tables import Ints
from hypersparse_runtime.plane_layout import ALIGNED
from hypersparse_runtime.shared_loads import MAX_SHIFTS, PATTERN_ORDER, PATTERNS
from hypersparse_runtime.value_steps import VALUE_STEPS
from hypersparse_runtime.winograd import COMPONENTS

LANES_OF_SHIFTS = 4 + 8 + 16  # words of a group, for vectors of each length
MAX_SMALL_PLANE = 4  # vectors of a plane
MOST_LANES = 64  # as in kernel.c


def check_program(steps: NDArray[Any], memory: Memory) -> None:
    """Raise GraphError if a step would access other memory."""
    for words in steps:
        step = Step(words, memory)
        step.need(1 <= step.lanes <= MOST_LANES and step.lanes == 1 << step.lane_shift and step.rows >= 0, "lanes")
        _CHECKS[step.kind](step)


def _extent(step: Step) -> int:
    """The floats of an output plane that a sum computes in whole vectors, by rows or in one run."""
    before = (step.segments - 1) * step.segment_stride
    return before + max(vectors(step.segment_length), vectors(before + step.segment_length) - before)


def _sum(step: Step) -> None:
    """The checks of all sums of products: rows, what is added to them, and their outputs."""
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


def _entries(step: Step, extent: int) -> Ints:
    """Check the entries of each row and group; they read inside the workspace."""
    starts = step.table(step.starts, step.rows * step.groups + 1, "starts")
    counts = np.diff(starts)
    whole = step.chains if step.kind != "dot" else 4
    step.need(starts[0] >= 0 and not (counts < 0).any() and not (counts % whole).any(), "starts")
    offsets = step.table(step.entries, 2 * int(starts[-1]), "entries")[2 * int(starts[0]) :: 2]
    _offsets(step, offsets, extent)
    return starts


def _offsets(step: Step, offsets: Ints, extent: int) -> None:
    if len(offsets):
        step.floats(step.input + int(offsets.min()), step.input + int(offsets.max()) + extent, "input")


def _conv(step: Step) -> None:
    _sum(step)
    _entries(step, _extent(step))
    step.table(step.distances, step.groups, "distances")
    if step.shifts >= 0:
        step.table(step.shifts, LANES_OF_SHIFTS * step.groups, "shifts")


def _dot(step: Step) -> None:
    _sum(step)
    _entries(step, 1)


def _few_taps(step: Step) -> None:
    _sum(step)
    starts = _entries(step, _extent(step))
    step.table(step.edge_masks, int(starts[-1]), "edge_masks")


def _small_planes(step: Step) -> None:
    _sum(step)
    step.need(_extent(step) <= MAX_SMALL_PLANE * ALIGNED, "vectors")
    step.need(not (np.diff(_entries(step, _extent(step))) % 2).any(), "starts")  # they are read in pairs
    step.table(step.distances, 2 * step.groups, "distances")
    step.table(step.shifts, ALIGNED * step.groups, "shifts")


def _shared_loads(step: Step) -> None:
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


def _int8(step: Step) -> None:
    """A convolution of quads: for one image, and the loops of `conv_shared_loads`."""
    _shared_loads(step)
    step.need(step.lanes == 1 and step.groups <= MAX_SHIFTS, "lanes")
    step.floats(step.kernel_x, step.kernel_x + 1, "scale")
    step.table(step.kernel_y, step.rows, "scales")


def _largest(step: Step) -> None:
    channels = step.table(step.channels, step.blocks, "channels")
    step.need(step.lanes == 1 and step.segment_length % ALIGNED == 0, "lanes")
    step.planes(channels, step.input, step.input_plane, step.segment_length, "input")
    step.floats(step.output, step.output + ALIGNED, "output")


def _quantize(step: Step) -> None:
    channels = step.table(step.channels, QUAD * step.rows, "channels")
    step.need(step.lanes == 1 and step.rows > 0 and step.segment_length % ALIGNED == 0, "lanes")
    step.planes(channels, step.input, step.input_plane, step.segment_length, "input")
    last = (step.rows - 1) * step.output_plane
    step.floats(step.output, step.output + last + step.segment_length, "output")
    step.floats(step.kernel_x, step.kernel_x + 1, "scale")


def _split(step: Step) -> None:
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


def _pool(step: Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    step.planes(channels, step.input, step.input_plane, step.read_span, "input")
    step.planes(channels, step.output, step.output_plane, step.written_span, "output")
    step.need(min(step.kernel_y, step.kernel_x, step.stride_y, step.stride_x) > 0, "window")
    unpadded = step.pad_y == 0 and step.pad_x == 0  # windows of two and more are not looked at one by one
    inside = [(step.out_height - 1) * step.stride_y + step.kernel_y <= step.height]
    inside += [(step.out_width - 1) * step.stride_x + step.kernel_x <= step.width]
    step.need(not unpadded or all(inside), "window")


def _mean(step: Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    step.need(step.lanes == 1 or step.fold == 0, "fold")
    step.planes(channels, step.input, step.input_plane, step.read_span, "input")
    step.planes(channels, step.output, step.output_plane, step.lanes, "output")


def _pack(step: Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    step.planes(channels, step.output, step.output_plane, step.written_span, "output")
    size = step.out_height * step.out_width
    step.need(step.rows == 0 or (int(channels.max()) + 1) * size <= step.memory.image, "image")


def _unpack(step: Step) -> None:
    last = (step.rows - 1) * step.input_plane
    step.floats(step.input, step.input + last + step.read_span, "input")
    step.need(step.rows * step.height * step.width <= step.memory.output, "output")


def _repeat_rows(step: Step) -> None:
    channels = step.table(step.channels, step.rows, "channels")
    vector, beyond = 2 * step.pitch, step.segments
    step.need(0 <= beyond <= step.fold and vector == ALIGNED, "rows")
    step.floats(step.input - beyond * vector + step.pitch, step.input, "above")
    step.planes(channels, step.input, step.input_plane, (step.fold + beyond) * vector, "below")


def _clear(step: Step) -> None:
    runs = step.table(step.channels, 2 * step.rows, "runs").reshape(-1, 2).astype(np.int64)
    if len(runs):
        ends = runs[:, 0] + -(-runs[:, 1] // ALIGNED) * ALIGNED
        step.floats(step.output + int(runs[:, 0].min()), step.output + int(ends.max()), "output")


def _winograd(step: Step) -> None:
    """Rows of whole vectors, which are not folded; on the one side the planes of components."""
    step.need(step.rows > 0 and step.fold == step.out_fold == 0, "rows")
    step.need(step.width == step.out_width and step.segment_length == step.width * step.lanes, "columns")
    step.need(step.segment_length % ALIGNED == 0, "columns")
    channels = step.table(step.channels, step.rows, "channels")
    read = step.input, step.input_plane, step.read_span, "input"
    written = step.output, step.output_plane, step.written_span, "output"
    some, components = (read, written) if step.kind == "winograd_input" else (written, read)
    step.planes(channels, *some)
    step.planes(np.arange(COMPONENTS * step.rows, dtype=np.int32), *components)
    if step.kind == "winograd_output":
        step.table(step.bias, step.rows, "bias")
    if step.clip >= 0:
        step.table(step.clip, 2, "clip")


def _shares(step: Step) -> None:
    step.need(step.rows > 0, "rows")
    for at, plane in ((step.input, step.input_plane), (step.output, step.output_plane)):
        step.floats(at, at + (step.rows - 1) * plane + step.lanes, "classes")


_CHECKS: Mapping[str, Callable[[Step], None]] = MappingProxyType(
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
        **dict.fromkeys(("winograd_input", "winograd_output"), _winograd),
        "conv_int8": _int8,
        "largest": _largest,
        "quantize": _quantize,
        "softmax": _shares,
        "log_softmax": _shares,
        **{kind: step.check for kind, step in VALUE_STEPS.items()},
    }
)

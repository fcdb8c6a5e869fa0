"""Write a placed network as a program for the kernel: rows of numbers, tables of constants, and a workspace size."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.checked_step import Memory, vectors
from hypersparse_runtime.conv_steps import SHARED, sums_of
from hypersparse_runtime.graph import INPUT, GraphError
from hypersparse_runtime.int8 import Scales
from hypersparse_runtime.kernel_tables import FIELDS, KINDS, NONE, STEP, Tables
from hypersparse_runtime.memory_plan import Places, plan_memory, zeros_of
from hypersparse_runtime.plane_layout import ALIGNED, Placed, PlaneLayout, Split
from hypersparse_runtime.program_check import check_program
from hypersparse_runtime.shared_loads import PATTERNS
from hypersparse_runtime.sparse_layers import Layer, ValueStep
from hypersparse_runtime.value_steps import VALUE_STEPS
from hypersparse_runtime.value_steps.base import Writing

MOST_FLOATS = (
    2**26
)  # Of a workspace, 256 MB, and twice that for images side by side; VGG-16 on 224x224 has 7e6 and 1.1e8
MOST_CLEARED = 2**27  # positions of the blocks that are cleared
SUMS = ("conv", "dot", "conv_few_taps", "conv_small_planes", "conv_shared_loads", "conv_int8")
SLOW = 8  # of a pooling window each number takes as long as so many products


@dataclass(frozen=True, eq=False)
class Program:
    """A program for `lanes` images at a time."""

    steps: NDArray[Any]  # of STEP
    tables: NDArray[np.int32]
    workspace_floats: int
    lanes: int
    image_size: int
    output_shape: tuple[int, ...]

    @cached_property
    def operations(self) -> int:
        """An estimate of the kernel's operations: products, and numbers that are moved or compared."""
        return sum(self._operations(step) for step in self.steps)

    def _operations(self, step: Any) -> int:
        kind, rows = KINDS[int(step["kind"])], int(step["rows"])
        if kind in SUMS:
            cells = rows * (int(step["blocks"]) * PATTERNS if kind in SHARED else int(step["groups"]))
            entries = int(self.tables[int(step["starts"]) + cells]) // (2 if kind in SHARED else 1)
            floats = 1 if kind == "dot" else int(step["segments"]) * int(step["segment_length"])
            return (entries + rows) * floats
        if kind == "max_pool":
            window = SLOW * int(step["kernel_y"]) * int(step["kernel_x"])
            return rows * int(step["out_height"]) * int(step["out_width"]) * int(step["lanes"]) * window
        if kind in VALUE_STEPS:
            return int(step["blocks"]) * SLOW
        return rows * int(step["height"]) * int(step["width"]) * int(step["lanes"])


def write_program(placed: Placed, lanes: int, vector: int) -> Program:
    """Write the program for `lanes` interleaved images on a CPU with vectors of `vector` floats."""
    tables, places = Tables(), plan_memory(placed, lanes)
    _check_size(places, lanes)
    steps = [*_clearings(-1, placed, places, tables, lanes), _pack(placed, places, tables, lanes)]
    for index, step in enumerate(placed.steps):
        steps += _clearings(index, placed, places, tables, lanes)
        blank = _blank(placed.values[step.input], placed.values[step.output], lanes)
        blank.update(input=places.of(step.input), output=places.of(step.output))
        steps += [blank | words for words in _words(step, placed, places, tables, lanes, vector)]
    shape = placed.values[placed.output]
    last = _blank(shape, shape, lanes)
    last.update(kind=KINDS.index("unpack"), input=places.of(placed.output), rows=shape.channels)
    steps.append(last)
    table = np.zeros(len(steps), dtype=STEP)
    for number, row in enumerate(steps):
        table[number] = tuple(row[name] for name in FIELDS)
    given = placed.values[INPUT]
    size = given.channels * given.height * given.width
    program = Program(table, tables.all(), places.floats + 4 * ALIGNED, lanes, size, placed.output_shape)
    check_program(table, Memory(program.tables, program.workspace_floats, size, prod(placed.output_shape)))
    return program


def _check_size(places: Places, lanes: int) -> None:
    """Raise GraphError if the workspace is too large, before it is allocated."""
    cleared = sum(block.end - block.start for block in places.to_clear) // lanes
    for floats, most in ((places.floats, MOST_FLOATS * min(lanes, 2)), (cleared, MOST_CLEARED)):
        if floats > most:
            raise GraphError(f"The network needs a workspace of {floats} numbers, and {most} are the most.")


def _clearings(index: int, placed: Placed, places: Places, tables: Tables, lanes: int) -> list[dict[str, int]]:
    """Steps that clear the padding of overlapping blocks before a step uses them."""
    rows = []
    for block in places.to_clear:
        if block.step == index:
            value, runs = placed.values[block.value], zeros_of(placed, places.values_in[block], lanes)
            row = _blank(value, value, lanes)
            row.update(
                kind=KINDS.index("clear"), output=places.of(block.value), rows=len(runs), channels=tables.add(runs)
            )
            rows.append(row)
    return rows


def _blank(before: PlaneLayout, after: PlaneLayout, lanes: int) -> dict[str, int]:
    row = dict.fromkeys(FIELDS, 0)
    row.update(
        plane=NONE,
        residual=NONE,
        lazy_bias=NONE,
        clip=NONE,
        mask=NONE,
        shifts=NONE,
        groups=1,
        lanes=lanes,
        lane_shift=lanes.bit_length() - 1,
        tile=1,
        chains=1,
    )
    row.update(input_plane=before.plane * lanes, output_plane=after.plane * lanes)
    row.update(height=before.height, width=before.width, pitch=before.pitch, fold=before.fold)
    row.update(out_height=after.height, out_width=after.width, out_pitch=after.pitch, out_fold=after.fold)
    return row


def _pack(placed: Placed, places: Places, tables: Tables, lanes: int) -> dict[str, int]:
    given = placed.values[INPUT]
    row = _blank(given, given, lanes)
    rows = tables.add(np.arange(given.channels))
    row.update(kind=KINDS.index("pack"), output=places.of(INPUT), rows=given.channels, channels=rows)
    return row


def _split(step: Split, tables: Tables) -> dict[str, int]:
    words = {
        "kind": KINDS.index("split"),
        "rows": len(step.phases),
        "channels": tables.add(step.phases),
        "stride_y": step.stride[0],
        "stride_x": step.stride[1],
    }
    return words if step.lazy_bias is None else words | {"lazy_bias": tables.add(step.lazy_bias.T, np.float32)}


def _words(
    step: Layer | Split, placed: Placed, places: Places, tables: Tables, lanes: int, vector: int
) -> list[dict[str, int]]:
    """The words specific to a layer, for each kernel step that it becomes."""
    if isinstance(step, Split):
        return [_split(step, tables)]
    if isinstance(step.work, ValueStep):
        words = step.work.words(Writing(step, placed, places, tables))
        return [{"kind": KINDS.index(step.kind), **words}]
    if step.entries is not None:
        residual = NONE if step.residual is None else places.of(step.residual)
        scale = {"kernel_x": places.of(step.work.other)} if isinstance(step.work, Scales) else {}
        return [words | {"residual": residual} | scale for words in sums_of(step, placed, tables, lanes, vector)]
    if step.kind in ("winograd_input", "winograd_output"):
        return [_winograd(step, placed, tables, lanes)]
    if step.kind in ("largest", "quantize"):
        return [_int8(step, placed, places, tables)]
    row = {"kind": KINDS.index(step.kind), "rows": len(step.rows), "channels": tables.add(step.rows)}
    names = ("kernel_y", "kernel_x", "stride_y", "stride_x", "pad_y", "pad_x")
    return [row | dict(zip(names, (*step.kernel, *step.stride, *step.padding), strict=True))]


def _winograd(step: Layer, placed: Placed, tables: Tables, lanes: int) -> dict[str, int]:
    """The words of a step that combines rows."""
    first = step.kind == "winograd_input"
    channels = step.work.channels if first else step.rows
    row = {"kind": KINDS.index(step.kind), "rows": len(channels), "channels": tables.add(channels)}
    row["segment_length"] = placed.values[step.output].width * lanes
    if first:
        return row | {"pad_y": -step.work.first}
    assert step.bias is not None
    row |= {"bias": tables.add(step.bias[step.rows], np.float32), "relu": int(step.relu)}
    return row if step.clip is None else row | {"clip": tables.add(np.array(step.clip), np.float32)}


def _int8(step: Layer, placed: Placed, places: Places, tables: Tables) -> dict[str, int]:
    """The words of a step that finds the scale of a value or rounds it to quads."""
    channels, length = step.work.channels, vectors(placed.values[step.input].run)
    row = {"kind": KINDS.index(step.kind), "rows": len(step.rows), "blocks": len(channels)}
    row |= {"channels": tables.add(channels), "segment_length": length}
    return row if step.work.other is None else row | {"kernel_x": places.of(step.work.other)}

"""A placed network as a program for the kernel: rows of numbers, tables of constants, and the size of a workspace."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.geometry import ALIGNED, Geometry, Placed, Split
from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.layers import Layer
from hypersparse_runtime.sums import sums_of
from hypersparse_runtime.tables import FIELDS, KINDS, NONE, STEP, Tables


@dataclass(frozen=True, eq=False)
class Program:
    """What the kernel runs: for `lanes` images at a time."""

    steps: NDArray[Any]  # of STEP
    tables: NDArray[np.int32]
    workspace_floats: int
    lanes: int
    image_size: int
    output_shape: tuple[int, ...]


def write_program(placed: Placed, lanes: int, vector: int) -> Program:
    """For one image at a time (`lanes` 1) or several side by side, and for a CPU whose vectors have so many floats."""
    tables, places = Tables(), _Places(placed, lanes)
    steps = [_pack(placed, places, tables, lanes)]
    for index, step in enumerate(placed.steps):
        source = places.of(step.input)
        target = places.make(index, step)
        blank = _blank(placed.values[step.input], placed.values[step.output], lanes)
        blank.update(input=source, output=target)
        steps += [blank | words for words in _words(step, placed, places, tables, lanes, vector)]
        places.release(index)
    shape = placed.values[placed.output]
    last = _blank(shape, shape, lanes)
    last.update(kind=KINDS.index("unpack"), input=places.of(placed.output), rows=shape.channels)
    steps.append(last)
    table = np.zeros(len(steps), dtype=STEP)
    for number, row in enumerate(steps):
        table[number] = tuple(row[name] for name in FIELDS)
    given = placed.values[INPUT]
    size = given.channels * given.height * given.width
    return Program(table, tables.all(), places.floats + 4 * ALIGNED, lanes, size, placed.output_shape)


def _blank(before: Geometry, after: Geometry, lanes: int) -> dict[str, int]:
    row = dict.fromkeys(FIELDS, 0)
    row.update(
        plane=NONE,
        residual=NONE,
        residues=NONE,
        mask=NONE,
        shifts=NONE,
        groups=1,
        lanes=lanes,
        lane_shift=lanes.bit_length() - 1,
        tile=1,
        chains=1,
    )
    row.update(input_plane=before.plane * lanes, output_plane=after.plane * lanes)
    row.update(height=before.height, width=before.width, pitch=before.pitch)
    row.update(out_height=after.height, out_width=after.width, out_pitch=after.pitch)
    return row


def _pack(placed: Placed, places: "_Places", tables: Tables, lanes: int) -> dict[str, int]:
    given = placed.values[INPUT]
    row = _blank(given, given, lanes)
    target = places.reserve(INPUT)
    rows = tables.add(np.arange(given.channels))
    row.update(kind=KINDS.index("pack"), output=target, rows=given.channels, channels=rows)
    return row


def _split(step: Split, tables: Tables) -> dict[str, int]:
    words = {
        "kind": KINDS.index("split"),
        "rows": len(step.phases),
        "channels": tables.add(step.phases),
        "stride_y": step.stride[0],
        "stride_x": step.stride[1],
    }
    return words if step.lift is None else words | {"residues": tables.add(step.lift.T, np.float32)}


def _words(
    step: Layer | Split, placed: Placed, places: "_Places", tables: Tables, lanes: int, vector: int
) -> list[dict[str, int]]:
    """What is special to a step of the network, for each step of the kernel that it becomes."""
    if isinstance(step, Split):
        return [_split(step, tables)]
    if step.entries is not None:
        residual = NONE if step.residual is None else places.of(step.residual)
        return [words | {"residual": residual} for words in sums_of(step, placed, tables, lanes, vector)]
    row = {"kind": KINDS.index(step.kind), "rows": len(step.rows), "channels": tables.add(step.rows)}
    names = ("kernel_y", "kernel_x", "stride_y", "stride_x", "pad_y", "pad_x")
    return [row | dict(zip(names, (*step.kernel, *step.stride, *step.padding), strict=True))]


class _Places:
    """Where values lie in the workspace; one that nobody reads any more makes room for the next of its geometry."""

    def __init__(self, placed: Placed, lanes: int) -> None:
        self.placed, self.lanes, self.floats = placed, lanes, 0
        self.at: dict[str, int] = {}
        self.private: set[str] = set()  # values whose room is theirs alone
        self.free: dict[tuple[int, ...], list[int]] = {}
        self.last = {name: index for index, step in enumerate(placed.steps) for name in _read(step)}
        self.last[placed.output] = len(placed.steps)

    def of(self, name: str) -> int:
        """Where its first position is; anywhere for one of which nothing is read, so that it was never made."""
        return self.at.get(name, 0)

    def make(self, index: int, step: Layer | Split) -> int:
        """Room for what a step makes: over the value it adds, if nobody else reads that."""
        if isinstance(step, Split):  # it leaves out rows that uneven phases do not have; they stay zero
            self.private.add(step.output)
            return self.reserve(step.output)
        over = step.residual
        if step.output in self.at:  # a layer over its own residual
            return self.at[step.output]
        if over is not None and over != step.input and self.last[over] == index:
            self.at[step.output] = self.at[over]
            del self.last[over]
            return self.at[over]
        return self.reserve(step.output)

    def reserve(self, name: str) -> int:
        """Room for a value."""
        value = self.placed.values[name]
        rooms = self.free.setdefault(self._key(value), [])
        if rooms and name not in self.private:
            self.at[name] = rooms.pop()
            return self.at[name]
        margin = value.margin * self.lanes
        self.at[name] = self.floats + margin
        self.floats += 2 * margin + -(-value.channels * value.plane // ALIGNED) * ALIGNED * self.lanes
        return self.at[name]

    def release(self, index: int) -> None:
        """Free what was read the last time."""
        for name in [name for name, last in self.last.items() if last == index]:
            if name not in self.private and name in self.at:
                self.free.setdefault(self._key(self.placed.values[name]), []).append(self.at[name])
            del self.last[name]

    def _key(self, value: Geometry) -> tuple[int, ...]:
        return (value.group, value.channels, value.height, value.width)


def _read(step: Layer | Split) -> list[str]:
    residual = step.residual if isinstance(step, Layer) else None
    return [step.input] if residual is None else [step.input, residual]

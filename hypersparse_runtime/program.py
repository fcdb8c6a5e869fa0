"""A placed network as a program for the kernel: rows of numbers, tables of constants, and the size of a workspace."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.geometry import ALIGNED, Geometry, Placed, Split
from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.layers import Array, Layer

KINDS = ("conv", "dot", "split", "max_pool", "mean", "pack", "unpack")
_NAMES = """
kind level input output input_plane output_plane rows channels groups distances shifts starts entries bias
plane plane_size mask residual residues relu segments segment_stride segment_length pad_first pad_length
pad_stride pad_end tile tile_outer chains lanes lane_shift height width pitch out_height out_width out_pitch
kernel_y kernel_x stride_y stride_x pad_y pad_x
"""
FIELDS = tuple(_NAMES.split())  # of struct step in kernel.h, in its order
STEP = np.dtype([(name, np.int64) for name in FIELDS])
CHAINS = ((4, 4, 4), (8, 16, 2))  # planes up to that many rows and columns are summed in so many chains
NONE = -1
VECTORS = (4, 8, 16)  # floats, of the instruction sets


@dataclass(frozen=True, eq=False)
class Program:
    """What the kernel runs: for `lanes` images at a time."""

    steps: NDArray[Any]  # of STEP
    tables: NDArray[np.int32]
    workspace_floats: int
    lanes: int
    image_size: int
    output_shape: tuple[int, ...]


@dataclass
class _Tables:
    """Constants, one after another in 32-bit words."""

    parts: list[NDArray[np.int32]] = field(default_factory=list)
    words: int = 0

    def add(self, array: Array, dtype: type = np.int32) -> int:
        """Where the array begins."""
        part = np.ascontiguousarray(array, dtype=dtype).reshape(-1).view(np.int32)
        at = self.words
        self.parts.append(part)
        if len(part) % 2:  # entries are pairs of eight bytes
            self.parts.append(np.zeros(1, dtype=np.int32))
        self.words += len(part) + len(part) % 2
        return at

    def all(self) -> NDArray[np.int32]:
        """In one array."""
        return np.concatenate([*self.parts, np.zeros(2 * ALIGNED, dtype=np.int32)])


def write_program(placed: Placed, lanes: int) -> Program:
    """For one image at a time (`lanes` 1) or several side by side."""
    tables, places = _Tables(), _Places(placed, lanes)
    steps = [_pack(placed, places, tables, lanes)]
    for index, step in enumerate(placed.steps):
        source = places.of(step.input)
        target = places.make(index, step)
        row = _blank(placed.values[step.input], placed.values[step.output], lanes)
        row.update(input=source, output=target)
        row.update(_split(step, tables) if isinstance(step, Split) else _layer(step, placed, places, tables, lanes))
        steps.append(row)
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


def _pack(placed: Placed, places: "_Places", tables: _Tables, lanes: int) -> dict[str, int]:
    given = placed.values[INPUT]
    row = _blank(given, given, lanes)
    target = places.reserve(INPUT)
    rows = tables.add(np.arange(given.channels))
    row.update(kind=KINDS.index("pack"), output=target, rows=given.channels, channels=rows)
    return row


def _split(step: Split, tables: _Tables) -> dict[str, int]:
    return {
        "kind": KINDS.index("split"),
        "rows": len(step.phases),
        "channels": tables.add(step.phases),
        "stride_y": step.stride[0],
        "stride_x": step.stride[1],
    }


def _layer(layer: Layer, placed: Placed, places: "_Places", tables: _Tables, lanes: int) -> dict[str, int]:
    row = {"kind": KINDS.index(layer.kind), "rows": len(layer.rows), "channels": tables.add(layer.rows)}
    if layer.entries is not None:
        return row | _sums(layer, placed, places, tables, lanes)
    names = ("kernel_y", "kernel_x", "stride_y", "stride_x", "pad_y", "pad_x")
    return row | dict(zip(names, (*layer.kernel, *layer.stride, *layer.padding), strict=True))


def _sums(layer: Layer, placed: Placed, places: "_Places", tables: _Tables, lanes: int) -> dict[str, int]:
    before, after = placed.values[layer.input], placed.values[layer.output]
    assert layer.bias is not None
    distances = _distances(layer)
    chains = _chains(after)
    starts, entries = _entries(layer, before, distances, lanes, multiple=chains)
    row = {
        "kind": KINDS.index("dot" if layer.kind == "dot" and lanes == 1 else "conv"),
        "groups": len(distances),
        "distances": tables.add(distances),
        "starts": tables.add(starts),
        "entries": tables.add(entries),
        "bias": tables.add(layer.bias[layer.rows], np.float32),
        "relu": int(layer.relu),
        "chains": chains,
    }
    if layer.plane is not None:
        plane = np.zeros((len(layer.rows), after.height, after.pitch), dtype=np.float32)
        shape = (len(layer.plane), after.height, after.width)
        plane[:, :, : after.width] = layer.plane.reshape(shape)[layer.rows]
        row.update(plane=tables.add(plane, np.float32), plane_size=after.height * after.pitch)
    if layer.residual is not None:
        row.update(residual=places.of(layer.residual))
    if layer.offset is not None and layer.floor is not None:
        pairs = np.stack([layer.offset, layer.floor], axis=1)[layer.rows]
        row.update(residues=tables.add(pairs, np.float32))
    if after.rows:
        row.update(shifts=tables.add(_shifts(distances, after.pitch)), mask=_mask(after, tables))
    return row | _runs(after, lanes)


def _chains(value: Geometry) -> int:
    """The fewer vectors a plane has, the longer a sum would wait for the one before."""
    return next((count for rows, columns, count in CHAINS if value.height <= rows and value.widest <= columns), 1)


def _distances(layer: Layer) -> Array:
    """How far aside taps reach, 0 first; the positions that a dot reads are no distances."""
    if layer.kind == "dot" or layer.entries is None:
        return np.zeros(1, dtype=np.int32)
    aside = np.unique(layer.entries.x)
    return np.concatenate([[0], aside[aside != 0]]).astype(np.int32)


def _shifts(distances: Array, pitch: int) -> Array:
    """Where each lane of a moved vector comes from: its own vector's lanes come first, then those of the one beside it.

    >>> _shifts(np.array([1]), 4)[:4].tolist()  # the last lane from the vector beside, or nothing
    [1, 2, 3, 4]
    """
    parts = []
    for vector in VECTORS:
        lane = np.arange(vector)
        for distance in distances:
            from_lane = lane + distance
            if pitch < vector:  # several rows in a vector; what is beside is zero
                inside = (lane % pitch + distance >= 0) & (lane % pitch + distance < pitch)
                parts.append(np.where(inside, from_lane, vector))
            else:
                parts.append(np.where(from_lane < 0, from_lane + 2 * vector, from_lane))
    return np.concatenate(parts).astype(np.int32)


def _mask(value: Geometry, tables: _Tables) -> int:
    """Ones where a plane has positions, where its vectors reach further than those."""
    size = -(-value.run // ALIGNED) * ALIGNED
    if value.pitch == value.width and size == value.run:
        return NONE
    mask = np.zeros(size, dtype=np.int32)
    mask[: value.run].reshape(value.height, value.pitch)[:, : value.width] = -1
    return tables.add(mask)


def _runs(value: Geometry, lanes: int) -> dict[str, int]:
    """Which floats of a plane are computed: by row, or in one run whose zeros between rows are then restored."""
    if lanes > 1 and value.height > 1:
        return {"segments": value.height, "segment_stride": value.pitch * lanes, "segment_length": value.width * lanes}
    row = {"segments": 1, "segment_length": value.run * lanes}
    if value.rows or not value.padded:
        return row
    names = ("pad_first", "pad_length", "pad_stride", "pad_end")
    positions = (value.width, value.pitch - value.width, value.pitch, value.run)
    return row | {name: count * lanes for name, count in zip(names, positions, strict=True)}


def _entries(layer: Layer, before: Geometry, distances: Array, lanes: int, *, multiple: int) -> tuple[Array, Array]:
    """Where each row's groups begin, and pairs of offset and weight, by row, group and then by where they read.

    Groups are filled up with weights of zero to a multiple of that many.
    """
    entries = layer.entries
    assert entries is not None
    aside = np.zeros_like(entries.x) if before.rows and layer.kind == "conv" else entries.x
    offsets = (entries.channel.astype(np.int64) * before.plane + entries.y * before.pitch + aside) * lanes
    group = np.zeros(len(entries), dtype=np.int64)
    if len(distances) > 1:
        order = np.argsort(distances)
        group = order[np.searchsorted(distances[order], entries.x)]
    cells = np.searchsorted(layer.rows, entries.row) * len(distances) + group
    counts = np.bincount(cells, minlength=len(layer.rows) * len(distances))
    starts = np.concatenate([[0], np.cumsum(-(-counts // multiple) * multiple)])
    sequence = np.lexsort((offsets, cells))
    places = np.arange(len(entries)) + (starts[:-1] - (np.cumsum(counts) - counts))[cells[sequence]]
    pairs = np.zeros((starts[-1], 2), dtype=np.int32)
    pairs[places, 0] = offsets[sequence]
    pairs[places, 1] = entries.weight[sequence].astype(np.float32).view(np.int32)
    return starts, pairs


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

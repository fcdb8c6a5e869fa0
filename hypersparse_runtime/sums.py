"""Convolutions and dots as steps of the kernel: their entries in tables, and which floats of a plane they compute.

Rows of few entries are steps of their own, `direct` ones, where rows are whole vectors.
"""

from dataclasses import dataclass, replace

import numpy as np

from hypersparse_runtime.geometry import ALIGNED, Geometry, Placed, row_pitch
from hypersparse_runtime.layers import Array, Layer
from hypersparse_runtime.tables import KINDS, NONE, Tables

CHAINS = ((8, 16, 2),)  # planes up to that many rows and columns are summed in so many chains
SIDE = 8  # rows and columns up to which a plane may be summed tap by tap
VECTORS = (4, 8, 16)  # floats, of the instruction sets
FEW_OF_WIDE, FEW, FEW_OF_SQUARE = (
    1,
    8,
    20,
)  # entries up to which a row is summed in one chain, each entry where it belongs


def sums_of(layer: Layer, placed: Placed, tables: Tables, lanes: int, vector: int) -> list[dict[str, int]]:
    """The kernel's steps for a layer: one for its rows of few entries and one for the others."""
    before, after = placed.values[layer.input], placed.values[layer.output]
    if layer.kind == "dot":
        shape = _Shape(before, after, lanes, chains=4, groups=np.zeros((1, 2), dtype=np.int32), kind=_dot(lanes))
        return [_step(layer, shape, tables)]
    counts, square = _counts(layer), _is_square(layer, before, after)
    few = FEW_OF_SQUARE if square else FEW if after.widest <= ALIGNED else FEW_OF_WIDE
    parts = []
    if (counts <= few).any():
        groups = np.zeros((1, 2), dtype=np.int32)
        kind = "direct" if after.rows else "conv"
        parts.append((layer.rows[counts <= few], _Shape(before, after, lanes, 1, groups, kind)))
    if (counts > few).any():
        kind = "square" if square and after.rows and vector == ALIGNED else "conv"
        groups = _groups(layer, square=square)
        parts.append((layer.rows[counts > few], _Shape(before, after, lanes, _chains(after), groups, kind)))
    return [_step(_part(layer, rows), shape, tables) for rows, shape in parts]


@dataclass(frozen=True, eq=False)
class _Shape:
    """How a layer, or some of its rows, is summed."""

    before: Geometry
    after: Geometry
    lanes: int
    chains: int
    groups: Array  # (row, column) that the entries of each reach aside; of one alone: all entries
    kind: str


def _dot(lanes: int) -> str:
    return "dot" if lanes == 1 else "conv"


def _is_square(layer: Layer, before: Geometry, after: Geometry) -> bool:
    """Whether a plane is a few vectors with several rows in each, and no tap reaches further than the next vector."""
    assert layer.entries is not None
    pitch = row_pitch(after.widest)
    if pitch > SIDE or after.height > SIDE or before.height > after.height or not len(layer.entries):
        return False
    return bool(np.abs(layer.entries.y).max() * pitch + np.abs(layer.entries.x).max() <= ALIGNED)


def _counts(layer: Layer) -> Array:
    """Entries of each row."""
    assert layer.entries is not None
    counts: Array = np.bincount(layer.entries.row, minlength=int(layer.rows.max(initial=0)) + 1)[layer.rows]
    return counts


def _part(layer: Layer, rows: Array) -> Layer:
    """Some rows of a layer, those of equally many entries together: the end of a loop is then foreseen."""
    assert layer.entries is not None
    part = replace(layer, rows=rows, entries=layer.entries.where(np.isin(layer.entries.row, rows)))
    return replace(part, rows=rows[np.argsort(_counts(part), kind="stable")])


def _step(layer: Layer, shape: _Shape, tables: Tables) -> dict[str, int]:
    before, after, groups = shape.before, shape.after, shape.groups
    assert layer.bias is not None
    sums = _Entries.of(layer, groups, multiple=shape.chains)
    whole = layer.kind == "dot" or not after.rows or shape.kind == "direct"  # offsets say all that an entry reads
    rise, aside = shape.kind != "square", whole
    row = {
        "kind": KINDS.index(shape.kind),
        "rows": len(layer.rows),
        "channels": tables.add(layer.rows),
        "groups": len(groups),
        "distances": tables.add(_moves(groups, after.pitch) if shape.kind == "square" else groups[:, 1]),
        "starts": tables.add(sums.starts),
        "entries": tables.add(sums.pairs(before, shape.lanes, rise=rise, aside=aside)),
        "bias": tables.add(layer.bias[layer.rows], np.float32),
        "relu": int(layer.relu),
        "chains": shape.chains,
    }
    if layer.plane is not None:
        plane = np.zeros((len(layer.rows), after.height, after.pitch), dtype=np.float32)
        sides = (len(layer.plane), after.height, after.width)
        plane[:, :, : after.width] = layer.plane.reshape(sides)[layer.rows]
        row.update(plane=tables.add(plane, np.float32), plane_size=after.height * after.pitch)
    if layer.offset is not None and layer.floor is not None:
        pairs = np.stack([layer.offset, layer.floor], axis=1)[layer.rows]
        row.update(residues=tables.add(pairs, np.float32))
    if after.rows:
        row.update(mask=_mask(after, tables))
    if shape.kind == "direct":
        row.update(sides=tables.add(_sides(sums.x, after.pitch)))
    elif shape.kind == "square":
        row.update(shifts=tables.add(_places(groups, after.pitch)))
    elif after.rows:
        row.update(shifts=tables.add(_shifts(groups[:, 1], after.pitch)))
    return row | _runs(after, shape.lanes)


def _places(groups: Array, pitch: int) -> Array:
    """Where each lane of a tap's moved sum comes from: lanes of its own vector first, then those of the one beside."""
    places: Array = (np.arange(ALIGNED) + groups[:, :1] * pitch + groups[:, 1:]) % (2 * ALIGNED)
    return places


def _moves(groups: Array, pitch: int) -> Array:
    """For each tap the vector beside that its sum comes from, and the lanes that it reaches, as bits."""
    distance = groups[:, 0] * pitch + groups[:, 1]
    column = np.arange(ALIGNED) % pitch + groups[:, 1:]
    lanes = (((column >= 0) & (column < pitch)) << np.arange(ALIGNED)).sum(axis=1)
    beside = np.where(distance < 0, -1, 1) * (groups != 0).any(axis=1)
    return np.stack([beside, lanes], axis=1)


def _chains(value: Geometry) -> int:
    """The fewer vectors a plane has, the longer a sum would wait for the one before."""
    return next((count for rows, columns, count in CHAINS if value.height <= rows and value.widest <= columns), 1)


def _groups(layer: Layer, *, square: bool) -> Array:
    """The distances of taps, (row, column) in a small plane and else (0, column); first those that stay."""
    assert layer.entries is not None
    rows = layer.entries.y if square else np.zeros_like(layer.entries.y)
    _, first = np.unique(_keys(rows, layer.entries.x), return_index=True)
    found = np.stack([rows[first], layer.entries.x[first]], axis=1)
    return np.concatenate([np.zeros((1, 2)), found[found.any(axis=1)]]).astype(np.int32)


def _keys(rows: Array, columns: Array) -> Array:
    """A number for each pair, in the pairs' order."""
    keys: Array = rows.astype(np.int64) * 2**32 + columns
    return keys


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


def _mask(value: Geometry, tables: Tables) -> int:
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


@dataclass(frozen=True, eq=False)
class _Entries:
    """A layer's entries by row, group and then by what they read: the order in which they are added up.

    Groups are filled up to a multiple with weights of zero.
    """

    starts: Array  # where each row's groups begin
    channel: Array
    y: Array
    x: Array
    weight: Array

    @classmethod
    def of(cls, layer: Layer, groups: Array, *, multiple: int) -> "_Entries":
        """Sorted, in groups of one distance each; one group alone takes all."""
        entries = layer.entries
        assert entries is not None
        group = np.zeros(len(entries), dtype=np.int64)
        if len(groups) > 1:
            rows = entries.y if groups[:, 0].any() else np.zeros_like(entries.y)
            known, taps = _keys(groups[:, 0], groups[:, 1]), _keys(rows, entries.x)
            order = np.argsort(known)
            group = order[np.searchsorted(known[order], taps)]
        place = np.zeros(int(layer.rows.max(initial=0)) + 1, dtype=np.int64)
        place[layer.rows] = np.arange(len(layer.rows))
        cells = place[entries.row] * len(groups) + group
        counts = np.bincount(cells, minlength=len(layer.rows) * len(groups))
        starts = np.concatenate([[0], np.cumsum(-(-counts // multiple) * multiple)])
        sequence = np.lexsort((entries.x, entries.y, entries.channel, cells))
        places = np.arange(len(entries)) + (starts[:-1] - (np.cumsum(counts) - counts))[cells[sequence]]
        filled = []
        for part in (entries.channel, entries.y, entries.x, entries.weight):
            whole = np.zeros(starts[-1], dtype=part.dtype)
            whole[places] = part[sequence]
            filled.append(whole)
        return cls(starts, *filled)

    def pairs(self, before: Geometry, lanes: int, *, rise: bool, aside: bool) -> Array:
        """Offset and weight of each; `rise` and `aside`: offsets include the distance in rows and in columns."""
        offsets = self.channel.astype(np.int64) * before.plane
        if rise:
            offsets = offsets + self.y * before.pitch
        if aside:
            offsets = offsets + self.x
        return np.stack([(offsets * lanes).astype(np.int32), self.weight.astype(np.float32).view(np.int32)], axis=1)


def _sides(x: Array, pitch: int) -> Array:
    """For each entry a bit for each of the first 16 and the last 16 floats of a row: whether it reads within the row.

    >>> [f"{int(word):032b}" for word in _sides(np.array([1]), 32).view(np.uint32)]
    ['01111111111111111111111111111111']
    """
    lanes = np.arange(ALIGNED)
    first, last = lanes % pitch, lanes % pitch if pitch < ALIGNED else pitch - ALIGNED + lanes
    reads = np.concatenate([first, last]) + x.reshape(-1, 1)
    bits = ((reads >= 0) & (reads < pitch)).astype(np.uint64) << np.arange(2 * ALIGNED, dtype=np.uint64)
    words: Array = bits.sum(axis=1, dtype=np.uint64).astype(np.uint32).view(np.int32)
    return words

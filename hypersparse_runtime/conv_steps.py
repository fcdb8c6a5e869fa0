"""Convolutions and dots as steps of the kernel: tables of their entries, and the floats of a plane they compute.

If rows are whole vectors, output channels with few entries get a step of their own.
"""

from dataclasses import dataclass, replace

import numpy as np

from hypersparse_runtime.int8 import Scales
from hypersparse_runtime.kernel_tables import KINDS, NONE, Tables, to_int32
from hypersparse_runtime.plane_layout import ALIGNED, Placed, PlaneLayout, row_pitch
from hypersparse_runtime.shared_loads import MAX_SHIFTS, MAX_TILE, PATTERNS, blocks_of, packed, ranks_of, words_of
from hypersparse_runtime.sparse_layers import Array, Entries, Layer

CHAINS = ((8, 16, 2),)  # planes up to that many rows and columns are summed in so many chains
SIDE = 8  # rows and columns up to which a plane may be summed tap by tap
VECTORS = (4, 8, 16)  # floats, of the instruction sets
FEW_IN_WIDE_ROWS, FEW = 1, 8
SHARED = ("conv_shared_loads", "conv_int8")
FEW_IN_SMALL_PLANES = 20  # entries up to which a row is summed in one chain, each entry where it belongs


def sums_of(layer: Layer, placed: Placed, tables: Tables, lanes: int, vector: int) -> list[dict[str, int]]:
    """The steps of a layer: one for the output channels with few entries, one for the others."""
    before, after = placed.values[layer.input], placed.values[layer.output]
    if layer.kind == "dot":
        shape = _Shape(before, after, lanes, chains=4, groups=np.zeros((1, 2), dtype=np.int32), kind=_dot(lanes))
        return [_step(layer, shape, tables)]
    if isinstance(layer.work, Scales):
        shape = _Shape(before, after, lanes, 1, _groups(layer, small=False), "conv_int8", shared=True)
        step = _step(_part(layer, layer.rows), shape, tables)
        return [*_repeat_rows(layer, before, tables), step]
    counts, small = _counts(layer), _is_small(layer, before, after)
    few = FEW_IN_SMALL_PLANES if small else FEW if after.widest <= ALIGNED else FEW_IN_WIDE_ROWS
    wide = after.rows and vector == ALIGNED
    parts, many = [], layer.rows[counts > few]
    if (counts <= few).any():
        groups = np.zeros((1, 2), dtype=np.int32)
        kind = "conv_few_taps" if after.rows else "conv"
        parts.append((layer.rows[counts <= few], _Shape(before, after, lanes, 1, groups, kind)))
    if len(many) and _is_shared(layer, after):
        kind = "conv_shared_loads" if wide and after.pitch <= MAX_TILE * ALIGNED else "conv"
        parts.append((many, _Shape(before, after, lanes, 1, _groups(layer, small=False), kind, shared=True)))
    elif len(many):
        kind = "conv_small_planes" if small and wide and not after.fold else "conv"
        parts.append((many, _Shape(before, after, lanes, _chains(after), _groups(layer, small=small), kind)))
    return [*_repeat_rows(layer, before, tables), *(_step(_part(layer, rows), shape, tables) for rows, shape in parts)]


def _is_shared(layer: Layer, after: PlaneLayout) -> bool:
    """Whether loads are shared between entries; not if a vector holds more than two rows."""
    return 2 * row_pitch(after.widest) >= ALIGNED and 1 < len(_groups(layer, small=False)) <= MAX_SHIFTS


def _repeat_rows(layer: Layer, before: PlaneLayout, tables: Tables) -> list[dict[str, int]]:
    """A step that copies the middle rows of folded planes above and below them."""
    assert layer.entries is not None
    moved = layer.entries.y != 0
    if not before.fold or not moved.any():
        return []
    read, furthest = np.unique(layer.entries.channel[moved]), int(np.abs(layer.entries.y).max())
    row = {"kind": KINDS.index("repeat_rows"), "rows": len(read), "channels": tables.add(read)}
    return [row | {"segments": min(furthest, before.fold)}]


@dataclass(frozen=True, eq=False)
class _Shape:
    """How the output channels of a layer, or some of them, are summed."""

    before: PlaneLayout
    after: PlaneLayout
    lanes: int
    chains: int
    groups: Array  # (row, column) that the entries of each reach aside; of one alone: all entries
    kind: str
    shared: bool = False  # entries are added up by which others read the same


def _dot(lanes: int) -> str:
    return "dot" if lanes == 1 else "conv"


def _is_small(layer: Layer, before: PlaneLayout, after: PlaneLayout) -> bool:
    """Whether a plane is a few vectors of several rows each, and every tap reaches at most the next vector."""
    assert layer.entries is not None
    pitch = row_pitch(after.widest)
    if pitch > SIDE or after.height > SIDE or before.height > after.height or not len(layer.entries):
        return False
    return bool(np.abs(layer.entries.y).max() * pitch + np.abs(layer.entries.x).max() <= ALIGNED)


def _counts(layer: Layer) -> Array:
    """The number of entries of each output channel."""
    assert layer.entries is not None
    counts: Array = np.bincount(layer.entries.row, minlength=int(layer.rows.max(initial=0)) + 1)[layer.rows]
    return counts


def _part(layer: Layer, rows: Array) -> Layer:
    """Some output channels of a layer, sorted by their number of entries, so that the end of a loop is predictable."""
    assert layer.entries is not None
    part = replace(layer, rows=rows, entries=layer.entries.where(np.isin(layer.entries.row, rows)))
    return replace(part, rows=rows[np.argsort(_counts(part), kind="stable")])


def _step(layer: Layer, shape: _Shape, tables: Tables) -> dict[str, int]:
    after, groups = shape.after, shape.groups
    assert layer.bias is not None
    sums = _Entries.of(layer, shape)
    starts, entries = sums.packed(shape) if shape.kind in SHARED else (sums.starts, sums.pairs(shape))
    row = {
        "kind": KINDS.index(shape.kind),
        "rows": len(layer.rows),
        "channels": tables.add(layer.rows),
        "groups": len(groups),
        "distances": tables.add(_moves(groups, after.pitch) if shape.kind == "conv_small_planes" else groups[:, 1]),
        "starts": tables.add(starts),
        "entries": tables.add(entries),
        "bias": tables.add(layer.bias[layer.rows], np.float32),
        "relu": int(layer.relu),
        "clip": NONE if layer.clip is None else tables.add(np.array(layer.clip), np.float32),
        "chains": shape.chains,
        "blocks": sums.blocks,
    }
    if layer.plane is not None:
        size = after.fold * after.below or after.height * after.pitch
        plane = np.zeros((len(layer.rows), size), dtype=np.float32)
        plane[:, after.places().reshape(-1)] = layer.plane.reshape(len(layer.plane), -1)[layer.rows]
        row.update(plane=tables.add(plane, np.float32), plane_size=size)
    if layer.offset is not None and layer.floor is not None:
        pairs = np.stack([layer.offset, layer.floor], axis=1)[layer.rows]
        row.update(lazy_bias=tables.add(pairs, np.float32))
    if isinstance(layer.work, Scales):
        row.update(kernel_y=tables.add(layer.work.rows[layer.rows], np.float32))
    if after.rows:
        row.update(mask=mask_of(after, tables))
    if shape.kind == "conv_few_taps":
        row.update(edge_masks=tables.add(_edge_masks(sums.entries.x, after.pitch)))
    elif shape.kind == "conv_small_planes":
        row.update(shifts=tables.add(_places(groups, after.pitch)))
    elif after.rows:
        row.update(shifts=tables.add(_shifts(groups[:, 1], after.pitch)))
    return row | _runs(after, shape.lanes)


def _places(groups: Array, pitch: int) -> Array:
    """The source lane of each lane of a shifted sum: lanes of its own vector, then lanes of the vector beside it."""
    places: Array = (np.arange(ALIGNED) + groups[:, :1] * pitch + groups[:, 1:]) % (2 * ALIGNED)
    return places


def _moves(groups: Array, pitch: int) -> Array:
    """For each tap the neighbouring vector that its sum comes from, and the lanes it reaches as a bit mask."""
    distance = groups[:, 0] * pitch + groups[:, 1]
    column = np.arange(ALIGNED) % pitch + groups[:, 1:]
    lanes = (((column >= 0) & (column < pitch)) << np.arange(ALIGNED)).sum(axis=1)
    beside = np.where(distance < 0, -1, 1) * (groups != 0).any(axis=1)
    return np.stack([beside, lanes], axis=1)


def _chains(value: PlaneLayout) -> int:
    """The number of independent sums; with few vectors a plane, one chain would wait for the previous addition."""
    return next((count for rows, columns, count in CHAINS if value.height <= rows and value.widest <= columns), 1)


def _groups(layer: Layer, *, small: bool) -> Array:
    """The distances of taps: (row, column) in a small plane, else (0, column). The unshifted group is first."""
    assert layer.entries is not None
    rows = layer.entries.y if small else np.zeros_like(layer.entries.y)
    _, first = np.unique(_keys(rows, layer.entries.x), return_index=True)
    found = np.stack([rows[first], layer.entries.x[first]], axis=1)
    return np.concatenate([np.zeros((1, 2)), found[found.any(axis=1)]]).astype(np.int32)


def _keys(rows: Array, columns: Array) -> Array:
    """A number for each pair, in the order of the pairs."""
    keys: Array = rows.astype(np.int64) * 2**32 + columns
    return keys


def _shifts(distances: Array, pitch: int) -> Array:
    """The source lane of each lane of a shifted vector: its own vector first, then the vector beside it.

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


def mask_of(value: PlaneLayout, tables: Tables) -> int:
    """A mask with ones at the positions of a plane, if its vectors reach further."""
    size = -(-value.run // ALIGNED) * ALIGNED
    if value.height * value.width == size:
        return NONE

    def mask() -> Array:
        ones = np.zeros(size, dtype=np.int32)
        ones[value.places()] = -1
        return ones

    return tables.once(("mask", size, value.height, value.width, value.pitch, value.fold), mask)


def _runs(value: PlaneLayout, lanes: int) -> dict[str, int]:
    """The floats of a plane to compute: row by row, or as one run after which the zeros between rows are restored."""
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
    """The entries of a layer in the order of summation: by output channel, group and input position.

    Entries that share a load are sorted by channel block and pattern first. A group is padded to a multiple with its
    last entry and a weight of zero.
    """

    starts: Array  # where each row's groups begin
    cells: Array  # of each entry, its row's place and its group
    ranks: Array  # of their blocks and patterns, where they share what they load
    entries: Entries

    @classmethod
    def of(cls, layer: Layer, shape: _Shape) -> "_Entries":
        """Sort entries, with one group for each distance; a single group holds all."""
        entries, groups, multiple = layer.entries, shape.groups, shape.chains
        assert entries is not None
        place = np.zeros(int(layer.rows.max(initial=0)) + 1, dtype=np.int64)
        place[layer.rows] = np.arange(len(layer.rows))
        group = _group(entries, groups)
        cells = place[entries.row] * len(groups) + group
        ranks = blocks_of(entries) * PATTERNS + ranks_of(entries, group) if shape.shared else np.zeros_like(cells)
        counts = np.bincount(cells, minlength=len(layer.rows) * len(groups))
        starts = np.concatenate([[0], np.cumsum(-(-counts // multiple) * multiple)])
        sequence = np.lexsort((entries.x, entries.y, entries.channel, ranks, cells))
        places = np.arange(len(entries)) + (starts[:-1] - (np.cumsum(counts) - counts))[cells[sequence]]
        at = np.zeros(starts[-1], dtype=np.int64)
        at[places] = np.arange(len(entries))
        filled = sequence[np.maximum.accumulate(at)]
        weight = np.zeros(len(filled), dtype=entries.weight.dtype)
        weight[places] = entries.weight[sequence]
        return cls(starts, cells[filled], ranks[filled], replace(entries.where(filled), weight=weight))

    def pairs(self, shape: _Shape) -> Array:
        """Offset and weight of each entry."""
        return np.stack([self._offsets(shape), words_of(self.entries.weight)], axis=1)

    def packed(self, shape: _Shape) -> tuple[Array, Array]:
        """The start of each channel's patterns, and offsets and weights."""
        place, group = np.divmod(self.cells, len(shape.groups))
        return packed(self.entries, place, group, self.ranks, self._offsets(shape), self.blocks)

    @property
    def blocks(self) -> int:
        """The number of blocks of patterns."""
        return int(self.ranks.max(initial=0)) // PATTERNS + 1

    def _offsets(self, shape: _Shape) -> Array:
        """The offset that each entry reads, without the distance that shifting the sum replaces."""
        offsets, before = self.entries.channel.astype(np.int64) * shape.before.plane, shape.before
        if shape.kind == "dot":
            return to_int32(offsets + before.places()[self.entries.y, self.entries.x])
        if shape.kind != "conv_small_planes":
            offsets = offsets + self.entries.y * before.below
        if shape.kind == "conv_few_taps" or not shape.after.rows:
            offsets = offsets + self.entries.x
        return to_int32(offsets * shape.lanes)


def _group(entries: Entries, groups: Array) -> Array:
    """The group of each entry."""
    if len(groups) == 1:
        return np.zeros(len(entries), dtype=np.int64)
    rows = entries.y if groups[:, 0].any() else np.zeros_like(entries.y)
    known, taps = _keys(groups[:, 0], groups[:, 1]), _keys(rows, entries.x)
    order = np.argsort(known)
    group: Array = order[np.searchsorted(known[order], taps)]
    return group


def _edge_masks(x: Array, pitch: int) -> Array:
    """For each entry, a bit for each of the first and last 16 floats of a row: whether it reads inside the row.

    >>> [f"{int(word):032b}" for word in _edge_masks(np.array([1]), 32).view(np.uint32)]
    ['01111111111111111111111111111111']
    """
    lanes = np.arange(ALIGNED)
    first, last = lanes % pitch, lanes % pitch if pitch < ALIGNED else pitch - ALIGNED + lanes
    reads = np.concatenate([first, last]) + x.reshape(-1, 1)
    bits = ((reads >= 0) & (reads < pitch)).astype(np.uint64) << np.arange(2 * ALIGNED, dtype=np.uint64)
    words: Array = bits.sum(axis=1, dtype=np.uint64).astype(np.uint32).view(np.int32)
    return words

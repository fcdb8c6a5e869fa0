"""Where values lie in the workspace.

A room is as large as a value with the zeros around its planes. One that nobody reads any more is taken by the next
value of the same geometry, whose zeros are in the same places. Where all rooms together would be large, rooms of other
geometries may lie over it too; then the zeros have to be set again whenever a room is taken.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import numpy as np

from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.plane_layout import ALIGNED, Placed, Split
from hypersparse_runtime.sparse_layers import Array, Layer

MIN_OVERLAID = (
    2**18
)  # floats, 1 MiB: from there on rooms lie over each other, as the second cache of a core is not much larger


Key = tuple[int, ...]  # group, channels, height and width: values of one key may follow each other in a room


@dataclass(frozen=True)
class Block:
    """Floats of the workspace from `start` to `end` for a value, from a step on."""

    value: str
    step: int
    start: int
    end: int


@dataclass
class Places:
    """Where the first position of each value is, the size of all, and the rooms whose zeros are set before a step."""

    at: dict[str, int] = field(default_factory=dict)
    floats: int = 0
    to_clear: list[Block] = field(default_factory=list)
    values_in: dict[Block, list[str]] = field(default_factory=dict)  # all values that are in a block, in order

    def of(self, name: str) -> int:
        """Where a value is; anywhere for one of which nothing is read, so that it was never made."""
        return self.at.get(name, 0)


def plan_memory(placed: Placed, lanes: int) -> Places:
    """Find room for all values of a network, for so many images side by side."""
    apart = _Laying(placed, lanes, overlaid=False).places
    return apart if apart.floats <= MIN_OVERLAID else _Laying(placed, lanes, overlaid=True).places


def zeros_of(placed: Placed, values: list[str], lanes: int) -> Array:
    """Runs of floats around and between the rows of the planes that are read, `(first, number)` from a value on.

    `values` are of one geometry and lie in one room. Of each other channels are read, and the zeros are set but once.
    Runs are whole vectors: what they have of the rows themselves is written afterwards.
    """
    value = placed.values[values[0]]
    read = np.unique(np.concatenate([placed.read[name] for name in values]))
    planes = np.unique(np.concatenate([read, read - 1]))  # what is above a plane is below the one before
    behind = value.channels * value.plane
    zero = np.zeros(2 * value.margin + -(-behind // ALIGNED) * ALIGNED, dtype=bool)
    zero[: value.margin] = zero[value.margin + behind :] = True
    pads = np.ones(value.plane, dtype=bool)
    pads[value.places()] = False
    zero[value.margin : value.margin + behind].reshape(value.channels, value.plane)[planes[planes >= 0]] = pads
    vector = ALIGNED // min(lanes, ALIGNED)  # positions
    edges = np.diff(zero.reshape(-1, vector).any(axis=1), prepend=False, append=False)
    first, end = np.flatnonzero(edges).reshape(-1, 2).T * vector
    runs: Array = np.stack([first - value.margin, end - first], axis=1) * lanes
    return runs


class _Laying:
    def __init__(self, placed: Placed, lanes: int, *, overlaid: bool) -> None:
        self.placed, self.lanes, self.overlaid = placed, lanes, overlaid
        self.places, self.rooms = Places(), list[Block]()
        self.free: dict[Key, list[Block]] = defaultdict(list)
        self.taken: dict[str, Block] = {}
        self.taken_spans = list[tuple[int, int]]()  # starts and ends, in order; none of all spans meets another
        self.free_spans = list[tuple[int, int, Key]]()
        self.last = {name: index for index, step in enumerate(placed.steps) for name in _read(step)}
        self.last[placed.output] = len(placed.steps)
        self.private = {step.output for step in placed.steps if isinstance(step, Split)}
        if overlaid:
            self.private.update(_private(placed))
            for name in sorted(self.private):  # before all others, so that none lies over them
                self._build(-1, name)
        self._reserve(-1, INPUT)
        ending = defaultdict(list)
        for name, index in self.last.items():
            ending[index].append(name)
        for index, step in enumerate(placed.steps):
            self._make(index, step)
            self._release(ending[index])
        self.places.to_clear = list(_overlapping(self.rooms)) if overlaid else []

    def _make(self, index: int, step: Layer | Split) -> None:
        """Room for what a step makes: over the value it adds, if nobody else reads that."""
        over, at = None if isinstance(step, Split) else step.residual, self.places.at
        if step.output in at:  # a layer over its own residual, or a room that was built before
            return
        if over not in (None, step.input) and over not in self.private and self.last[over] == index:
            at[step.output] = at[over]
            self._take(step.output, self.taken.pop(over))
            del self.last[over]
            return
        self._reserve(index, step.output)

    def _reserve(self, index: int, name: str) -> None:
        if name in self.places.at:
            return
        key = self._key(name)
        if self.free[key] and name not in self.private:
            room = self.free[key].pop()
            del self.free_spans[bisect_left(self.free_spans, (room.start,))]
            insort(self.taken_spans, (room.start, room.end))
            self._take(name, room)
            self.places.at[name] = room.start + self._margin(name)
        else:
            self._build(index, name)

    def _build(self, index: int, name: str) -> None:
        """A new room, behind all others or as far in front as nobody is who is needed."""
        value = self.placed.values[name]
        planes = -(-value.channels * value.plane // ALIGNED) * ALIGNED * self.lanes
        size, start = 2 * self._margin(name) + planes, self.places.floats
        if self.overlaid:
            start = 0
            for first, end in self.taken_spans:
                if start + size <= first:
                    break
                start = end
        room = Block(name, index, start, start + size)
        self._cover(room)
        insort(self.taken_spans, (room.start, room.end))
        self.rooms.append(room)
        self._take(name, room)
        self.places.at[name] = start + self._margin(name)
        self.places.floats = max(self.places.floats, room.end)

    def _take(self, name: str, room: Block) -> None:
        self.taken[name] = room
        self.places.values_in.setdefault(room, []).append(name)

    def _cover(self, room: Block) -> None:
        """Forget the free rooms that a new one lies over."""
        place = bisect_left(self.free_spans, (room.start,))
        place -= place > 0 and self.free_spans[place - 1][1] > room.start
        while place < len(self.free_spans) and self.free_spans[place][0] < room.end:
            start, _, key = self.free_spans.pop(place)
            self.free[key] = [each for each in self.free[key] if each.start != start]

    def _release(self, names: list[str]) -> None:
        """Free what was read the last time; a room that was handed on is no longer its first value's."""
        for name in (name for name in names if name in self.last):
            if name not in self.private and name in self.taken:
                room, key = self.taken.pop(name), self._key(name)
                self.free[key].append(room)
                del self.taken_spans[bisect_left(self.taken_spans, (room.start,))]
                insort(self.free_spans, (room.start, room.end, key))
            del self.last[name]

    def _margin(self, name: str) -> int:
        return self.placed.values[name].margin * self.lanes

    def _key(self, name: str) -> Key:
        value = self.placed.values[name]
        return (value.group, value.channels, value.height, value.width)


def _overlapping(rooms: list[Block]) -> Iterator[Block]:
    """Those that have floats in common with another one."""
    inorder = sorted(rooms, key=lambda room: room.start)
    ends = accumulate((room.end for room in inorder), max, initial=0)
    following = [*(room.start for room in inorder[1:]), inf]
    meeting = {
        room for room, end, after in zip(inorder, ends, following, strict=False) if end > room.start or after < room.end
    }
    return (room for room in rooms if room in meeting)


def _private(placed: Placed) -> Iterator[str]:
    """Values whose rooms are theirs alone: some of what is read of them nobody writes, so that it has to stay zero."""
    written = {name: [np.zeros(0, dtype=np.int64)] for name in placed.values}
    written[INPUT] = [np.arange(placed.values[INPUT].channels)]
    for step in placed.steps:
        if isinstance(step, Layer):
            written[step.output].append(step.rows)
    for name, parts in written.items():  # no step writes a split, which leaves out rows that uneven phases do not have
        if not np.isin(placed.read[name], np.concatenate(parts)).all():
            yield name


def _read(step: Layer | Split) -> list[str]:
    return list(step.reads) if isinstance(step, Layer) else [step.input]

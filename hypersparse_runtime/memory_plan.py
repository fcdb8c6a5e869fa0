"""Where values lie in the workspace.

Each value gets a block of memory for its planes and the zeros around them. After its last use a block is free for
the next value of the same layout, which has its zeros in the same places. If all blocks together are large, blocks of
different layouts may overlap. An overlapping block is cleared again before it is used.
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
from hypersparse_runtime.sparse_layers import Array, Layer, distinct

MIN_OVERLAID = 2**18  # floats, 1 MiB: larger workspaces use overlapping blocks, to fit in a core's second cache

Key = tuple[int, ...]  # group, channels, height and width: values of one key may share a block, one after another


@dataclass(frozen=True)
class Block:
    """Floats of the workspace from `start` to `end` for a value, from a step on."""

    value: str
    step: int
    start: int
    end: int


@dataclass
class Places:
    """The address of each value, the size of the workspace, and the blocks to clear before a step."""

    at: dict[str, int] = field(default_factory=dict)
    floats: int = 0
    to_clear: list[Block] = field(default_factory=list)
    values_in: dict[Block, list[str]] = field(default_factory=dict)  # the values of each block, in order

    def of(self, name: str) -> int:
        """The address of a value; 0 for one that is never read, which has no block."""
        return self.at.get(name, 0)


def plan_memory(placed: Placed, lanes: int) -> Places:
    """Assign memory to all values of a network, for `lanes` interleaved images."""
    apart = _Planner(placed, lanes, overlaid=False).places
    return apart if apart.floats <= MIN_OVERLAID else _Planner(placed, lanes, overlaid=True).places


def zeros_of(placed: Placed, values: list[str], lanes: int) -> Array:
    """The padding of a block as runs of floats `(first, count)`, relative to its value.

    `values` have the same layout and share the block. They use different channels; their padding is cleared once.
    Runs are whole vectors. They may overlap the rows, which are written later.
    """
    value = placed.values[values[0]]
    read = distinct(np.concatenate([placed.read[name] for name in values]))
    planes = distinct(np.concatenate([read, read - 1]))  # what is above a plane is below the one before
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


class _Planner:
    def __init__(self, placed: Placed, lanes: int, *, overlaid: bool) -> None:
        self.placed, self.lanes, self.overlaid = placed, lanes, overlaid
        self.places, self.blocks = Places(), list[Block]()
        self.free: dict[Key, list[Block]] = defaultdict(list)
        self.taken: dict[str, Block] = {}
        self.taken_spans = list[tuple[int, int]]()  # starts and ends, in order; the spans do not overlap
        self.free_spans = list[tuple[int, int, Key]]()
        self.last = {name: index for index, step in enumerate(placed.steps) for name in _read(step)}
        self.last[placed.output] = len(placed.steps)
        self.private = {step.output for step in placed.steps if isinstance(step, Split)}
        if overlaid:
            self.private.update(_private(placed))
            for name in sorted(self.private):  # first, so that no other block overlaps them
                self._build(-1, name)
        self._reserve(-1, INPUT)
        ending = defaultdict(list)
        for name, index in self.last.items():
            ending[index].append(name)
        for index, step in enumerate(placed.steps):
            self._make(index, step)
            self._release(ending[index])
        self.places.to_clear = list(_overlapping(self.blocks)) if overlaid else []

    def _make(self, index: int, step: Layer | Split) -> None:
        """Memory for the output of a step: that of the value it adds, if this is its last use."""
        over, at = None if isinstance(step, Split) else step.residual, self.places.at
        if step.output in at:  # a layer that overwrites its residual, or a block that exists already
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
            block = self.free[key].pop()
            del self.free_spans[bisect_left(self.free_spans, (block.start,))]
            insort(self.taken_spans, (block.start, block.end))
            self._take(name, block)
            self.places.at[name] = block.start + self._margin(name)
        else:
            self._build(index, name)

    def _build(self, index: int, name: str) -> None:
        """A new block: at the end, or at the first gap between the blocks in use."""
        value = self.placed.values[name]
        planes = -(-value.channels * value.plane // ALIGNED) * ALIGNED * self.lanes
        size, start = 2 * self._margin(name) + planes, self.places.floats
        if self.overlaid:
            start = 0
            for first, end in self.taken_spans:
                if start + size <= first:
                    break
                start = end
        block = Block(name, index, start, start + size)
        self._cover(block)
        insort(self.taken_spans, (block.start, block.end))
        self.blocks.append(block)
        self._take(name, block)
        self.places.at[name] = start + self._margin(name)
        self.places.floats = max(self.places.floats, block.end)

    def _take(self, name: str, block: Block) -> None:
        self.taken[name] = block
        self.places.values_in.setdefault(block, []).append(name)

    def _cover(self, block: Block) -> None:
        """Remove the free blocks that a new one overlaps."""
        place = bisect_left(self.free_spans, (block.start,))
        place -= place > 0 and self.free_spans[place - 1][1] > block.start
        while place < len(self.free_spans) and self.free_spans[place][0] < block.end:
            start, _, key = self.free_spans.pop(place)
            self.free[key] = [each for each in self.free[key] if each.start != start]

    def _release(self, names: list[str]) -> None:
        """Free the blocks of values after their last use, unless another value has taken them over."""
        for name in (name for name in names if name in self.last):
            if name not in self.private and name in self.taken:
                block, key = self.taken.pop(name), self._key(name)
                self.free[key].append(block)
                del self.taken_spans[bisect_left(self.taken_spans, (block.start,))]
                insort(self.free_spans, (block.start, block.end, key))
            del self.last[name]

    def _margin(self, name: str) -> int:
        return self.placed.values[name].margin * self.lanes

    def _key(self, name: str) -> Key:
        value = self.placed.values[name]
        return (value.group, value.channels, value.height, value.width)


def _overlapping(blocks: list[Block]) -> Iterator[Block]:
    """The blocks that overlap another one."""
    in_order = sorted(blocks, key=lambda block: block.start)
    ends = accumulate((block.end for block in in_order), max, initial=0)
    following = [*(block.start for block in in_order[1:]), inf]
    meeting = {
        block
        for block, end, after in zip(in_order, ends, following, strict=False)
        if end > block.start or after < block.end
    }
    return (block for block in blocks if block in meeting)


def _private(placed: Placed) -> Iterator[str]:
    """Values that share no block: some of the channels that are read are never written and must stay zero."""
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

"""What the steps of whole values share: where elements lie, and which memory runs of them use.

Positions count the elements of a value in its dense order: channels, rows, columns. Offsets count the floats of one
image; the kernel multiplies them by its lanes.
"""

from dataclasses import dataclass

import numpy as np

from hypersparse_runtime.checked_step import Step
from hypersparse_runtime.conv_steps import mask_of
from hypersparse_runtime.kernel_tables import Ints, Tables
from hypersparse_runtime.memory_plan import Places
from hypersparse_runtime.plane_layout import Placed, PlaneLayout
from hypersparse_runtime.sparse_layers import Array, Layer

Words = dict[str, int]  # of a step; `blocks` is an estimate of its operations
SAMPLED = 2**12  # moves that tell the usual stride of runs


@dataclass(frozen=True)
class Writing:
    """A layer that is written as a step of a program, and where its values lie."""

    layer: Layer
    placed: Placed
    places: Places
    tables: Tables

    @property
    def before(self) -> PlaneLayout:
        """The layout of its input."""
        return self.placed.values[self.layer.input]

    @property
    def after(self) -> PlaneLayout:
        """The layout of its output."""
        return self.placed.values[self.layer.output]

    def constants(self, array: Array) -> Words:
        """A table of constants that elements are read from."""
        return {"plane": self.tables.add(array, np.float32), "plane_size": array.size}

    def floats(self, *numbers: float) -> int:
        """A table of these numbers."""
        return self.tables.add(np.array(numbers), np.float32)

    def pairs(self, offsets: Array, weights: Array) -> int:
        """A table of entries, each an offset and a weight."""
        parts = [offsets.astype(np.int32), weights.astype(np.float32).view(np.int32)]
        return self.tables.add(np.stack(parts, axis=1))

    def positions(self) -> Words:
        """The run of positions of a plane of the input, and a mask without its padding."""
        return {"segment_length": self.before.run, "mask": mask_of(self.before, self.tables)}

    @property
    def elements(self) -> int:
        """The elements of the input."""
        return self.before.channels * self.before.height * self.before.width


def addresses(value: PlaneLayout, places: Array) -> Array:
    """The offsets of elements from the first one, by their positions in the value's dense order."""
    size, wide = value.height * value.width, places.astype(np.int64)
    channel = wide // size  # `divmod` has no vector instructions: 5 times as long
    if value.is_even:
        even: Array = channel * (value.plane - size) + wide
        return even
    found: Array = channel * value.plane + value.places().reshape(-1)[wide - channel * size]
    return found


def all_addresses(value: PlaneLayout) -> Array:
    """The offsets of all elements."""
    return addresses(value, np.arange(value.channels * value.height * value.width))


def runs_of(*operands: Array) -> tuple[Array, list[int]]:
    """Runs in which each operand advances evenly: their starts, lengths and strides.

    >>> runs_of(np.array([0, 1, 2, 8, 9, 10]), np.array([0, 5, 10, 1, 6, 11]))[0].tolist()
    [[0, 0, 3], [8, 1, 3]]
    """
    if not len(operands[0]):
        return np.zeros((0, len(operands) + 1), dtype=np.int64), [1] * len(operands)
    moves = [np.diff(each) for each in operands]
    steps = [_usual(each) for each in moves]
    steps[0] = 1
    broken = np.zeros(len(operands[0]) - 1, dtype=bool)
    for move, step in zip(moves, steps, strict=True):
        broken |= move != step
    first = np.concatenate([[0], np.flatnonzero(broken) + 1])
    lengths = np.diff(np.concatenate([first, [len(operands[0])]]))
    runs: Array = np.stack([*(each[first] for each in operands), lengths], axis=1)
    return runs, steps


def _usual(moves: Array) -> int:
    if not len(moves):
        return 1
    found, counts = np.unique(moves[:SAMPLED], return_counts=True)
    return int(found[counts.argmax()])


def checked_runs(step: Step, words: int, what: str) -> Ints:
    """The runs of a step; the last of each run's numbers is a count."""
    runs: Ints = step.table(step.channels, words * step.rows, what).reshape(-1, words)
    step.need(not (runs < 0).any() and not (runs[:, -1] == 0).any(), what)
    return runs


def check_operand(step: Step, runs: Ints, column: int, *, at: int, stride: int, what: str) -> None:
    """Check the range that runs read of a value, or of a table of constants if `at` is none."""
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


def checked_offsets(step: Step, cells: int) -> Ints:
    """The offsets of the entries of so many cells."""
    starts = step.table(step.starts, cells + 1, "starts")
    step.need(starts[0] >= 0 and not (np.diff(starts) < 0).any(), "starts")
    return step.table(step.entries, 2 * int(starts[-1]), "entries")[::2]

"""Steps over channels or groups of them: norms, softmax, reductions, products of two values, embeddings."""

from dataclasses import dataclass

import numpy as np

from hypersparse_runtime.checked_step import Step, vectors
from hypersparse_runtime.functions import REDUCTIONS
from hypersparse_runtime.plane_layout import PlaneLayout
from hypersparse_runtime.sparse_layers import Array, ValueStep
from hypersparse_runtime.value_steps.base import Words, Writing, addresses


@dataclass(frozen=True, eq=False)
class PlanesStep(ValueStep):
    """Base of steps at each position over so many consecutive channels."""

    alike, reduces = True, False  # whether it makes one plane of each group
    channels: int

    def words(self, at: Writing) -> Words:
        return {"rows": at.before.channels, "groups": self.channels, "blocks": 4 * at.elements} | at.positions()

    @classmethod
    def check(cls, step: Step) -> None:
        """Groups of planes: whole vectors, except for values with consecutive elements."""
        fits = min(step.rows, step.groups, step.segment_length) > 0 and step.rows % step.groups == 0
        step.need(fits, "groups")
        span = step.segment_length * step.lanes
        step.floats(step.input, step.input + (step.rows - 1) * step.input_plane + span, "input")
        made = step.rows // step.groups if cls.reduces else step.rows
        step.floats(step.output, step.output + (made - 1) * step.output_plane + span, "output")
        if step.mask >= 0:
            step.table(step.mask, vectors(step.segment_length), "mask")


@dataclass(frozen=True, eq=False)
class SoftmaxStep(PlanesStep):
    """Softmax."""

    kind = "softmax_planes"


@dataclass(frozen=True, eq=False)
class ReduceStep(PlanesStep):
    """A reduction, by its name in `functions`."""

    kind, reduces = "reduce", True
    function: str

    def words(self, at: Writing) -> Words:
        return super().words(at) | {"kernel_y": [*REDUCTIONS].index(self.function)}

    @classmethod
    def check(cls, step: Step) -> None:
        step.need(0 <= step.kernel_y < len(REDUCTIONS), "function")
        super().check(step)


@dataclass(frozen=True, eq=False)
class LayerNormStep(PlanesStep):
    """Subtracts the mean and divides by the deviation, over the channels at each position."""

    kind = "layer_norm"
    gain: Array
    shift: Array
    epsilon: float

    def words(self, at: Writing) -> Words:
        words = {"bias": at.tables.add(np.stack([self.gain, self.shift], axis=1), np.float32)}
        return words | {"clip": at.floats(self.epsilon, 0.0)} | super().words(at)

    @classmethod
    def check(cls, step: Step) -> None:
        super().check(step)
        step.table(step.bias, 2 * cls.gains(step), "gain")
        step.table(step.clip, 1, "epsilon")
        for at, plane in ((step.input, step.input_plane), (step.output, step.output_plane)):
            step.floats(at, at + (step.rows - 1) * plane + step.read_span, "rows")

    @staticmethod
    def gains(step: Step) -> int:
        """How many gains and shifts there are."""
        return step.groups


@dataclass(frozen=True, eq=False)
class GroupNormStep(LayerNormStep):
    """The same over all positions of a group of channels."""

    kind = "group_norm"

    @staticmethod
    def gains(step: Step) -> int:
        return step.rows


@dataclass(frozen=True, eq=False)
class MatMulStep(ValueStep):
    """Rows of sums: output row r of batch b is the sum over k of first[b, r, k] times the vector second[b, k].

    The first factors are single numbers of the input, the second ones runs of the other value.
    """

    kind, one_by_one = "matmul", True
    other: str
    first: Array  # place of each batch's first factor
    first_row: int  # how far apart the factors of two rows are, in places
    first_term: int
    second: Array
    second_term: int
    rows: int
    terms: int
    length: int
    scale: float

    def words(self, at: Writing) -> Words:
        one, two = at.before, at.placed.values[self.other]
        batches = np.stack([addresses(one, self.first), addresses(two, self.second)], axis=1)
        return {
            "residual": at.places.of(self.other),
            "rows": self.rows,
            "groups": self.terms,
            "segment_length": self.length,
            "segments": len(batches),
            "channels": at.tables.add(batches),
            "stride_y": _apart(one, self.first, self.first_row, self.rows),
            "stride_x": _apart(one, self.first, self.first_term, self.terms),
            "segment_stride": _apart(two, self.second, self.second_term, self.terms),
            "bias": at.floats(self.scale),
            "blocks": len(batches) * self.rows * self.terms * self.length,
        }

    @classmethod
    def check(cls, step: Step) -> None:
        step.need(min(step.rows, step.groups, step.segments, step.segment_length) > 0 and step.lanes == 1, "sizes")
        batches = step.table(step.channels, 2 * step.segments, "batches").reshape(-1, 2).astype(np.int64)
        step.table(step.bias, 1, "scale")
        factors = [(step.rows - 1) * step.stride_y, (step.groups - 1) * step.stride_x]
        low, high = (sum(part(0, each) for each in factors) for part in (min, max))
        first = step.input + int(batches[:, 0].min()), step.input + int(batches[:, 0].max())
        step.floats(first[0] + low, first[1] + high + 1, "first")
        last = (step.groups - 1) * step.segment_stride
        run = vectors(step.segment_length)
        second = step.residual + int(batches[:, 1].min()), step.residual + int(batches[:, 1].max())
        step.need(step.residual >= 0, "second")
        step.floats(second[0] + min(0, last), second[1] + max(0, last) + run, "second")
        made = (step.segments * step.rows - 1) * step.output_plane + step.segment_length
        step.floats(step.output, step.output + made, "output")


def _apart(value: PlaneLayout, first: Array, stride: int, count: int) -> int:
    """How far apart two elements are in memory, if there are two."""
    last = addresses(value, first[:1].astype(np.int64) + (stride if count > 1 else 0))
    return int(last[0] - addresses(value, first[:1])[0])


@dataclass(frozen=True, eq=False)
class EmbeddingStep(ValueStep):
    """The row of weights for each token number of the input; features become channels."""

    kind, one_by_one = "embedding", True
    places: Array
    weight: Array

    def words(self, at: Writing) -> Words:
        ids = addresses(at.before, self.places)
        words = {"rows": self.weight.shape[1], "groups": len(self.weight), "segment_length": len(ids)}
        words |= {"channels": at.tables.add(ids), "blocks": len(ids) * self.weight.shape[1]}
        return words | at.constants(self.weight)

    @classmethod
    def check(cls, step: Step) -> None:
        ids = step.table(step.channels, step.segment_length, "ids")
        step.need(min(step.segment_length, step.rows, step.groups) > 0 and step.lanes == 1, "sizes")
        step.need(step.groups * step.rows <= step.plane_size, "weights")
        step.table(step.plane, step.plane_size, "weights")
        step.floats(step.input + int(ids.min()), step.input + int(ids.max()) + 1, "ids")
        step.floats(step.output, step.output + (step.rows - 1) * step.output_plane + step.segment_length, "output")

"""Steps of weighted sums over positions: resampling and recurrent layers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hypersparse_runtime.checked_step import Step
from hypersparse_runtime.sparse_layers import Array, Entries, ValueStep
from hypersparse_runtime.value_steps.base import Words, Writing, checked_offsets


@dataclass(frozen=True, eq=False)
class ResampleStep(ValueStep):
    """Each output position as a weighted sum of positions of the same channel."""

    kind = "resample"
    position: Array  # of the output, sorted
    source: Array
    weight: Array

    def words(self, at: Writing) -> Words:
        count = at.after.height * at.after.width
        starts = np.searchsorted(self.position, np.arange(count + 1))
        words = {"rows": at.before.channels, "channels": at.tables.add(at.after.places().reshape(-1))}
        words |= {"segment_length": count, "starts": at.tables.add(starts)}
        words |= {"entries": at.pairs(at.before.places().reshape(-1)[self.source], self.weight)}
        return words | {"blocks": at.before.channels * len(self.source)}

    @classmethod
    def check(cls, step: Step) -> None:
        step.need(step.rows > 0 and step.segment_length > 0, "rows")
        places = step.table(step.channels, step.segment_length, "places")
        offsets = checked_offsets(step, step.segment_length)
        for found, at, plane in ((places, step.output, step.output_plane), (offsets, step.input, step.input_plane)):
            if len(found):
                step.need(int(found.min()) >= 0, "places")
                step.floats(at, at + (step.rows - 1) * plane + (int(found.max()) + 1) * step.lanes, "places")


@dataclass(frozen=True, eq=False)
class RecurrentStep(ValueStep):
    """An LSTM or a GRU over positions. The input holds the sums of the gates over its features, and is overwritten."""

    one_by_one = True
    gates: ClassVar[int]
    biased: ClassVar[bool]  # whether it has `bias`
    entries: Entries  # of the hidden state's weights
    bias: Array  # added to the last gate's sum over the hidden state
    reverse: bool

    def words(self, at: Writing) -> Words:
        entries, after = self.entries, at.after
        order = np.lexsort((entries.channel, entries.row))
        starts = np.searchsorted(entries.row[order], np.arange(at.before.channels + 1))
        offsets = entries.channel[order].astype(np.int64) * after.plane
        words = {"rows": after.channels, "segment_length": after.width, "stride_x": int(self.reverse)}
        words |= {"starts": at.tables.add(starts), "entries": at.pairs(offsets, entries.weight[order])}
        words |= {"bias": at.tables.add(self.bias, np.float32), "groups": at.before.channels // after.channels}
        return words | {"blocks": after.width * (len(offsets) + 8 * len(starts))}

    @classmethod
    def check(cls, step: Step) -> None:
        fits = step.rows > 0 and step.segment_length > 0 and step.groups == cls.gates and step.lanes == 1
        step.need(fits, "sizes")
        offsets = checked_offsets(step, cls.gates * step.rows)
        step.table(step.bias, step.rows if cls.biased else 0, "bias")
        length = step.segment_length
        step.floats(step.input, step.input + (cls.gates * step.rows - 1) * step.input_plane + length, "gates")
        step.floats(step.output, step.output + (step.rows - 1) * step.output_plane + length, "output")
        if len(offsets):
            step.need(int(offsets.min()) >= 0, "hidden state")
            step.floats(step.output, step.output + int(offsets.max()) + length, "hidden state")


class LstmStep(RecurrentStep):
    """An LSTM."""

    kind, gates, biased = "lstm", 4, False


class GruStep(RecurrentStep):
    """A GRU."""

    kind, gates, biased = "gru", 3, True

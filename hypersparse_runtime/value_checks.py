"""Checks of the steps of `value_layers`: the memory they read and write, by their words and tables."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from hypersparse_runtime.checked_step import Step, vectors
from hypersparse_runtime.kernel_tables import Ints
from hypersparse_runtime.operations.functions import FUNCTIONS, KERNEL_OPERATORS
from hypersparse_runtime.operations.tokens import REDUCTIONS


def _values(step: Step, words: int, what: str) -> Ints:
    """The runs of a step; the last of each run's numbers is a count."""
    runs: Ints = step.table(step.channels, words * step.rows, what).reshape(-1, words)
    step.need(not (runs < 0).any() and not (runs[:, -1] == 0).any(), what)
    return runs


def _operand(step: Step, runs: Ints, column: int, *, at: int, stride: int, what: str) -> None:
    """The range that runs read of a value, or of a table of constants if `at` is none."""
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


def _copy(step: Step) -> None:
    runs = _values(step, 3, "runs")
    _operand(step, runs, 0, at=step.output, stride=1, what="output")
    _operand(step, runs, 1, at=-1 if step.plane >= 0 else step.input, stride=step.stride_x, what="input")


def _elementwise(step: Step) -> None:
    runs = _values(step, 3, "runs")
    step.need(0 <= step.kernel_y < len(FUNCTIONS), "function")
    step.table(step.bias, 1, "bias")
    for column, at in ((0, step.output), (1, step.input)):
        _operand(step, runs, column, at=at, stride=1, what="runs")


def _arithmetic(step: Step) -> None:
    runs = _values(step, 4, "runs")
    step.need(0 <= step.kernel_y < len(KERNEL_OPERATORS), "operator")
    _operand(step, runs, 0, at=step.output, stride=1, what="output")
    _operand(step, runs, 1, at=step.input, stride=step.stride_y, what="input")
    _operand(step, runs, 2, at=step.residual, stride=step.stride_x, what="second operand")


def _planes(step: Step, *, reduced: bool = False) -> None:
    """Groups of planes: whole vectors, except for values with consecutive elements."""
    step.need(step.rows > 0 and step.groups > 0 and step.rows % step.groups == 0 and step.segment_length > 0, "groups")
    span = step.segment_length * step.lanes
    step.floats(step.input, step.input + (step.rows - 1) * step.input_plane + span, "input")
    made = step.rows // step.groups if reduced else step.rows
    step.floats(step.output, step.output + (made - 1) * step.output_plane + span, "output")
    if step.mask >= 0:
        step.table(step.mask, vectors(step.segment_length), "mask")


def _norm(step: Step) -> None:
    _planes(step)
    many = step.rows if step.kind == "group_norm" else step.groups
    step.table(step.bias, 2 * many, "gain")
    step.table(step.clip, 1, "epsilon")
    for at, plane in ((step.input, step.input_plane), (step.output, step.output_plane)):
        step.floats(at, at + (step.rows - 1) * plane + step.read_span, "rows")


def _reduce(step: Step) -> None:
    step.need(0 <= step.kernel_y < len(REDUCTIONS), "function")
    _planes(step, reduced=True)


def _matmul(step: Step) -> None:
    step.need(min(step.rows, step.groups, step.segments, step.segment_length) > 0 and step.lanes == 1, "sizes")
    batches = step.table(step.channels, 2 * step.segments, "batches").reshape(-1, 2).astype(np.int64)
    step.table(step.bias, 1, "scale")
    factors = [(step.rows - 1) * step.stride_y, (step.groups - 1) * step.stride_x]
    low, high = (sum(part(0, each) for each in factors) for part in (min, max))
    step.floats(step.input + int(batches[:, 0].min()) + low, step.input + int(batches[:, 0].max()) + high + 1, "first")
    last = (step.groups - 1) * step.segment_stride
    run = vectors(step.segment_length)
    at = step.residual + int(batches[:, 1].min()), step.residual + int(batches[:, 1].max())
    step.need(step.residual >= 0, "second")
    step.floats(at[0] + min(0, last), at[1] + max(0, last) + run, "second")
    made = (step.segments * step.rows - 1) * step.output_plane + step.segment_length
    step.floats(step.output, step.output + made, "output")


def _embedding(step: Step) -> None:
    ids = step.table(step.channels, step.segment_length, "ids")
    step.need(min(step.segment_length, step.rows, step.groups) > 0 and step.lanes == 1, "sizes")
    step.need(step.groups * step.rows <= step.plane_size, "weights")
    step.table(step.plane, step.plane_size, "weights")
    step.floats(step.input + int(ids.min()), step.input + int(ids.max()) + 1, "ids")
    step.floats(step.output, step.output + (step.rows - 1) * step.output_plane + step.segment_length, "output")


def _resample(step: Step) -> None:
    step.need(step.rows > 0 and step.segment_length > 0, "rows")
    places = step.table(step.channels, step.segment_length, "places")
    starts = step.table(step.starts, step.segment_length + 1, "starts")
    step.need(starts[0] >= 0 and not (np.diff(starts) < 0).any(), "starts")
    offsets = step.table(step.entries, 2 * int(starts[-1]), "entries")[::2]
    for found, at, plane in ((places, step.output, step.output_plane), (offsets, step.input, step.input_plane)):
        if len(found):
            step.need(int(found.min()) >= 0, "places")
            step.floats(at, at + (step.rows - 1) * plane + (int(found.max()) + 1) * step.lanes, "places")


def _recurrent(step: Step) -> None:
    gates = 4 if step.kind == "lstm" else 3
    step.need(step.rows > 0 and step.segment_length > 0 and step.groups == gates and step.lanes == 1, "sizes")
    starts = step.table(step.starts, gates * step.rows + 1, "starts")
    step.need(starts[0] >= 0 and not (np.diff(starts) < 0).any(), "starts")
    offsets = step.table(step.entries, 2 * int(starts[-1]), "entries")[::2]
    step.table(step.bias, step.rows if step.kind == "gru" else 0, "bias")
    length = step.segment_length
    step.floats(step.input, step.input + (gates * step.rows - 1) * step.input_plane + length, "gates")
    step.floats(step.output, step.output + (step.rows - 1) * step.output_plane + length, "output")
    if len(offsets):
        step.need(int(offsets.min()) >= 0, "hidden state")
        step.floats(step.output, step.output + int(offsets.max()) + length, "hidden state")


VALUE_CHECKS: Mapping[str, Callable[[Step], None]] = MappingProxyType(
    {
        "copy": _copy,
        "elementwise": _elementwise,
        "arithmetic": _arithmetic,
        "layer_norm": _norm,
        "group_norm": _norm,
        "matmul": _matmul,
        "softmax_planes": _planes,
        "reduce": _reduce,
        "embedding": _embedding,
        "resample": _resample,
        "lstm": _recurrent,
        "gru": _recurrent,
    }
)

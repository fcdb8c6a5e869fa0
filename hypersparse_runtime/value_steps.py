"""Layers of whole values as steps of the kernel: runs of floats, strides and constants in tables.

Offsets count the floats of one image; the kernel multiplies them by its lanes.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from hypersparse_runtime.conv_steps import mask_of
from hypersparse_runtime.kernel_tables import KINDS, Tables
from hypersparse_runtime.memory_plan import Places
from hypersparse_runtime.operations.functions import FUNCTIONS, KERNEL_OPERATORS
from hypersparse_runtime.operations.tokens import REDUCTIONS
from hypersparse_runtime.plane_layout import Placed, PlaneLayout
from hypersparse_runtime.sparse_layers import Array, Layer

Words = dict[str, int]
SAMPLED = 2**12  # moves that tell the usual stride of runs


def value_words(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    """The words specific to a step; `blocks` is an estimate of its operations."""
    words = _RULES[step.kind](step, placed, places, tables)
    return {"kind": KINDS.index(step.kind), "blocks": 1, **words}


def addresses(value: PlaneLayout, places: Array) -> Array:
    """The offsets of elements from the first one, by their positions in the value's dense order."""
    size, wide = value.height * value.width, places.astype(np.int64)
    channel = wide // size  # `divmod` has no vector instructions: 5 times as long
    if value.is_even:
        even: Array = channel * (value.plane - size) + wide
        return even
    found: Array = channel * value.plane + value.places().reshape(-1)[wide - channel * size]
    return found


def _all(value: PlaneLayout) -> Array:
    return addresses(value, np.arange(value.channels * value.height * value.width))


def _runs(*operands: Array) -> tuple[Array, list[int]]:
    """Runs in which each operand advances evenly: their starts, lengths and strides.

    >>> _runs(np.array([0, 1, 2, 8, 9, 10]), np.array([0, 5, 10, 1, 6, 11]))[0].tolist()
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


def _copy(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    after, work = placed.values[step.output], step.work
    targets = _all(after) if work.targets is None else addresses(after, work.targets)
    constant = work.constant is not None
    sources = work.places.astype(np.int64) if constant else addresses(placed.values[step.input], work.places)
    order = np.argsort(targets, kind="stable")
    runs, steps = _runs(targets[order], sources[order])
    words = {"rows": len(runs), "channels": tables.add(runs), "stride_x": steps[1], "blocks": len(sources)}
    return words | (
        {"plane": tables.add(work.constant, np.float32), "plane_size": work.constant.size} if constant else {}
    )


def _elementwise(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    before, after, work = placed.values[step.input], placed.values[step.output], step.work
    if (
        FUNCTIONS[work.function].keeps_zero
        and before.plane == after.plane
        and before.pitch == after.pitch
        and (before.rows or before.padded or not after.padded)
    ):
        runs = np.array([[0, 0, (before.channels - 1) * before.plane + before.run]])  # what pads it stays zero
    else:
        runs, _ = _runs(_all(after), _all(before))
    words = {"rows": len(runs), "channels": tables.add(runs), "kernel_y": [*FUNCTIONS].index(work.function)}
    count = before.channels * before.height * before.width
    return words | {"bias": tables.add(np.array([work.parameter]), np.float32), "blocks": 4 * count}


def _arithmetic(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    before, after, work = placed.values[step.input], placed.values[step.output], step.work
    if work.constant is not None:
        second = work.places.astype(np.int64)
        words = {"plane": tables.add(work.constant, np.float32), "plane_size": work.constant.size}
    else:
        second = addresses(placed.values[work.other], work.places)
        words = {"residual": places.of(work.other)}
    runs, steps = _runs(_all(after), _all(before), second)
    words |= {"rows": len(runs), "channels": tables.add(runs), "kernel_y": KERNEL_OPERATORS.index(work.function)}
    return words | {"stride_y": steps[1], "stride_x": steps[2], "blocks": len(second)}


def _norm(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    before, work = placed.values[step.input], step.work
    pairs = np.stack([work.gain, work.shift], axis=1)
    words = {"rows": before.channels, "groups": work.channels, "bias": tables.add(pairs, np.float32)}
    words["clip"] = tables.add(np.array([work.epsilon, 0.0]), np.float32)
    words |= _positions(before, tables)
    return words | {"blocks": 4 * before.channels * before.height * before.width}


def _positions(value: PlaneLayout, tables: Tables) -> Words:
    """The run of positions of a plane, and a mask without its padding."""
    return {"segment_length": value.run, "mask": mask_of(value, tables)}


def _planes(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    before, work = placed.values[step.input], step.work
    words = {"rows": before.channels, "groups": work.channels} | _positions(before, tables)
    if work.function:
        words["kernel_y"] = list(REDUCTIONS).index(work.function)
    return words | {"blocks": 4 * before.channels * before.height * before.width}


def _matmul(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    work = step.work
    one, two = placed.values[step.input], placed.values[work.other]
    batches = np.stack([addresses(one, work.first), addresses(two, work.second)], axis=1)

    def apart(value: PlaneLayout, first: Array, stride: int, count: int) -> int:
        last = addresses(value, first[:1].astype(np.int64) + (stride if count > 1 else 0))
        return int(last[0] - addresses(value, first[:1])[0])

    return {
        "residual": places.of(work.other),
        "rows": work.rows,
        "groups": work.terms,
        "segment_length": work.length,
        "segments": len(batches),
        "channels": tables.add(batches),
        "stride_y": apart(one, work.first, work.first_row, work.rows),
        "stride_x": apart(one, work.first, work.first_term, work.terms),
        "segment_stride": apart(two, work.second, work.second_term, work.terms),
        "bias": tables.add(np.array([work.scale]), np.float32),
        "blocks": len(batches) * work.rows * work.terms * work.length,
    }


def _embedding(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    work = step.work
    ids = addresses(placed.values[step.input], work.places)
    words = {"rows": work.weight.shape[1], "groups": len(work.weight), "segment_length": len(ids)}
    words |= {"channels": tables.add(ids), "plane": tables.add(work.weight, np.float32), "plane_size": work.weight.size}
    return words | {"blocks": len(ids) * work.weight.shape[1]}


def _resample(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    before, after, work = placed.values[step.input], placed.values[step.output], step.work
    count = after.height * after.width
    starts = np.searchsorted(work.position, np.arange(count + 1))
    source = before.places().reshape(-1)[work.source].astype(np.int32)
    pairs = np.stack([source, work.weight.astype(np.float32).view(np.int32)], axis=1)
    words = {"rows": before.channels, "channels": tables.add(after.places().reshape(-1)), "segment_length": count}
    words |= {"starts": tables.add(starts), "entries": tables.add(pairs)}
    return words | {"blocks": before.channels * len(pairs)}


def _recurrent(step: Layer, placed: Placed, places: Places, tables: Tables) -> Words:
    before, after, work = placed.values[step.input], placed.values[step.output], step.work
    entries = work.entries
    order = np.lexsort((entries.channel, entries.row))
    starts = np.searchsorted(entries.row[order], np.arange(before.channels + 1))
    offsets = (entries.channel[order].astype(np.int64) * after.plane).astype(np.int32)
    pairs = np.stack([offsets, entries.weight[order].astype(np.float32).view(np.int32)], axis=1)
    words = {"rows": after.channels, "segment_length": after.width, "stride_x": int(work.reverse)}
    words |= {"starts": tables.add(starts), "entries": tables.add(pairs), "bias": tables.add(work.bias, np.float32)}
    return words | {"groups": before.channels // after.channels, "blocks": after.width * (len(pairs) + 8 * len(starts))}


Rule = Callable[[Layer, Placed, Places, Tables], Words]
_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "copy": _copy,
        "elementwise": _elementwise,
        "arithmetic": _arithmetic,
        "layer_norm": _norm,
        "group_norm": _norm,
        "matmul": _matmul,
        "softmax_planes": _planes,
        "reduce": _planes,
        "embedding": _embedding,
        "resample": _resample,
        "lstm": _recurrent,
        "gru": _recurrent,
    }
)

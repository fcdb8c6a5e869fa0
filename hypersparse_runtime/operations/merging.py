"""Sums, concatenations and flattening."""

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from hypersparse_runtime.graph import INPUT, Graph, Node, Shape, need
from hypersparse_runtime.limits import MAX_JOINED, WorkCounter
from hypersparse_runtime.lowering import Lowering, sides_of
from hypersparse_runtime.operations.base import Channels, Operation, array_of, float32, whole_numbers
from hypersparse_runtime.operations.elementwise import lower_arithmetic
from hypersparse_runtime.sparse_layers import Array, Layer
from hypersparse_runtime.value_steps.elements import CopyStep
from hypersparse_runtime.views import View


class Add(Operation):
    """Sum of two values of one shape."""

    name, onnx, inputs, takes_views = "add", "Add", 2, True
    passes = Channels.SAME

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        need(inputs[0] == inputs[1], node.output, "inputs of two shapes", inputs)
        return inputs[0]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_change(node, adds=True)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return inputs[0] + inputs[1]

    def lower(self, lowering: Lowering, node: Node) -> None:
        first, second = node.inputs
        if lowering.is_laid(first) or lowering.is_laid(second):
            done = lowering.add_values(node, first=first, second=second)
            if not done and not lowering.add_values(node, first=second, second=first):
                lower_arithmetic(lowering, node, "add")
            return
        taken = 1 if lowering.can_take(second, sums=False) or not lowering.can_take(first, sums=False) else 0
        layer = lowering.open(node, taken, sums=False)
        lowering.close(node, replace(layer, residual=lowering.materialized(node.inputs[1 - taken])))


class Plane(Operation):
    """Sum with the array `value`, of the shape of the input: `shrink` replaces constant channels by it."""

    name, onnx, roles = "plane", "Add", ("value",)
    passes = Channels.SAME

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        shape = array_of(graph, node, "value").shape
        need(shape == inputs[0], node.output, "a plane of another shape than its input", (shape, inputs[0]))
        return inputs[0]

    def onnx_array_shape(self, role: str, array: Array, shape: Shape) -> Shape:
        return (1, *array.shape)

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_plane(node)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return inputs[0] + float32(graph, node, "value")

    def lower(self, lowering: Lowering, node: Node) -> None:
        layer = lowering.open(node, 0, sums=True)
        plane = array_of(lowering.graph, node, "value").astype(np.float64)
        lowering.close(node, replace(layer, plane=plane if layer.plane is None else layer.plane + plane))


class Concat(Operation):
    """One or more values, one after another along the first axis, or along another `axis`."""

    name, onnx, inputs, takes_views, any_axes = "concat", "Concat", None, True, True
    passes = Channels.JOINED

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        axis, axes = _axis(node), len(inputs[0])
        need(axis < axes, node.output, "an axis that its inputs do not have", axis)
        rest = (*inputs[0][:axis], *inputs[0][axis + 1 :])
        fits = all(len(shape) == axes and (*shape[:axis], *shape[axis + 1 :]) == rest for shape in inputs)
        need(fits, node.output, "inputs of other heights and widths", inputs)
        return (*inputs[0][:axis], sum(shape[axis] for shape in inputs), *inputs[0][axis + 1 :])

    def channels(self, graph: Graph, node: Node) -> Channels:
        return Channels.ALL if _axis(node) else Channels.JOINED

    def count_work(self, work: WorkCounter, node: Node) -> None:
        if _axis(node) or len(work.shapes[node.output]) not in (1, 3):
            work.add_whole(node, moved=2 * prod(work.shapes[node.output]), layers=len(node.inputs))
        else:
            work.add_concat(node)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return np.concatenate(inputs, axis=_axis(node) + 1)

    def lower(self, lowering: Lowering, node: Node) -> None:
        laid = any(lowering.is_laid(name) for name in node.inputs)
        if _axis(node) or laid or len(lowering.node_shapes[node.output]) not in (1, 3):
            self._lower_copies(lowering, node)
        else:
            self._lower_channels(lowering, node)

    def _lower_copies(self, lowering: Lowering, node: Node) -> None:
        """Each input is copied to its places; features stay channels where those of the first value are."""
        axis, shape = _axis(node), lowering.node_shapes[node.output]
        seen = View.whole(node.output, shape)
        known = next((name for name in node.inputs if name not in lowering.constants), None)
        first = lowering.view(known or node.inputs[0])
        sides = sides_of(shape)
        size = prod(lowering.shapes[first.value][1:])
        if len(shape) > 1 and first.merged()[-1] == ((shape[-1], size),) and axis < len(shape) - 1:
            sides = (shape[-1], 1, prod(shape[:-1]))
            seen = View.whole(node.output, (shape[-1], *shape[:-1])).permuted((*range(1, len(shape)), 0))
        start, places = 0, seen.indices()
        for name in node.inputs:
            length = lowering.node_shapes[name][axis]
            targets = np.take(places, range(start, start + length), axis).reshape(-1)
            array = lowering.constants.get(name)
            view = View.whole(INPUT, array.shape) if array is not None else lowering.view(name)
            constant = None if array is None else array.reshape(-1)
            order = np.argsort(targets)
            step = CopyStep(view.indices().reshape(-1)[order], constant, targets[order])
            lowering.emit_step(node, step, view.value, sides, seen)
            start += length

    def _lower_channels(self, lowering: Lowering, node: Node) -> None:
        channels = lowering.node_shapes[node.output][0]
        none, first, in_place = np.zeros(channels), 0, len(node.inputs) * channels <= MAX_JOINED
        for name in node.inputs:
            if in_place and lowering.is_movable(name):
                lowering.rename(name, partial(_moved, output=node.output, first=first, bias=none.copy()))
            else:
                lowering.append(_moved(lowering.copy(name, node.output), node.output, first, none))
            first += lowering.node_shapes[name][0]
        if in_place:
            lowering.joined.add(node.output)
        lowering.add_value(node)

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"axis": _axis(node) + 1}


def _axis(node: Node) -> int:
    return whole_numbers(node, "axis", least=0)[0] if "axis" in node.options else 0


class Flatten(Operation):
    """A vector of all elements in C order."""

    name, onnx, rearranges = "flatten", "Flatten", True
    passes = Channels.FLATTENED

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        need(len(inputs[0]) > 0, node.output, "an input that is one number, not an array of them", inputs[0])
        return (prod(inputs[0]),)

    def count_work(self, work: WorkCounter, node: Node) -> None:
        """Nothing: the values stay where they are."""

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return inputs[0].reshape(len(inputs[0]), -1)

    def lower(self, lowering: Lowering, node: Node) -> None:
        lowering.same[node.output] = lowering.same[node.inputs[0]]
        lowering.readers[node.inputs[0]] += lowering.readers[node.output]  # whoever reads the one reads the other

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"axis": 1}


def _moved(layer: Layer, output: str, first: int, bias: Array) -> Layer:
    """The layer with its rows from `first` on, as part of a larger value with these biases."""
    assert layer.entries is not None
    assert layer.bias is not None
    if layer.bias.any():
        bias[first : first + len(layer.bias)] = layer.bias
    entries = replace(layer.entries, row=layer.entries.row + np.int32(first))
    return replace(layer, output=output, rows=layer.rows + first, entries=entries, bias=bias)

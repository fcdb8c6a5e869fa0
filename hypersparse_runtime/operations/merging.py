"""Sums, concatenations and flattening."""

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from hypersparse_runtime.graph import Graph, Node, Shape, need
from hypersparse_runtime.limits import MAX_JOINED, WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.base import Channels, Operation, array_of, float32
from hypersparse_runtime.sparse_layers import Array, Layer


class Add(Operation):
    """Sum of two values of one shape."""

    name, onnx, inputs = "add", "Add", 2
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

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_plane(node)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return inputs[0] + float32(graph, node, "value")

    def lower(self, lowering: Lowering, node: Node) -> None:
        layer = lowering.open(node, 0, sums=True)
        plane = array_of(lowering.graph, node, "value").astype(np.float64)
        lowering.close(node, replace(layer, plane=plane if layer.plane is None else layer.plane + plane))


class Concat(Operation):
    """Channels of one or more values of the same height and width, or of vectors, one after another."""

    name, onnx, inputs = "concat", "Concat", None
    passes = Channels.JOINED

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        fits = all(len(shape) in (1, 3) and shape[1:] == inputs[0][1:] for shape in inputs)
        need(fits, node.output, "inputs of other heights and widths", inputs)
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_concat(node)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return np.concatenate(inputs, axis=1)

    def lower(self, lowering: Lowering, node: Node) -> None:
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
        return {"axis": 1}


class Flatten(Operation):
    """A vector of all elements in C order."""

    name, onnx = "flatten", "Flatten"
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

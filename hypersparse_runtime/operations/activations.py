"""Activations: ReLU and clip anywhere, softmax and log-softmax at a network's end."""

from dataclasses import replace
from math import inf
from typing import Any, ClassVar

import numpy as np

from hypersparse_runtime.graph import Graph, GraphError, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.base import Channels, Operation
from hypersparse_runtime.sparse_layers import Array, Layer

MAX_BOUND = float(np.finfo(np.float32).max)  # of a `clip`


class Activation(Operation):
    """A function of each element."""

    passes = Channels.SAME
    takes_views = True

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        return inputs[0]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_change(node, joined=True, ends=True)


class Relu(Activation):
    """max(x, 0)."""

    name, onnx = "relu", "Relu"

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return np.maximum(inputs[0], 0)

    def lower(self, lowering: Lowering, node: Node) -> None:
        lowering.change(node, lambda layer: replace(layer, relu=True), sums=True)


class Clip(Activation):
    """min(max(x, low), high): ReLU6, Hardtanh and the like. Options: `low`, `high`, or one of them."""

    name, onnx = "clip", "Clip"

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        low, high = bounds(node)
        need(low <= high, node.output, "bounds of which the lower is the larger", (low, high))
        return inputs[0]

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        low, high = (np.float32(bound) for bound in bounds(node))
        return np.clip(inputs[0], low, high)

    def lower(self, lowering: Lowering, node: Node) -> None:
        between = bounds(node)
        lowering.change(node, lambda layer: replace(layer, clip=between), sums=True)

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, float]:
        return dict(zip(("low", "high"), bounds(node), strict=True))


def bounds(node: Node) -> tuple[float, float]:
    """The bounds of a `clip`; a missing one is infinite.

    >>> from hypersparse_runtime import Node
    >>> bounds(Node("clip", ("input",), "y", options={"low": 0.0}))
    (0.0, inf)
    """
    given = [node.options[name] for name in ("low", "high") if name in node.options]
    if not given or not all(isinstance(bound, float) and abs(bound) <= MAX_BOUND for bound in given):
        said = "needs `low`, `high` or both, which are finite numbers of float32"
        raise GraphError(f"`{node.output}` {said}; got {dict(node.options)}.")
    return node.options.get("low", -inf), node.options.get("high", inf)


class Softmax(Operation):
    """Softmax of (C), as the last operation only."""

    name, onnx, last_only = "softmax", "Softmax", True
    kind: ClassVar[str] = "softmax"
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        need(len(inputs[0]) == 1, node.output, "an input that is no vector", inputs[0])
        return inputs[0]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_change(node)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return softmax(inputs[0])

    def lower(self, lowering: Lowering, node: Node) -> None:
        rows = np.arange(lowering.node_shapes[node.output][0])
        layer = Layer(self.kind, lowering.materialized(node.inputs[0]), node.output, rows)
        lowering.emit(node, layer)

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"axis": 1}


class LogSoftmax(Softmax):
    """Logarithm of the softmax of (C), as the last operation only."""

    name, onnx = "log_softmax", "LogSoftmax"
    kind: ClassVar[str] = "log_softmax"

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        less = _below_most(inputs[0])
        return less - np.log(np.exp(less).sum(axis=-1, keepdims=True))


def softmax(x: Array) -> Array:
    """Softmax over the last axis."""
    powers = np.exp(_below_most(x))
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _below_most(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, as in PyTorch
        less: Array = x - x.max(axis=-1, keepdims=True)
    return less

"""Pooling over windows and over whole images."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hypersparse_runtime.graph import Graph, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.base import Channels, OnnxCall, Operation, pair, slid, window_attributes
from hypersparse_runtime.sparse_layers import Array, Entries, Layer


def windows(x: Array, kernel: Shape, node: Node, *, fill: float) -> Array:
    """The input of every output position: (images, channels, height, width, kernel height, kernel width)."""
    (top, left), stride = pair(node, "padding", least=0), pair(node, "stride", least=1)
    padded = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=fill)
    found: Array = sliding_window_view(padded, kernel, axis=(2, 3))
    return found[:, :, :: stride[0], :: stride[1]]


class Pool(Operation):
    """What pooling over windows shares. Options: `kernel`, `stride` and `padding`."""

    passes = Channels.SAME

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        (x,) = inputs
        need(len(x) == 3, node.output, "an input of a wrong shape", x)
        kernel, padding = pair(node, "kernel", least=1), pair(node, "padding", least=0)
        inside = all(2 * edge <= side for edge, side in zip(padding, kernel, strict=True))
        need(inside, node.output, "a padding of more than half its kernel", padding)
        return (x[0], *slid(node, x, kernel))

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {**window_attributes(node), "kernel_shape": list(node.options["kernel"])}


class MaxPool(Pool):
    """Maximum over windows."""

    name, onnx = "max_pool", "MaxPool"

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_pool(node, prod(node.options["kernel"]))

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return windows(inputs[0], pair(node, "kernel", least=1), node, fill=-inf).max(axis=(4, 5))

    def lower(self, lowering: Lowering, node: Node) -> None:
        value = lowering.same[node.inputs[0]]
        kernel, stride, padding = (pair(node, name, least=0) for name in ("kernel", "stride", "padding"))
        layer = Layer("max_pool", value, node.output, np.arange(lowering.shapes[value][0]), kernel=kernel)
        lowering.emit(node, replace(layer, stride=stride, padding=padding))


class AvgPool(Pool):
    """Average over windows, padding included. A window over the whole image is a mean."""

    name, onnx = "avg_pool", "AveragePool"

    def count_work(self, work: WorkCounter, node: Node) -> None:
        before = work.shapes[node.inputs[0]]
        weighted = node.options["kernel"] != before[1:] or any(node.options["padding"])
        work.add_pool(node, prod(node.options["kernel"]), weighted=weighted)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return windows(inputs[0], pair(node, "kernel", least=1), node, fill=0.0).mean(axis=(4, 5))

    def lower(self, lowering: Lowering, node: Node) -> None:
        kernel, padding = pair(node, "kernel", least=1), pair(node, "padding", least=0)
        value = lowering.same[node.inputs[0]]
        channels, *sides = lowering.shapes[value]
        if kernel == tuple(sides) and padding == (0, 0):
            lower_mean(lowering, node)
            return
        row, y, x = (part.ravel().astype(np.int32) for part in np.indices((channels, *kernel)))
        entries = Entries(row, row, y, x, np.full(len(row), 1 / prod(kernel)))
        layer = Layer("conv", value, node.output, np.arange(channels), entries, np.zeros(channels), kernel=kernel)
        lowering.emit(node, replace(layer, stride=pair(node, "stride", least=1), padding=padding))

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {**super().onnx_attributes(node), "count_include_pad": 1}


class Mean(Operation):
    """Mean of (C, H, W) over height and width, which gives (C)."""

    name, onnx = "mean", "GlobalAveragePool"
    passes = Channels.SAME

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        need(len(inputs[0]) == 3, node.output, "an input of a wrong shape", inputs[0])
        return inputs[0][:1]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_pool(node, prod(work.shapes[node.inputs[0]][1:]))

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return inputs[0].mean(axis=(2, 3))

    def lower(self, lowering: Lowering, node: Node) -> None:
        lower_mean(lowering, node)

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        wide = f"{output} wide"
        return [OnnxCall(self.onnx, inputs, wide), OnnxCall("Flatten", [wide], output, {"axis": 1})]


def lower_mean(lowering: Lowering, node: Node) -> None:
    """A mean over whole images."""
    value = lowering.same[node.inputs[0]]
    layer = Layer("mean", value, node.output, np.arange(lowering.shapes[value][0]))
    lowering.emit(node, layer)

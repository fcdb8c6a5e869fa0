"""Layers: convolution, linear layer and batch norm."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from hypersparse_runtime import winograd
from hypersparse_runtime.graph import Graph, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.base import (
    Channels,
    OnnxCall,
    Operation,
    array_of,
    check_vector,
    count,
    float32,
    pair,
    slid,
    window_attributes,
)
from hypersparse_runtime.operations.pooling import windows
from hypersparse_runtime.sparse_layers import Array, Entries, Layer
from hypersparse_runtime.views import View


class Weighted(Operation):
    """What both kinds of layers share."""

    roles, weighted = ("weight", "bias"), True
    passes = Channels.WEIGHTED

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_weighted(node)

    def layer(self, lowering: Lowering, node: Node, kind: str, entries: Entries, *, value: str = "") -> Layer:
        """The layer of the sparse engine, for the nonzero weights; it reads `value`, by default that of its input."""
        bias, rows = lowering.graph.array(node, "bias"), len(array_of(lowering.graph, node, "weight"))
        given = np.zeros(rows) if bias is None else bias.astype(np.float64)
        return Layer(kind, value or lowering.same[node.inputs[0]], node.output, np.arange(rows), entries, given)


class Conv(Weighted):
    """Convolution of (C, H, W) with `weight` (O, C / groups, h, w) or (O, C / groups, w), `bias` (O) or none."""

    name, onnx, by_channels = "conv", "Conv", True

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        (x,) = inputs
        weight, groups = _kernels(array_of(graph, node, "weight")), count(node, "groups")
        fits = len(x) == 3 and weight.ndim == 4 and weight.shape[1] * groups == x[0] and weight.shape[0] % groups == 0
        need(fits and all(weight.shape), node.output, "a weight that does not fit its input", (weight.shape, x))
        check_vector(graph, node, "bias", weight.shape[0])
        return (weight.shape[0], *slid(node, x, self._reach(node, weight)))

    def _reach(self, node: Node, weight: Array) -> Shape:
        dilation = pair(node, "dilation", least=1)
        return tuple(step * (side - 1) + 1 for step, side in zip(dilation, weight.shape[2:], strict=True))

    def count_work(self, work: WorkCounter, node: Node) -> None:
        super().count_work(work, node)
        rows = _kernels(work.graph.tensors[node.tensors["weight"]]).shape[2]
        stride, dilation = pair(node, "stride", least=1), pair(node, "dilation", least=1)
        if winograd.fits(rows, stride, dilation, work.shapes[node.inputs[0]], work.shapes[node.output]):
            work.work.entries += work.kept_of(node.tensors["weight"]) // 2  # there may be up to four for each of them

    def channels(self, graph: Graph, node: Node) -> Channels:
        grouped = node.options["groups"] > 1 and not is_depthwise(graph, node)
        return Channels.ALL if grouped else Channels.WEIGHTED

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        weight, bias, (x,) = _kernels(float32(graph, node, "weight")), graph.array(node, "bias"), inputs
        groups, dilation = int(node.options["groups"]), pair(node, "dilation", least=1)
        seen = windows(x, self._reach(node, weight), node, fill=0.0)[..., :: dilation[0], :: dilation[1]]
        parts = [
            np.einsum("nchwyx,ocyx->nohw", each, own, optimize=True)
            for each, own in zip(np.split(seen, groups, axis=1), np.split(weight, groups), strict=True)
        ]
        result: Array = np.concatenate(parts, axis=1)
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    def lower(self, lowering: Lowering, node: Node) -> None:
        weight = _kernels(array_of(lowering.graph, node, "weight"))
        groups = int(node.options["groups"])
        (row, channel, y, x), values = nonzero(weight)
        entries = Entries(row, channel + row // (len(weight) // groups) * weight.shape[1], y, x, values)
        stride, padding, dilation = (pair(node, name, least=0) for name in ("stride", "padding", "dilation"))
        layer = self.layer(lowering, node, "conv", entries)
        layer = replace(layer, kernel=weight.shape[2:], stride=stride, padding=padding, dilation=dilation)
        lowering.emit(node, layer)

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {
            **window_attributes(node),
            "dilations": list(node.options["dilation"]),
            "group": node.options["groups"],
        }

    def onnx_array_shape(self, role: str, array: Array, shape: Shape) -> Shape:
        return tuple(_kernels(array).shape)


def _kernels(weight: Array) -> Array:
    """The weight of a convolution over a sequence as one over an image of one row."""
    return weight[:, :, None] if weight.ndim == 3 else weight


class Linear(Weighted):
    """Linear layer on (C) with `weight` (O, C), `bias` (O) or none."""

    name, onnx, by_channels = "linear", "Gemm", True

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        weight = array_of(graph, node, "weight")
        fits = weight.ndim == 2 and inputs[0] == weight.shape[1:]
        need(fits, node.output, "a weight that does not fit its input", (weight.shape, inputs[0]))
        check_vector(graph, node, "bias", weight.shape[0])
        return (weight.shape[0],)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        bias = graph.array(node, "bias")
        result: Array = inputs[0] @ float32(graph, node, "weight").T
        return result if bias is None else result + bias

    def lower(self, lowering: Lowering, node: Node) -> None:
        (row, feature), values = nonzero(array_of(lowering.graph, node, "weight"))
        entries = lowering.positions(lowering.same[node.inputs[0]], row, feature, values)
        lowering.emit(node, self.layer(lowering, node, "dot", entries))

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"transB": 1}


class TokenLinear(Linear):
    """Linear layer on the last axis of (..., C) with `weight` (O, C), `bias` (O) or none."""

    name, onnx, takes_views, by_channels = "token_linear", "MatMul", True, False
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        need(len(inputs[0]) > 1, node.output, "an input of one axis", inputs[0])
        return (*inputs[0][:-1], *super().shape(graph, node, [inputs[0][-1:]]))

    def uses(self, node: Node, shapes: Mapping[str, Shape]) -> int:
        return prod(shapes[node.output][:-1])

    def lower(self, lowering: Lowering, node: Node) -> None:
        entries = of_positions(array_of(lowering.graph, node, "weight"))
        view = lowering.planes_last(node.inputs[0], groups=False)
        _, *sides = lowering.shapes[view.value]
        rows = lowering.node_shapes[node.output][-1]
        kind = "dot" if view.value in lowering.vectors else "conv"
        layer = self.layer(lowering, node, kind, entries, value=view.value)
        axes = (*view.axes[:-1], ((rows, prod(sides)),))
        lowering.emit_whole(node, layer, (rows, sides[0], sides[1]), View(node.output, axes))

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        product = f"{output} product" if len(inputs) > 2 else output
        calls = [
            OnnxCall("Transpose", [inputs[1]], f"{output} weight", {"perm": [1, 0]}),
            OnnxCall("MatMul", [inputs[0], f"{output} weight"], product),
        ]
        return [*calls, OnnxCall("Add", [product, inputs[2]], output)] if len(inputs) > 2 else calls


class BatchNorm(Operation):
    """Batch norm of (C, H, W) or (C). Option: `epsilon`."""

    name, onnx, roles = "batch_norm", "BatchNormalization", ("weight", "bias", "mean", "variance")
    passes = Channels.SAME

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        need(len(inputs[0]) in (1, 3), node.output, "an input of a wrong shape", inputs[0])
        for role in self.roles:
            array_of(graph, node, role)
            check_vector(graph, node, role, inputs[0][0])
        epsilon = node.options.get("epsilon")
        need(isinstance(epsilon, float) and epsilon >= 0, node.output, "a wrong epsilon", epsilon)
        return inputs[0]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_change(node, scales=True, joined=True)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        weight, bias, mean, variance = (float32(graph, node, role) for role in self.roles)
        scale = weight / np.sqrt(variance + np.float32(node.options["epsilon"]))
        shape = (-1, *[1] * (inputs[0].ndim - 2))
        return inputs[0] * scale.reshape(shape) + (bias - mean * scale).reshape(shape)

    def lower(self, lowering: Lowering, node: Node) -> None:
        parts = (array_of(lowering.graph, node, role) for role in self.roles)
        weight, bias, mean, variance = (part.astype(np.float64) for part in parts)
        scale = weight / np.sqrt(variance + float(node.options["epsilon"]))

        def folded(layer: Layer) -> Layer:
            assert layer.entries is not None
            assert layer.bias is not None
            plane = None if layer.plane is None else layer.plane * scale.reshape(-1, *[1] * (layer.plane.ndim - 1))
            shifted = (layer.bias - mean) * scale + bias
            return replace(layer, entries=layer.entries.scaled(scale), bias=shifted, plane=plane)

        lowering.change(node, folded, sums=False)

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"epsilon": float(node.options["epsilon"])}


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether a convolution computes each channel from the same one."""
    weight = graph.array(node, "weight")
    return (
        node.op == Conv.name and weight is not None and len(weight) == node.options["groups"] and weight.shape[1] == 1
    )


def of_positions(weight: Array) -> Entries:
    """A matrix over the channels at each position, as a convolution of one tap."""
    (row, channel), values = nonzero(weight)
    zero = np.zeros_like(row)
    return Entries(row, channel, zero, zero, values)


def nonzero(weight: Array) -> tuple[list[Array], Array]:
    """The indices of nonzero weights, and their values. The array is not copied: it may be large."""
    at = np.flatnonzero(weight != 0)
    indices = [part.astype(np.int32) for part in np.unravel_index(at, weight.shape)]
    return indices, weight.reshape(-1)[at].astype(np.float64)

"""Batch norm with fixed statistics."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hypersparse_runtime.ir import Array, Layer
from hypersparse_runtime.operations.base import Channels, Operation, Shape, array_of, check_vector, float32, need

if TYPE_CHECKING:
    from hypersparse_runtime.graph import Graph, Node
    from hypersparse_runtime.limits import WorkCounter
    from hypersparse_runtime.lowering import Lowering


class BatchNorm(Operation):
    """Batch norm of (C, H, W) or (C). Option: `epsilon`."""

    name, onnx, roles = "batch_norm", "BatchNormalization", ("weight", "bias", "mean", "variance")
    passes = Channels.SAME

    def shape(self, graph: "Graph", node: "Node", inputs: list[Shape]) -> Shape:
        need(len(inputs[0]) in (1, 3), node.output, "an input of a wrong shape", inputs[0])
        for role in self.roles:
            array_of(graph, node, role)
            check_vector(graph, node, role, inputs[0][0])
        epsilon = node.options.get("epsilon")
        need(isinstance(epsilon, float) and epsilon >= 0, node.output, "a wrong epsilon", epsilon)
        return inputs[0]

    def count_work(self, work: "WorkCounter", node: "Node") -> None:
        work.add_change(node, scales=True, joined=True)

    def compute(self, graph: "Graph", node: "Node", *inputs: Array) -> Array:
        weight, bias, mean, variance = (float32(graph, node, role) for role in self.roles)
        scale = weight / np.sqrt(variance + np.float32(node.options["epsilon"]))
        shape = (-1, *[1] * (inputs[0].ndim - 2))
        result: Array = inputs[0] * scale.reshape(shape) + (bias - mean * scale).reshape(shape)
        return result

    def lower(self, lowering: "Lowering", node: "Node") -> None:
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

    def onnx_attributes(self, node: "Node") -> dict[str, Any]:
        return {"epsilon": float(node.options["epsilon"])}

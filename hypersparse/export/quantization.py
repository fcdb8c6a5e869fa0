"""`quantize`: a network in int8 weights and activations and int32 sums, for targets that compute in integers.

It makes a `QuantizedGraph`, which `integer_reference.run` computes exactly as every other implementation has to. The
rule of each operation is in `integer_rules`.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import ModelError
from hypersparse.export.batch_norm_folding import fold_batch_norms, readers
from hypersparse.export.integer_rules import IntegerRule
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse.export.quantized_graph import UNSIGNED, QuantizedGraph, QuantizedValue, clamped
from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, shapes
from hypersparse_runtime.row_quantization import STEPS

OUTPUT = 2**15 - 1  # of the network's output,
HEADROOM = 4  # which may be so many times as large as in calibration


def quantize(graph: Graph, ranges: Mapping[str, float]) -> QuantizedGraph:
    """The network in integers; `calibrate(graph, batches)` finds the ranges of its values.

    Shrink the graph first, with `shrink_graph(graph, planes=False)`.
    """
    work = Quantizer(_prepared(graph), ranges)
    nodes = tuple(rule_of(node.op).quantize(work, node) for node in work.graph.nodes if node.output not in work.folded)
    sides = {name: work.shapes[name] for name in work.values}
    return QuantizedGraph(graph.input_shape, nodes, work.values, sides, graph.about)


class Quantizer:
    """Scales of values, and the activations that are part of the nodes before them."""

    def __init__(self, graph: Graph, ranges: Mapping[str, float]) -> None:
        self.graph, self.ranges, self.shapes = graph, ranges, shapes(graph)
        makers, count = {node.output: node for node in graph.nodes}, readers(graph)
        self.activations: dict[str, Node] = {}  # by the value that they alone read
        for node in graph.nodes:
            maker = makers.get(node.inputs[0])
            if maker and count[node.inputs[0]] == 1 and rule_of(maker.op).bounded and rule_of(node.op).bounds(node):
                self.activations[maker.output] = node
        self.folded = {node.output for node in self.activations.values()}
        self.values = {INPUT: QuantizedValue(self._range(INPUT) / STEPS, -STEPS, STEPS)}

    def _range(self, name: str) -> float:
        return self.ranges[name] or 1.0  # any scale holds zeros

    def array(self, node: Node, role: str) -> NDArray[np.float64]:
        """One of its arrays, in double precision."""
        return np.asarray(self.graph.tensors[node.tensors[role]], np.float64)

    def inputs(self, node: Node) -> list[QuantizedValue]:
        """What it reads."""
        return [self.values[name] for name in node.inputs]

    def bounded(self, node: Node) -> tuple[str, QuantizedValue]:
        """The name and the scale of a node's output, behind the activation that belongs to it."""
        activation = self.activations.get(node.output)
        name = activation.output if activation else node.output
        low, high = (rule_of(activation.op).bounds(activation) if activation else None) or (-inf, inf)
        if not rule_of(node.op).signed and all(value.low >= 0 for value in self.inputs(node)):
            low = max(low, 0.0)
        return name, self.scaled(name, low, high)

    def scaled(self, name: str, low: float, high: float) -> QuantizedValue:
        """Choose the scale of a value between these bounds."""
        steps, most = UNSIGNED if low >= 0 else STEPS, self._range(name)
        if name == self.graph.output:
            steps, most = OUTPUT, most * HEADROOM
        scale = most / steps
        self.values[name] = QuantizedValue(scale, *clamped(low, high, scale, (-steps, steps)))
        return self.values[name]


def rule_of(op: str) -> IntegerRule:
    """The rule of an operation; raises ModelError if it has none."""
    rule = TORCH_OPERATIONS[op].int8 if op in TORCH_OPERATIONS else None
    if rule is None:
        raise ModelError(f"int8 activations have no operation `{op}`; export this network without them.")
    return rule


def _prepared(graph: Graph) -> Graph:
    """Batch norms in the layers before them, or as depthwise convolutions."""
    try:
        shapes(graph)
    except GraphError as error:
        raise ModelError(f"The network does not fit together: {error}") from None
    graph = fold_batch_norms(graph)
    for node in graph.nodes:
        rule_of(node.op)
    nodes, tensors = [], dict(graph.tensors)
    for node in graph.nodes:
        nodes.append(_depthwise(graph, node, tensors) if node.op == "batch_norm" else node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _depthwise(graph: Graph, node: Node, tensors: dict[str, Any]) -> Node:
    gain, shift, mean, variance = (
        np.asarray(graph.tensors[node.tensors[role]], np.float64) for role in ("weight", "bias", "mean", "variance")
    )
    scale = gain / np.sqrt(variance + node.options["epsilon"])
    names = {role: f"{node.output}~{role}" for role in ("weight", "bias")}
    tensors |= {names["weight"]: scale.reshape(-1, 1, 1, 1), names["bias"]: shift - mean * scale}
    one = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": len(scale)}
    return Node("conv", node.inputs, node.output, names, one)

"""`quantize`: a network in int8 weights and activations and int32 sums, for targets that compute in integers.

It makes a `QuantizedGraph`, which `integer_reference.run` computes exactly as every other implementation has to.
Everything is symmetric: the integer 0 is 0.

Values. A value is `scale` times its integers, which are in `low..high`:

| value | range | type |
| --- | --- | --- |
| of a layer or sum behind which a ReLU is; pools and reshapes of it | 0..255 | uint8 |
| any other | -127..127 | int8 |
| the network's output, of a layer or sum | -32767..32767 | int16 |

A ReLU or clip that alone reads the output of a layer or sum is no node of its own: that output is clamped to its range.

Weights are int8 with a scale for each output channel, see `row_quantization`. Biases are int32, in units of the input's
scale times the channel's. No sum reaches 2^31 for any input; `quantize` checks it.

Sums become the output's integers by an int32 `multiplier` m below 2^31 and a `shift` s of 1 to 62:

    requantized(a) = (a * m + 2^(s - 1)) >> s      in int64, with an arithmetic shift: halves are rounded up

Every output is clamped to its range. Nodes, with x the integers they read:

| op | arrays | output |
| --- | --- | --- |
| conv, linear | `weight`, `bias`; `multiplier`, `shift` by channel | requantized(sum + bias) |
| mean, avg_pool | `multiplier`, `shift`, of one element | requantized(sum of the window and its zeros) |
| elementwise | `table` | table[x - lowest x] |
| arithmetic (only `mul`) | `multiplier`, `shift` of one element | requantized(x0 * x1) |
| concat | `multiplier`, `shift` by input | requantized(x) of one input behind the other |
| add | `multiplier` by input, `shift` of one element | (x0 * m0 + x1 * m1 + 2^(s - 1)) >> s, in int32 |
| plane | `multiplier`, `shift` of one element, int32 `value` | (x * m + value + 2^(s - 1)) >> s, in int32 |
| relu, clip | none | x, with the scale of the input |
| max_pool, flatten | none | as in floating point, with the scale and range of the input |

Options are those of the graph's nodes. A batch norm that follows no layer becomes a depthwise convolution.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import frexp, inf, log2, prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import ModelError
from hypersparse.export.batch_norm_folding import fold_batch_norms, readers
from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, Shape, shapes
from hypersparse_runtime.operations.activations import bounds
from hypersparse_runtime.row_quantization import STEPS, quantize_rows

UNSIGNED = 255
OUTPUT = 2**15 - 1  # of the network's output,
HEADROOM = 4  # which may be so many times as large as in calibration
MULTIPLIER_BITS, MOST_SHIFT = 31, 62
MOST_OF_A_SUM = 2**30  # of the products of `add` and `plane`
MOST_BIAS = 2**24  # steps; the weights of a channel with a larger one hardly matter and get fewer steps
ACTIVATIONS = ("relu", "clip")
BOUNDED = ("conv", "linear", "batch_norm", "add", "plane", "mean", "avg_pool", "arithmetic")  # that clamp their output
SAME = ("max_pool", "flatten")

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class QuantizedValue:
    """What the integers of a value mean."""

    scale: float
    low: int
    high: int

    @property
    def dtype(self) -> str:
        """The type that holds them."""
        if self.low >= 0 and self.high <= UNSIGNED:
            return "uint8"
        return "int8" if self.most <= STEPS else "int16"

    @property
    def most(self) -> int:
        """Their largest magnitude."""
        return max(-self.low, self.high)


@dataclass(frozen=True, eq=False)
class QuantizedNode:
    """One operation on integers."""

    op: str
    inputs: tuple[str, ...]
    output: str
    arrays: Arrays = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class QuantizedGraph:
    """A network in integers."""

    input_shape: Shape
    nodes: tuple[QuantizedNode, ...]
    values: Mapping[str, QuantizedValue]  # by name
    shapes: Mapping[str, Shape]  # of values, of one image
    about: Mapping[str, Any]

    @property
    def output(self) -> str:
        """The name of the network's value."""
        return self.nodes[-1].output


def quantize(graph: Graph, ranges: Mapping[str, float]) -> QuantizedGraph:
    """The network in integers; `calibrate(graph, batches)` finds the ranges of its values.

    Shrink the graph first, with `shrink_graph(graph, planes=False)`.
    """
    work = _Quantizer(_prepared(graph), ranges)
    nodes = tuple(QUANTIZE[node.op](work, node) for node in work.graph.nodes if node.output not in work.folded)
    sides = {name: work.shapes[name] for name in work.values}
    return QuantizedGraph(graph.input_shape, nodes, work.values, sides, graph.about)


def multiplier_and_shift(factor: float) -> tuple[int, int]:
    """m and s so that m / 2^s is the factor, with 31 bits where s permits.

    >>> multiplier_and_shift(0.75), multiplier_and_shift(2.0**-40)
    ((1610612736, 31), (4194304, 62))
    """
    if not 0 <= factor < 2**MULTIPLIER_BITS / 2:
        raise ModelError(f"Integers would be multiplied by {factor:.3g}; calibrate with other images.")
    shift = min(MULTIPLIER_BITS - frexp(factor)[1], MOST_SHIFT)
    multiplier = round(factor * 2.0**shift)
    return (multiplier, shift) if multiplier < 2**MULTIPLIER_BITS else (multiplier // 2, shift - 1)


class _Quantizer:
    """Scales of values, and the activations that are part of the nodes before them."""

    def __init__(self, graph: Graph, ranges: Mapping[str, float]) -> None:
        self.graph, self.ranges, self.shapes = graph, ranges, shapes(graph)
        makers, count = {node.output: node for node in graph.nodes}, readers(graph)
        self.activations: dict[str, Node] = {}  # by the value that they alone read
        for node in graph.nodes:
            maker = makers.get(node.inputs[0])
            if node.op in ACTIVATIONS and maker and maker.op in BOUNDED and count[node.inputs[0]] == 1:
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
        low, high = _bounds(activation) if activation else (-inf, inf)
        if node.op not in ("conv", "linear", "plane") and all(value.low >= 0 for value in self.inputs(node)):
            low = max(low, 0.0)
        return name, self.scaled(name, low, high)

    def scaled(self, name: str, low: float, high: float) -> QuantizedValue:
        """Choose the scale of a value between these bounds."""
        steps, most = UNSIGNED if low >= 0 else STEPS, self._range(name)
        if name == self.graph.output:
            steps, most = OUTPUT, most * HEADROOM
        scale = most / steps
        self.values[name] = QuantizedValue(scale, *_clamped(low, high, scale, (-steps, steps)))
        return self.values[name]


def _prepared(graph: Graph) -> Graph:
    """Batch norms in the layers before them, or as depthwise convolutions."""
    try:
        shapes(graph)
    except GraphError as error:
        raise ModelError(f"The network does not fit together: {error}") from None
    graph = fold_batch_norms(graph)
    if strange := next((node.op for node in graph.nodes if node.op not in QUANTIZE), None):
        raise ModelError(f"int8 activations have no operation `{strange}`; export this network without them.")
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


def _bounds(activation: Node) -> tuple[float, float]:
    return (0.0, inf) if activation.op == "relu" else bounds(activation)


def _clamped(low: float, high: float, scale: float, limits: tuple[int, int]) -> tuple[int, int]:
    """The integers between two bounds and within the limits."""
    first, last = (float(np.clip(np.rint(bound / scale), *limits)) for bound in (low, high))
    return int(first), int(last)


def _layer(work: _Quantizer, node: Node) -> QuantizedNode:
    (given,), (name, made) = work.inputs(node), work.bounded(node)
    weight = work.array(node, "weight")
    weight = weight[:, :, None] if weight.ndim == 3 else weight
    bias = work.array(node, "bias") if "bias" in node.tensors else np.zeros(len(weight))
    steps, scales = quantize_rows(weight)
    wide = np.maximum(scales.astype(np.float64), np.abs(bias) / (given.scale * MOST_BIAS))
    rows = wide.reshape(-1, *[1] * (weight.ndim - 1))
    steps = np.where(rows > scales.reshape(rows.shape), np.rint(weight / rows), steps).astype(np.int8)
    summands = np.rint(bias / (given.scale * wide))
    most = np.abs(steps.reshape(len(steps), -1).astype(np.int64)).sum(1) * given.most + np.abs(summands)
    if most.max() >= 2**31:
        raise ModelError(
            f"Sums of `{node.output}` do not fit into 32 bits; prune this layer more for int8 activations."
        )
    arrays = _factors(given.scale * wide / made.scale) | {"weight": steps, "bias": summands.astype(np.int32)}
    return QuantizedNode(node.op, node.inputs, name, arrays, node.options)


def _factors(factors: NDArray[np.float64] | Sequence[float]) -> dict[str, NDArray[Any]]:
    pairs = [multiplier_and_shift(float(factor)) for factor in factors]
    return {
        "multiplier": np.array([pair[0] for pair in pairs], np.int32),
        "shift": np.array([pair[1] for pair in pairs], np.uint8),
    }


def _average(work: _Quantizer, node: Node) -> QuantizedNode:
    (given,), (name, made) = work.inputs(node), work.bounded(node)
    window = node.options["kernel"] if node.op == "avg_pool" else work.shapes[node.inputs[0]][1:]
    if given.most * prod(window) >= 2**31:
        raise ModelError(f"The sums of `{node.output}` do not fit into 32 bits.")
    arrays = _factors([given.scale / (made.scale * prod(window))])
    return QuantizedNode(node.op, node.inputs, name, arrays, node.options)


def _sum(work: _Quantizer, node: Node) -> QuantizedNode:
    given, (name, made) = work.inputs(node), work.bounded(node)
    factors = np.array([value.scale / made.scale for value in given])
    plane = work.array(node, "value") / made.scale if node.op == "plane" else np.zeros(1)
    most = sum(value.most * factor for value, factor in zip(given, factors, strict=True)) + np.abs(plane).max()
    shift = min(int(log2(MOST_OF_A_SUM / most)), MULTIPLIER_BITS - 1)
    if shift < 1:
        raise ModelError(f"The inputs of `{node.output}` are too large for its output; calibrate with other images.")
    arrays: dict[str, NDArray[Any]] = {
        "multiplier": np.rint(factors * 2**shift).astype(np.int32),
        "shift": np.array([shift], np.uint8),
    }
    if node.op == "plane":
        arrays["value"] = np.rint(plane * 2**shift).astype(np.int32)
    return QuantizedNode(node.op, node.inputs, name, arrays, node.options)


def _lookup(work: _Quantizer, node: Node) -> QuantizedNode:
    """A table of the function's values for every integer of the input, which say the range of the output too."""
    (given,), operation = work.inputs(node), node.operation
    if given.dtype == "int16":
        raise ModelError(f"`{node.output}` reads the network's output; export this network without int8 activations.")
    x = np.arange(given.low, given.high + 1, dtype=np.float32) * np.float32(given.scale)
    values = np.asarray(operation.compute(work.graph, node, x), np.float64)
    if not np.isfinite(values).all():
        raise ModelError(
            f"`{node.output}` is not finite for every input; export this network without int8 activations."
        )
    made = work.scaled(node.output, float(values.min()), float(values.max()))
    table = np.clip(np.rint(values / made.scale), made.low, made.high).astype(made.dtype)
    return QuantizedNode(node.op, node.inputs, node.output, {"table": table})


def _product(work: _Quantizer, node: Node) -> QuantizedNode:
    if node.options["operator"] != "mul":
        operator = node.options["operator"]
        raise ModelError(f"int8 activations have no operation `arithmetic` with `{operator}`; export without them.")
    (one, two), (name, made) = work.inputs(node), work.bounded(node)
    if one.most * two.most >= 2**31:
        raise ModelError(f"The products of `{node.output}` do not fit into 32 bits.")
    return QuantizedNode(node.op, node.inputs, name, _factors([one.scale * two.scale / made.scale]))


def _concat(work: _Quantizer, node: Node) -> QuantizedNode:
    given, (name, made) = work.inputs(node), work.bounded(node)
    return QuantizedNode(node.op, node.inputs, name, _factors([x.scale / made.scale for x in given]), node.options)


def _activation(work: _Quantizer, node: Node) -> QuantizedNode:
    (given,) = work.inputs(node)
    limits = _clamped(*_bounds(node), given.scale, (given.low, given.high))
    work.values[node.output] = QuantizedValue(given.scale, *limits)
    return QuantizedNode(node.op, node.inputs, node.output)


def _same(work: _Quantizer, node: Node) -> QuantizedNode:
    (work.values[node.output],) = work.inputs(node)
    return QuantizedNode(node.op, node.inputs, node.output, options=node.options)


QUANTIZE: Mapping[str, Callable[[_Quantizer, Node], QuantizedNode]] = MappingProxyType(
    {
        **dict.fromkeys(("conv", "linear", "batch_norm"), _layer),
        **dict.fromkeys(("mean", "avg_pool"), _average),
        **dict.fromkeys(("add", "plane"), _sum),
        **dict.fromkeys(ACTIVATIONS, _activation),
        **dict.fromkeys(SAME, _same),
        "concat": _concat,
        "elementwise": _lookup,
        "arithmetic": _product,
    }
)

"""What operations are in integers: how each is quantized, its exact arithmetic in PyTorch, and its call in C.

`operations` names the rule of each. Their arithmetic is described in `quantized_graph`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf, log2, prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.errors import ModelError
from hypersparse.export.c_kernels import TYPES
from hypersparse.export.c_windows import conv_window, pool_window
from hypersparse.export.quantized_graph import (
    MULTIPLIER_BITS,
    Arrays,
    QuantizedGraph,
    QuantizedNode,
    QuantizedValue,
    clamped,
    factors,
)
from hypersparse_runtime.graph import Node
from hypersparse_runtime.operations.activations import bounds
from hypersparse_runtime.row_quantization import quantize_rows

if TYPE_CHECKING:
    from hypersparse.export.c_int8 import IntegerCalls
    from hypersparse.export.quantization import Quantizer

MOST_OF_A_SUM = 2**30  # of the products of `add` and `plane`
MOST_BIAS = 2**24  # steps; the weights of a channel with a larger one hardly matter and get fewer steps
EXACT_IN_FLOAT32 = 2**24  # sums of whole numbers below it


class IntegerRule(ABC):
    """One operation in integers."""

    bounded: ClassVar[bool] = False  # whether a ReLU or clip behind it is part of it
    signed: ClassVar[bool] = False  # whether its output may be negative where no input is

    def bounds(self, node: Node) -> tuple[float, float] | None:
        """What an activation keeps its output between."""
        return None

    def quantize(self, work: "Quantizer", node: Node) -> QuantizedNode:
        """The node in integers; `work` is told the scale of its output."""
        given, (name, made) = work.inputs(node), work.bounded(node)
        return QuantizedNode(node.op, node.inputs, name, self.arrays(work, node, given, made), node.options)

    def arrays(self, work: "Quantizer", node: Node, given: Sequence[QuantizedValue], made: QuantizedValue) -> Arrays:
        """Its arrays, for inputs and an output of these scales."""
        return {}

    @abstractmethod
    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        """The output's integers, before they are clamped to their range."""

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        """The call of its C function. Names of arrays begin with the prefix."""
        raise NotImplementedError(node.op)


class Rescaled(IntegerRule):
    """Base of sums that become integers of the output by a multiplier and a shift, which channels may have each."""

    bounded = True

    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        sums = self.sums(node, given, network.values[node.inputs[0]].most)
        return requantized(sums, *(by_channel(node, role, sums) for role in ("multiplier", "shift")))

    @abstractmethod
    def sums(self, node: QuantizedNode, given: list[Tensor], most: int) -> Tensor:
        """The sums, of integers whose largest magnitude is `most`."""


class Layer(Rescaled):
    """Base of sums of products with weights."""

    signed = True

    def arrays(self, work: "Quantizer", node: Node, given: Sequence[QuantizedValue], made: QuantizedValue) -> Arrays:
        (x,), weight = given, work.array(node, "weight")
        weight = weight[:, :, None] if weight.ndim == 3 else weight
        bias = work.array(node, "bias") if "bias" in node.tensors else np.zeros(len(weight))
        steps, scales = quantize_rows(weight)
        wide = np.maximum(scales.astype(np.float64), np.abs(bias) / (x.scale * MOST_BIAS))
        rows = wide.reshape(-1, *[1] * (weight.ndim - 1))
        steps = np.where(rows > scales.reshape(rows.shape), np.rint(weight / rows), steps).astype(np.int8)
        summands = np.rint(bias / (x.scale * wide))
        most = np.abs(steps.reshape(len(steps), -1).astype(np.int64)).sum(1) * x.most + np.abs(summands)
        if most.max() >= 2**31:
            said = "do not fit into 32 bits; prune this layer more for int8 activations"
            raise ModelError(f"Sums of `{node.output}` {said}.")
        return factors(x.scale * wide / made.scale) | {"weight": steps, "bias": summands.astype(np.int32)}

    def sums(self, node: QuantizedNode, given: list[Tensor], most: int) -> Tensor:
        weight, (x,) = integers(node, "weight"), given
        largest = int(weight.flatten(1).abs().sum(1).max()) * most
        kind = torch.float32 if largest < EXACT_IN_FLOAT32 else torch.float64  # PyTorch convolves no integers on CPUs
        products = self.products(node, x.to(kind), weight.to(kind)).long()
        return products + by_channel(node, "bias", products)

    @abstractmethod
    def products(self, node: QuantizedNode, x: Tensor, weight: Tensor) -> Tensor:
        """The sums of products."""


class Conv(Layer):
    """A convolution."""

    def products(self, node: QuantizedNode, x: Tensor, weight: Tensor) -> Tensor:
        how = (node.options[name] for name in ("stride", "padding", "dilation", "groups"))
        return functional.conv2d(x, weight, None, *how)

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        writer = calls.writer
        window = writer.window(conv_window(node, node.arrays["weight"].shape, writer.shapes))
        return calls.call("conv", node, window, calls.layer(node, prefix), writer.scratch(node))


class Linear(Layer):
    """A linear layer."""

    def products(self, node: QuantizedNode, x: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(x, weight)

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        (outputs,) = calls.writer.shapes[node.output]
        return calls.call("linear", node, outputs, calls.layer(node, prefix))


class AvgPool(Rescaled):
    """The average of windows, by their sums."""

    def window(self, work: "Quantizer", node: Node) -> Sequence[int]:
        """The sides of a window."""
        sides: Sequence[int] = node.options["kernel"]
        return sides

    def arrays(self, work: "Quantizer", node: Node, given: Sequence[QuantizedValue], made: QuantizedValue) -> Arrays:
        size = prod(self.window(work, node))
        if given[0].most * size >= 2**31:
            raise ModelError(f"The sums of `{node.output}` do not fit into 32 bits.")
        return factors([given[0].scale / (made.scale * size)])

    def sums(self, node: QuantizedNode, given: list[Tensor], most: int) -> Tensor:
        kernel, stride, padding = (node.options[name] for name in ("kernel", "stride", "padding"))
        return functional.avg_pool2d(given[0].double(), kernel, stride, padding, divisor_override=1).round().long()

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        window = calls.writer.window(pool_window(node, calls.writer.shapes))
        return calls.call("avg_pool", node, window, *calls.rescaling(node))


class Mean(AvgPool):
    """The mean of whole images."""

    def window(self, work: "Quantizer", node: Node) -> Sequence[int]:
        return work.shapes[node.inputs[0]][1:]

    def sums(self, node: QuantizedNode, given: list[Tensor], most: int) -> Tensor:
        return given[0].sum((2, 3))

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        channels, *sides = calls.writer.shapes[node.inputs[0]]
        return calls.call("mean", node, channels, prod(sides), *calls.rescaling(node))


class Product(Rescaled):
    """The product of two values."""

    def arrays(self, work: "Quantizer", node: Node, given: Sequence[QuantizedValue], made: QuantizedValue) -> Arrays:
        one, two = given
        if one.most * two.most >= 2**31:
            raise ModelError(f"The products of `{node.output}` do not fit into 32 bits.")
        return factors([one.scale * two.scale / made.scale])

    def quantize(self, work: "Quantizer", node: Node) -> QuantizedNode:
        if (operator := node.options["operator"]) != "mul":
            raise ModelError(f"int8 activations have no operation `arithmetic` with `{operator}`; export without them.")
        return super().quantize(work, node)

    def sums(self, node: QuantizedNode, given: list[Tensor], most: int) -> Tensor:
        return given[0] * given[1]

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        arguments = (*calls.writer.joined(node), *calls.rescaling(node))
        return f"{calls.name('product', *node.inputs, node.output)}({', '.join(map(str, arguments))});"


class Add(IntegerRule):
    """The sum of two values."""

    bounded = True

    def arrays(self, work: "Quantizer", node: Node, given: Sequence[QuantizedValue], made: QuantizedValue) -> Arrays:
        scales = np.array([value.scale / made.scale for value in given])
        plane = work.array(node, "value") / made.scale if node.tensors else np.zeros(1)
        most = sum(value.most * scale for value, scale in zip(given, scales, strict=True)) + np.abs(plane).max()
        shift = min(int(log2(MOST_OF_A_SUM / most)), MULTIPLIER_BITS - 1)
        if shift < 1:
            said = "are too large for its output; calibrate with other images"
            raise ModelError(f"The inputs of `{node.output}` {said}.")
        value = {"value": np.rint(plane * 2**shift).astype(np.int32)} if node.tensors else {}
        multiplier = np.rint(scales * 2**shift).astype(np.int32)
        return {"multiplier": multiplier, "shift": np.array([shift], np.uint8), **value}

    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        multipliers, shift = integers(node, "multiplier"), integers(node, "shift")
        total = sum((x * multiplier for x, multiplier in zip(given, multipliers, strict=True)), torch.tensor(0))
        total = total + integers(node, "value") if "value" in node.arrays else total
        return (total + (1 << (shift - 1))) >> shift

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        writer, merge = calls.writer, calls.merge(node, prefix)
        pointers = ", ".join(writer.pointer(name) for name in (*node.inputs, node.output))
        return f"{calls.name('add', *node.inputs, node.output)}({pointers}, {writer.size(node.output)}, {merge});"


class Plane(Add):
    """The sum of a value and an array."""

    signed = True

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        (x,), writer = node.inputs, calls.writer
        plane = writer.array(f"{prefix}_plane", node.arrays["value"], "int32_t")
        pointers = f"{writer.pointer(x)}, {plane}, {writer.pointer(node.output)}"
        merge = calls.merge(node, prefix)
        return f"{calls.name('plane', x, node.output)}({pointers}, {writer.size(node.output)}, {merge});"


class Clip(IntegerRule):
    """A clip by itself, with the scale of its input; the range of its output does it."""

    def bounds(self, node: Node) -> tuple[float, float]:
        return bounds(node)

    def quantize(self, work: "Quantizer", node: Node) -> QuantizedNode:
        (given,) = work.inputs(node)
        limits = clamped(*self.bounds(node), given.scale, (given.low, given.high))
        work.values[node.output] = QuantizedValue(given.scale, *limits)
        return QuantizedNode(node.op, node.inputs, node.output)

    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        return given[0]

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        return calls.call("clip", node, calls.writer.size(node.output), *calls.limits(node.output))


class Relu(Clip):
    """A ReLU by itself."""

    def bounds(self, node: Node) -> tuple[float, float]:
        return 0.0, inf


class Flatten(IntegerRule):
    """The same integers with other axes; C has nothing to call."""

    def quantize(self, work: "Quantizer", node: Node) -> QuantizedNode:
        (work.values[node.output],) = work.inputs(node)
        return QuantizedNode(node.op, node.inputs, node.output, options=node.options)

    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        return given[0].flatten(1)


class MaxPool(Flatten):
    """The largest integers of windows."""

    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        kernel, stride, padding = (node.options[name] for name in ("kernel", "stride", "padding"))
        return functional.max_pool2d(given[0].float(), kernel, stride, padding).long()

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        window = calls.writer.window(pool_window(node, calls.writer.shapes))
        return calls.writer.call(calls.name("max_pool", node.output), node, window)


class Concat(IntegerRule):
    """Values one behind another, each with its own scale before."""

    def arrays(self, work: "Quantizer", node: Node, given: Sequence[QuantizedValue], made: QuantizedValue) -> Arrays:
        return factors([x.scale / made.scale for x in given])

    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        parts = zip(given, integers(node, "multiplier"), integers(node, "shift"), strict=True)
        return torch.cat([requantized(*part) for part in parts], node.options.get("axis", 0) + 1)

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        if node.options.get("axis", 0):
            raise ModelError("C source joins values along the first axis only; export this network as .hsp or .onnx.")
        writer, made, first = calls.writer, [], 0
        for place, name in enumerate(node.inputs):
            size, function = writer.size(name), calls.name("requantize", name, node.output)
            target = f"{writer.pointer(node.output)} + {first}"
            how = ", ".join(map(str, calls.rescaling(node, place)))
            made.append(f"{function}({writer.pointer(name)}, {target}, {size}, {how});")
            first += size
        return "\n    ".join(made)


class Lookup(IntegerRule):
    """A table of a function's values for every integer of the input, which say the range of the output too."""

    def quantize(self, work: "Quantizer", node: Node) -> QuantizedNode:
        (given,), without = work.inputs(node), "export this network without int8 activations"
        if given.dtype == "int16":
            raise ModelError(f"`{node.output}` reads the network's output; {without}.")
        x = np.arange(given.low, given.high + 1, dtype=np.float32) * np.float32(given.scale)
        values = np.asarray(node.operation.compute(work.graph, node, x), np.float64)
        if not np.isfinite(values).all():
            raise ModelError(f"`{node.output}` is not finite for every input; {without}.")
        made = work.scaled(node.output, float(values.min()), float(values.max()))
        table = np.clip(np.rint(values / made.scale), made.low, made.high).astype(made.dtype)
        return QuantizedNode(node.op, node.inputs, node.output, {"table": table})

    def compute(self, network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
        return integers(node, "table")[given[0] - network.values[node.inputs[0]].low]

    def c_call(self, calls: "IntegerCalls", node: QuantizedNode, prefix: str) -> str:
        writer, (low, _) = calls.writer, calls.limits(node.inputs[0])
        table = writer.array(f"{prefix}_table", node.arrays["table"], TYPES[writer.types[node.output]])
        return calls.call("lookup", node, writer.size(node.output), table, low)


def requantized(sums: Tensor, multiplier: Tensor, shift: Tensor) -> Tensor:
    """(sums * multiplier + 2^(shift - 1)) >> shift, in int64.

    >>> one, two = torch.tensor(1), torch.tensor(2)
    >>> requantized(torch.tensor([-3, -2, -1, 0, 1, 2, 3]), one, one).tolist()  # halves
    [-1, -1, 0, 0, 1, 1, 2]
    """
    return (sums * multiplier + (1 << (shift - 1))) >> shift


def integers(node: QuantizedNode, role: str) -> Tensor:
    """One of its arrays."""
    return torch.from_numpy(node.arrays[role].astype(np.int64))


def by_channel(node: QuantizedNode, role: str, like: Tensor) -> Tensor:
    """An array of a number for each channel of a tensor, or one number for all."""
    return integers(node, role).reshape(-1, *[1] * (like.dim() - 2))

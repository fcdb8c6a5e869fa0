"""What the calls of a `QuantizedGraph` in C share; `integer_rules` has those of each operation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from hypersparse.export.c_windows import conv_window
from hypersparse.export.c_writer import CWriter
from hypersparse.export.quantization import rule_of
from hypersparse.export.quantized_graph import QuantizedGraph, QuantizedNode, QuantizedValue

KINDS: Mapping[str, str] = MappingProxyType({"int8": "i8", "uint8": "u8", "int16": "i16"})
SUM_BYTES = 4


@dataclass(frozen=True, eq=False)
class ConvAdd:
    """A convolution, and the sum of its output and another value: `inputs` are its own and the other."""

    conv: QuantizedNode
    sum: QuantizedNode
    inputs: tuple[str, ...]
    op: str = "conv_add"

    @property
    def output(self) -> str:
        """The name of the sum."""
        return self.sum.output


@dataclass(frozen=True, eq=False)
class IntegerCalls:
    """Writes calls; `values` say the range of each value's integers."""

    writer: CWriter
    values: Mapping[str, QuantizedValue]

    def of(self, node: QuantizedNode | ConvAdd, prefix: str) -> str:
        """The call of one node; names of arrays begin with the prefix."""
        if isinstance(node, ConvAdd):
            return _conv_add(self, node, prefix)
        return rule_of(node.op).c_call(self, node, prefix)

    def name(self, function: str, *names: str) -> str:
        """A function for values of these types."""
        return "_".join([function, *(self.writer.types[name] for name in names)])

    def call(self, function: str, node: QuantizedNode, *arguments: object) -> str:
        """A call with the node's first input, its output and more arguments."""
        return self.writer.call(self.name(function, node.inputs[0], node.output), node, *arguments)

    def limits(self, name: str) -> tuple[int, int]:
        """The range of a value."""
        return self.values[name].low, self.values[name].high

    def layer(self, node: QuantizedNode, prefix: str) -> str:
        """Write a layer's arrays."""
        weight, bias, multiplier, shift = (node.arrays[role] for role in ("weight", "bias", "multiplier", "shift"))
        arrays = (
            *self.writer.layer_arrays(prefix, weight, "int8_t"),
            self.writer.array(f"{prefix}_bias", bias, "int32_t"),
            self.writer.array(f"{prefix}_multiplier", multiplier, "int32_t"),
            self.writer.array(f"{prefix}_shift", shift, "uint8_t"),
        )
        return self.writer.struct("layer_t", prefix, (*arrays, *self.limits(node.output)))

    def merge(self, node: QuantizedNode, prefix: str, *, swapped: bool = False) -> str:
        """Write how a sum is scaled; `swapped` if its second input comes first."""
        mine, *other = (int(number) for number in node.arrays["multiplier"])
        if swapped:
            mine, *other = (*other, mine)
        sizes = (mine, *(other or [1]), int(node.arrays["shift"][0]), *self.limits(node.output))
        return self.writer.struct("merge_t", f"{prefix}_sum", sizes)

    def rescaling(self, node: QuantizedNode, place: int = 0) -> tuple[int, ...]:
        """One multiplier and its shift, and the output's range."""
        pair = (int(node.arrays[role][place]) for role in ("multiplier", "shift"))
        return (*pair, *self.limits(node.output))


def scratch_bytes(node: QuantizedNode | ConvAdd, shape: tuple[int, ...]) -> int:
    """What the node's function needs besides its values: a convolution the sums of one channel."""
    return SUM_BYTES * prod(shape[1:]) if node.op in ("conv", "conv_add") else 0


def _conv_add(calls: IntegerCalls, node: ConvAdd, prefix: str) -> str:
    (x, other), writer = node.inputs, calls.writer
    sizes = conv_window(replace(node.conv, inputs=(x,)), node.conv.arrays["weight"].shape, writer.shapes)
    layer = calls.layer(node.conv, prefix)
    merge = calls.merge(node.sum, prefix, swapped=node.sum.inputs[1] == node.conv.output)
    pointers = (writer.pointer(name) for name in (x, other, node.output))
    arguments = (*pointers, writer.window(sizes), layer, merge, writer.scratch(node))
    return f"{calls.name('conv_add', x, other, node.output)}({', '.join(arguments)});"


def kinds_of(network: QuantizedGraph) -> dict[str, str]:
    """The type of each value's integers in C."""
    return {name: KINDS[value.dtype] for name, value in network.values.items()}

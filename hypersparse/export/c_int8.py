"""The calls of a `QuantizedGraph` in C, operation by operation; `integer_reference` has the same arithmetic."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from hypersparse.errors import ModelError
from hypersparse.export.c_kernels import TYPES
from hypersparse.export.c_views import joint_views
from hypersparse.export.c_windows import conv_window, pool_window
from hypersparse.export.c_writer import CWriter
from hypersparse.export.quantization import QuantizedGraph, QuantizedNode, QuantizedValue
from hypersparse_runtime.views import View

KINDS: Mapping[str, str] = MappingProxyType({"int8": "i8", "uint8": "u8", "int16": "i16"})
IN_PLACE = ("add", "plane", "relu", "clip", "elementwise", "arithmetic")
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
        return CALLS[node.op](self, node, prefix)

    def name(self, function: str, *names: str) -> str:
        """A function for values of these types."""
        return "_".join([function, *(self.writer.types[name] for name in names)])

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


def _conv(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    (x,), writer = node.inputs, calls.writer
    window = writer.window(conv_window(node, node.arrays["weight"].shape, writer.shapes))
    layer = calls.layer(node, prefix)
    return writer.call(calls.name("conv", x, node.output), node, window, layer, writer.scratch(node))


def _conv_add(calls: IntegerCalls, node: ConvAdd, prefix: str) -> str:
    (x, other), writer = node.inputs, calls.writer
    sizes = conv_window(replace(node.conv, inputs=(x,)), node.conv.arrays["weight"].shape, writer.shapes)
    layer = calls.layer(node.conv, prefix)
    merge = calls.merge(node.sum, prefix, swapped=node.sum.inputs[1] == node.conv.output)
    pointers = (writer.pointer(name) for name in (x, other, node.output))
    arguments = (*pointers, writer.window(sizes), layer, merge, writer.scratch(node))
    return f"{calls.name('conv_add', x, other, node.output)}({', '.join(arguments)});"


def _linear(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    (outputs,) = calls.writer.shapes[node.output]
    function = calls.name("linear", node.inputs[0], node.output)
    return calls.writer.call(function, node, outputs, calls.layer(node, prefix))


def _mean(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    channels, *sides = calls.writer.shapes[node.inputs[0]]
    function = calls.name("mean", node.inputs[0], node.output)
    return calls.writer.call(function, node, channels, prod(sides), *calls.rescaling(node))


def _avg_pool(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    window = calls.writer.window(pool_window(node, calls.writer.shapes))
    function = calls.name("avg_pool", node.inputs[0], node.output)
    return calls.writer.call(function, node, window, *calls.rescaling(node))


def _max_pool(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    window = calls.writer.window(pool_window(node, calls.writer.shapes))
    return calls.writer.call(calls.name("max_pool", node.output), node, window)


def _add(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    x, other = node.inputs
    writer, merge = calls.writer, calls.merge(node, prefix)
    pointers = ", ".join(writer.pointer(name) for name in (x, other, node.output))
    return f"{calls.name('add', x, other, node.output)}({pointers}, {writer.size(node.output)}, {merge});"


def _plane(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    (x,), writer = node.inputs, calls.writer
    plane = writer.array(f"{prefix}_plane", node.arrays["value"], "int32_t")
    pointers = f"{writer.pointer(x)}, {plane}, {writer.pointer(node.output)}"
    merge = calls.merge(node, prefix)
    return f"{calls.name('plane', x, node.output)}({pointers}, {writer.size(node.output)}, {merge});"


def _concat(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
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


def _lookup(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    (x,), writer = node.inputs, calls.writer
    table = writer.array(f"{prefix}_table", node.arrays["table"], TYPES[writer.types[node.output]])
    function, (low, _) = calls.name("lookup", x, node.output), calls.limits(x)
    return writer.call(function, node, writer.size(node.output), table, low)


def _product(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    writer, shape = calls.writer, calls.writer.shapes[node.output]
    views = joint_views([View.whole(name, writer.shapes[name]).expanded(shape) for name in node.inputs])
    pointers = [writer.pointer(name) for name in (*node.inputs, node.output)]
    arguments = (*pointers, *(writer.view(view) for view in views), *calls.rescaling(node))
    return f"{calls.name('product', *node.inputs, node.output)}({', '.join(map(str, arguments))});"


def _clip(calls: IntegerCalls, node: QuantizedNode, prefix: str) -> str:
    function = calls.name("clip", node.inputs[0], node.output)
    return calls.writer.call(function, node, calls.writer.size(node.output), *calls.limits(node.output))


CALLS: Mapping[str, Callable[[IntegerCalls, QuantizedNode, str], str]] = MappingProxyType(
    {
        "conv": _conv,
        "linear": _linear,
        "mean": _mean,
        "avg_pool": _avg_pool,
        "max_pool": _max_pool,
        "add": _add,
        "plane": _plane,
        "concat": _concat,
        "elementwise": _lookup,
        "arithmetic": _product,
        "relu": _clip,
        "clip": _clip,
    }
)


def kinds_of(network: QuantizedGraph) -> dict[str, str]:
    """The type of each value's integers in C."""
    return {name: KINDS[value.dtype] for name, value in network.values.items()}

"""Sums, concatenations and flattening in PyTorch and C."""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, fx

from hypersparse.export import integer_rules
from hypersparse.export.aten_call import Call
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.graph import Node


def _is_plain_sum(call: Call) -> bool:
    """Whether nothing is scaled and the first value is not broadcast."""
    return bool(call.arguments["alpha"] == 1 and call.input_shape() == call.shape())


class Add(TorchOperation):
    """`+` of two values."""

    name, c_in_place, int8 = "add", True, integer_rules.Add()
    calls = ("add.Tensor",)

    def from_aten(self, call: Call) -> Node | None:
        parts = (call.arguments["self"], call.arguments["other"])
        both = all(isinstance(part, fx.Node) and part in call.state.values for part in parts)
        if not _is_plain_sum(call) or not both or call.shape(parts[0]) != call.shape(parts[1]):
            return None
        return Node(self.name, tuple(call.state.values[part] for part in parts), call.output)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0] + inputs[1]

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        x, y = (writer.pointer(name) for name in node.inputs)
        return f"add({x}, {y}, {writer.pointer(node.output)}, {writer.size(node.output)});"


class Plane(TorchOperation):
    """`+` of a value and a parameter of its shape."""

    name, c_in_place, int8 = "plane", True, integer_rules.Plane()
    calls = ("add.Tensor",)

    def from_aten(self, call: Call) -> Node | None:
        second = call.arguments["other"]
        if not _is_plain_sum(call) or second not in call.state.arrays:
            return None
        return call.made(self.name, {"value": second}) if tuple(second.meta["val"].shape) == call.shape() else None

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0] + tensors["value"]

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        value = writer.array(f"{prefix}_plane", writer.tensors[node.tensors["value"]])
        pointers = (writer.pointer(node.inputs[0]), value, writer.pointer(node.output))
        return f"add({', '.join(pointers)}, {writer.size(node.output)});"


class Concat(TorchOperation):
    """`torch.cat` of channels."""

    name, int8 = "concat", integer_rules.Concat()
    calls = ("cat.default", "concat.default", "concatenate.default")

    def from_aten(self, call: Call) -> Node | None:
        parts, sides = call.arguments["tensors"], len(call.shape()) + 1
        alike = sides in (2, 4) and all(len(call.shape(part)) + 1 == sides for part in parts)
        if not alike or call.arguments["dim"] % sides != 1:
            return None
        return Node(self.name, tuple(call.state.values[part] for part in parts), call.output)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat(inputs, 1 + node.options.get("axis", 0))

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        axis = node.options.get("axis", 0)
        rows, apart = prod(writer.shapes[node.output][:axis]), prod(writer.shapes[node.output][axis:])
        calls, first = [], 0
        for name in node.inputs:
            size = prod(writer.shapes[name][axis:])
            target = f"{writer.pointer(node.output)} + {first}"
            calls.append(f"copy_rows({writer.pointer(name)}, {target}, {rows}, {size}, {apart});")
            first += size
        return "\n    ".join(calls)


class Flatten(TorchOperation):
    """`nn.Flatten`, `view` and `reshape` to vectors."""

    name, c_view, int8 = "flatten", True, integer_rules.Flatten()
    calls = ("flatten.using_ints", "view.default", "reshape.default")

    def from_aten(self, call: Call) -> Node | None:
        before, after = call.input_shape(), call.shape()
        batch = call.node.args[0].meta["val"].shape[0], call.node.meta["val"].shape[0]  # type: ignore[union-attr]
        if len(after) != 1 or batch[0] != batch[1] or len(before) < 1:
            return None
        return call.made(self.name)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].flatten(1)

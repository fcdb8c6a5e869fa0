"""Activations in PyTorch and C."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.export import integer_rules
from hypersparse.export.aten_call import Call
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.graph import Node
from hypersparse_runtime.operations.activations import MAX_BOUND, bounds


class Relu(TorchOperation):
    """`nn.ReLU`."""

    name, c_in_place, int8 = "relu", True, integer_rules.Relu()
    calls = ("relu.default",)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.relu(inputs[0])


def bounds_of(call: Call) -> dict[str, float] | None:
    """The options of a clip for a call; None if it has no bounds or other ones than a clip may have."""
    given = call.arguments
    low, high = given.get("min_val", given.get("min")), given.get("max_val", given.get("max"))
    if call.name == "aten.relu6.default":
        low, high = 0.0, 6.0
    both = {name: float(bound) for name, bound in (("low", low), ("high", high)) if bound is not None}
    usable = all(abs(bound) <= MAX_BOUND for bound in both.values())  # infinity and NaN are not
    return both if both and usable and both.get("low", -MAX_BOUND) <= both.get("high", MAX_BOUND) else None


class Clip(TorchOperation):
    """`nn.ReLU6`, `nn.Hardtanh` and `torch.clamp` between numbers."""

    name, c_in_place, int8 = "clip", True, integer_rules.Clip()
    calls = tuple(f"{name}.default" for name in ("relu6", "hardtanh", "clamp", "clip", "clamp_min", "clamp_max"))

    def from_aten(self, call: Call) -> Node | None:
        both = bounds_of(call)
        return None if both is None else call.made(self.name, {}, **both)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.clamp(inputs[0], *bounds(node))

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        return writer.call(self.name, node, writer.size(node.output), *(writer.number(bound) for bound in bounds(node)))


class Softmax(TorchOperation):
    """`nn.Softmax` over the classes."""

    name, floats_only, c_in_place = "softmax", True, True
    calls = ("softmax.int", "_softmax.default")

    def from_aten(self, call: Call) -> Node | None:
        """Softmax over the classes, as the last operation."""
        given = call.arguments
        last = all(user.op == "output" for user in call.node.users)
        same_type = call.node.meta["val"].dtype == call.node.args[0].meta["val"].dtype  # type: ignore[union-attr]
        if not last or not same_type or len(call.shape()) != 1 or given["dim"] % 2 != 1:
            return None
        return call.made(self.name)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.softmax(inputs[0], 1)


class LogSoftmax(Softmax):
    """`nn.LogSoftmax` over the classes."""

    name = "log_softmax"
    calls = ("log_softmax.int", "_log_softmax.default")

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.log_softmax(inputs[0], 1)

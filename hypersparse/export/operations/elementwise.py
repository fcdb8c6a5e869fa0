"""Functions of each element and arithmetic with two values, in PyTorch and C. `hypersparse.export.rules` make them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from hypersparse.export import integer_rules
from hypersparse.export.c_kernels import c_name
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.functions import FUNCTIONS
from hypersparse_runtime.graph import Node
from hypersparse_runtime.operations.elementwise import function_of, operator_of, parameter_of


@dataclass(frozen=True)
class TorchFunction:
    """How PyTorch calls a function of `hypersparse_runtime.functions`."""

    call: str
    parameter: str = ""  # the argument that is the function's parameter, if it has one
    arguments: Mapping[str, Any] = field(default_factory=dict)  # others that it is called with
    fits: Callable[[Mapping[str, Any]], bool] = lambda given: True  # whether a call with these arguments is it

    def compute(self, x: Tensor, parameter: float) -> Tensor:
        """The function in PyTorch."""
        given = {self.parameter: parameter} if self.parameter else {}
        made: Tensor = getattr(torch.ops.aten, self.call)(x, **self.arguments, **given)
        return made


_TANH = {"approximate": "tanh"}
_SPELLED = {  # functions whose calls have arguments; PyTorch calls all others by their own name
    "gelu": TorchFunction("gelu", fits=lambda given: given["approximate"] != "tanh"),
    "gelu_tanh": TorchFunction("gelu", arguments=_TANH, fits=lambda given: given["approximate"] == "tanh"),
    "leaky_relu": TorchFunction("leaky_relu", "negative_slope"),
    "elu": TorchFunction("elu", "alpha", fits=lambda given: given["scale"] == given["input_scale"] == 1),
    "celu": TorchFunction("celu", "alpha"),
    "softplus": TorchFunction("softplus", fits=lambda given: given["beta"] == 1 and given["threshold"] >= 20),
}
TORCH_FUNCTIONS: Mapping[str, TorchFunction] = MappingProxyType(
    {name: _SPELLED.get(name, TorchFunction(name)) for name in FUNCTIONS}
)


class Elementwise(TorchOperation):
    """`nn.Sigmoid`, `nn.GELU`, `nn.Hardswish` and the like."""

    name, c_in_place, int8 = "elementwise", True, integer_rules.Lookup()

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return TORCH_FUNCTIONS[function_of(node)].compute(inputs[0], parameter_of(node))

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        function, size = function_of(node), writer.size(node.output)
        if FUNCTIONS[function].parameter:
            return writer.call(f"apply_with_{c_name(function)}", node, size, writer.number(parameter_of(node)))
        return writer.call(f"apply_{c_name(function)}", node, size)


class Arithmetic(TorchOperation):
    """`+`, `-`, `*`, `/`, `torch.maximum` and `torch.minimum` of two values."""

    name, c_in_place, int8 = "arithmetic", True, integer_rules.Product()

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        made: Tensor = getattr(torch, operator_of(node))(*inputs)
        return made

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        return f"join_{operator_of(node)}({', '.join(writer.joined(node))});"

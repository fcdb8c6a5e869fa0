"""Functions of each element and arithmetic with two values, in PyTorch and C. `hypersparse.export.rules` make them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.export.c_views import joint_views
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import ByRule
from hypersparse_runtime.graph import Node
from hypersparse_runtime.operations.elementwise import WITH_PARAMETER
from hypersparse_runtime.views import View

Function = Callable[[Tensor, float], Tensor]
FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "sigmoid": lambda x, _: torch.sigmoid(x),
        "tanh": lambda x, _: torch.tanh(x),
        "silu": lambda x, _: functional.silu(x),
        "gelu": lambda x, _: functional.gelu(x),
        "gelu_tanh": lambda x, _: functional.gelu(x, approximate="tanh"),
        "hardswish": lambda x, _: functional.hardswish(x),
        "hardsigmoid": lambda x, _: functional.hardsigmoid(x),
        "leaky_relu": lambda x, slope: functional.leaky_relu(x, slope),
        "elu": lambda x, scale: functional.elu(x, scale),
        "softplus": lambda x, _: functional.softplus(x),
        "mish": lambda x, _: functional.mish(x),
        "exp": lambda x, _: torch.exp(x),
        "erf": lambda x, _: torch.erf(x),
        "sqrt": lambda x, _: torch.sqrt(x),
        "rsqrt": lambda x, _: torch.rsqrt(x),
        "log": lambda x, _: torch.log(x),
        "abs": lambda x, _: torch.abs(x),
        "neg": lambda x, _: torch.neg(x),
    }
)
OPERATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
    }
)


class Elementwise(ByRule):
    """`nn.Sigmoid`, `nn.GELU`, `nn.Hardswish` and the like."""

    name, c_in_place = "elementwise", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return FUNCTIONS[str(node.options["function"])](inputs[0], float(node.options.get("parameter", 0.0)))

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        function, size = str(node.options["function"]), writer.size(node.output)
        if function in WITH_PARAMETER:
            return writer.call(function, node, size, writer.number(node.options["parameter"]))
        return writer.call(f"apply_{function.replace('_', '')}", node, size)


class Arithmetic(ByRule):
    """`+`, `-`, `*`, `/`, `torch.maximum` and `torch.minimum` of two values."""

    name, c_in_place = "arithmetic", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return OPERATORS[str(node.options["operator"])](inputs[0], inputs[1])

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        shape = writer.shapes[node.output]
        views = joint_views([View.whole(name, writer.shapes[name]).expanded(shape) for name in node.inputs])
        pointers = [writer.pointer(name) for name in (*node.inputs, node.output)]
        arguments = ", ".join([*pointers, *(writer.view(view) for view in views)])
        return f"join_{node.options['operator']}({arguments});"

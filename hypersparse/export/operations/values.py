"""Operations on values of any shape in PyTorch. `hypersparse.export.rules` translates their calls."""

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.graph import Node

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
REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "mean": lambda x: x.mean(-1),
        "sum": lambda x: x.sum(-1),
        "max": lambda x: x.amax(-1),
        "min": lambda x: x.amin(-1),
    }
)


class ByRule(TorchOperation):
    """An operation that rules create. C source has no function for it."""

    calls, in_c = (), False


class Elementwise(ByRule):
    """`nn.Sigmoid`, `nn.GELU`, `nn.Hardswish` and the like."""

    name = "elementwise"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return FUNCTIONS[str(node.options["function"])](inputs[0], float(node.options.get("parameter", 0.0)))


class Arithmetic(ByRule):
    """`+`, `-`, `*`, `/`, `torch.maximum` and `torch.minimum` of two values."""

    name = "arithmetic"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return OPERATORS[str(node.options["operator"])](inputs[0], inputs[1])


class Reshape(ByRule):
    """`reshape`, `view`, `unsqueeze` and the like."""

    name = "reshape"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].reshape(len(inputs[0]), *node.options["shape"])


class Permute(ByRule):
    """`permute` and `transpose`."""

    name = "permute"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].permute(0, *(axis + 1 for axis in node.options["order"]))


class Slice(ByRule):
    """Slices, `select`, `narrow`, and the pieces of `split`, `chunk` and `unbind`."""

    name = "slice"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        axis, start, length, step = (node.options[name] for name in ("axis", "start", "length", "step"))
        last = start + (length - 1) * step
        part = slice(min(start, last), max(start, last) + 1, abs(step))
        made = inputs[0][(slice(None),) * (axis + 1) + (part,)]
        return made if step > 0 else made.flip(axis + 1)


class Expand(ByRule):
    """`expand` and `repeat`."""

    name = "expand"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].expand(len(inputs[0]), *node.options["shape"])


class Constant(ByRule):
    """A value that does not depend on the input: class tokens, positions, masks."""

    name = "constant"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return tensors["value"].expand(len(inputs[0]), *tensors["value"].shape)


class Embedding(ByRule):
    """`nn.Embedding`."""

    name = "embedding"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.embedding(inputs[0].long(), tensors["weight"])


class TokenLinear(ByRule):
    """`nn.Linear` on the last of several axes."""

    name, costs_as, floats_only = "token_linear", "linear", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.linear(inputs[0], tensors["weight"], tensors.get("bias"))


class LayerNorm(ByRule):
    """`nn.LayerNorm`."""

    name, floats_only = "layer_norm", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        arrays = (tensors.get("weight"), tensors.get("bias"))
        return functional.layer_norm(inputs[0], inputs[0].shape[-1:], *arrays, node.options["epsilon"])


class GroupNorm(ByRule):
    """`nn.GroupNorm` and `nn.InstanceNorm2d`."""

    name, floats_only = "group_norm", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        arrays = (tensors.get("weight"), tensors.get("bias"))
        return functional.group_norm(inputs[0], node.options["groups"], *arrays, node.options["epsilon"])


class Reduce(ByRule):
    """`mean`, `sum`, `amax` and `amin` over some axes."""

    name = "reduce"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return REDUCTIONS[str(node.options["function"])](inputs[0])


class SoftmaxLast(ByRule):
    """`nn.Softmax` over an axis of a value of several."""

    name, floats_only = "softmax_last", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.softmax(inputs[0], -1)


class MatMul(ByRule):
    """`@` of two values, as in attention."""

    name, costs_as, floats_only = "matmul", "matmul", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        product = inputs[0] @ inputs[1]
        return product if node.options["scale"] == 1 else product * node.options["scale"]


class ConvTranspose(ByRule):
    """`nn.ConvTranspose2d` and `nn.ConvTranspose1d`."""

    name, costs_as, floats_only = "conv_transpose", "conv_transpose2d", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        how = (node.options[name] for name in names)
        return functional.conv_transpose2d(inputs[0], tensors["weight"], tensors.get("bias"), *how)


class Resize(ByRule):
    """`nn.Upsample` and `functional.interpolate`, nearest and bilinear."""

    name = "resize"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        size, scale = list(node.options["size"]), node.options["scale"]
        if node.options["mode"] == "nearest":
            made: Tensor = torch.ops.aten.upsample_nearest2d.vec(inputs[0], *_sizes(inputs[0], size, scale))
            return made
        size_or_none, scale_or_none = _sizes(inputs[0], size, scale)
        corners = bool(node.options["align_corners"])
        wide: Tensor = torch.ops.aten.upsample_bilinear2d.vec(inputs[0], size_or_none, corners, scale_or_none)
        return wide


def _sizes(x: Tensor, size: list[int], scale: tuple[float, float]) -> tuple[list[int] | None, list[float] | None]:
    """The target size, or the scale if it differs from the ratio of the sizes: PyTorch takes one of them."""
    usual = tuple(new / old for new, old in zip(size, x.shape[2:], strict=True))
    return (size, None) if usual == tuple(scale) else (None, list(scale))


class AdaptivePool(ByRule):
    """`nn.AdaptiveAvgPool2d` to a size that does not divide the image's."""

    name, floats_only = "adaptive_pool", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.adaptive_avg_pool2d(inputs[0], node.options["size"])


class Lstm(ByRule):
    """A layer of `nn.LSTM` in one direction."""

    name, floats_only = "lstm", True

    def work(self, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> int:
        """Multiplications."""
        return prod(inputs[0].shape[:2]) * sum(array.numel() for array in tensors.values())

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        roles = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        params = [tensors[role] for role in roles[:2]]
        if "bias_ih" in tensors or "bias_hh" in tensors:
            params += [tensors.get(role, params[1].new_zeros(len(params[1]))) for role in roles[2:]]
        x = inputs[0].flip(1) if node.options["reverse"] else inputs[0]
        made = self._run(x, x.new_zeros(1, len(x), params[1].shape[1]), params)
        return made.flip(1) if node.options["reverse"] else made

    def _run(self, x: Tensor, state: Tensor, params: list[Tensor]) -> Tensor:
        made: Tensor = torch.lstm(x, [state, state], params, len(params) > 2, 1, 0.0, False, False, True)[0]
        return made


class Gru(Lstm):
    """A layer of `nn.GRU` in one direction."""

    name = "gru"

    def _run(self, x: Tensor, state: Tensor, params: list[Tensor]) -> Tensor:
        made: Tensor = torch.gru(x, state, params, len(params) > 2, 1, 0.0, False, False, True)[0]
        return made

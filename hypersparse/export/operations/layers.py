"""Layers in PyTorch and C: convolution, linear layer and batch norm."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.export import integer_rules
from hypersparse.export.aten_call import Call, int_pair
from hypersparse.export.c_windows import conv_window
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.graph import Graph, Node
from hypersparse_runtime.names import MADE

LAYER_ROLES = ("weight", "bias")
MAX_COPIED = 2**24  # numbers that a convolution of constants copies at once; 128 MB
ROLES = MappingProxyType({"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"})


class Conv(TorchOperation):
    """`nn.Conv2d`."""

    name, costs_as, floats_only, int8 = "conv", "conv2d", True, integer_rules.Conv()
    calls = ("conv2d.default", "conv2d.padding")

    def from_aten(self, call: Call) -> Node | None:
        given = call.arguments
        if len(call.input_shape()) != 3:
            return None
        stride, dilation = int_pair(given["stride"]), int_pair(given["dilation"])
        padding = given["padding"]
        if isinstance(padding, str):
            sides = given["weight"].meta["val"].shape[2:]
            edges = [step * (int(side) - 1) for step, side in zip(dilation, sides, strict=True)]
            if padding == "same" and any(edge % 2 for edge in edges):
                return None
            padding = [edge // 2 for edge in edges] if padding == "same" else [0, 0]
        options = {"stride": stride, "padding": int_pair(padding), "dilation": dilation, "groups": int(given["groups"])}
        return call.made(self.name, {"weight": given["weight"], "bias": given["bias"]}, **options)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        how = (node.options[name] for name in ("stride", "padding", "dilation", "groups"))
        return functional.conv2d(inputs[0], _kernels(tensors["weight"]), tensors.get("bias"), *how)

    def compute_constant(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        """In blocks of the output, whose windows are all copied."""
        options, weight, bias = node.options, _kernels(tensors["weight"]), tensors.get("bias")
        (down, right), (up, left) = options["stride"], options["padding"]
        x = functional.pad(inputs[0], (left, left, up, up))
        reach = [step * (side - 1) + 1 for step, side in zip(options["dilation"], weight.shape[2:], strict=True)]
        sides = [(x.shape[2] - reach[0]) // down + 1, (x.shape[3] - reach[1]) // right + 1]
        window = weight[0].numel() * options["groups"]
        width = min(sides[1], max(MAX_COPIED // window, 1))
        height = min(sides[0], max(MAX_COPIED // (window * width), 1))
        rows_of_groups = weight.reshape(options["groups"], len(weight) // options["groups"], -1)
        made = x.new_empty(1, len(weight), *sides)
        for top, start in product(range(0, sides[0], height), range(0, sides[1], width)):
            rows, columns = min(height, sides[0] - top), min(width, sides[1] - start)
            lines = slice(top * down, (top + rows - 1) * down + reach[0])
            places = slice(start * right, (start + columns - 1) * right + reach[1])
            # Not conv2d: for 4 million groups it makes as many tensors, 2 GB in 20 s.
            windows = functional.unfold(
                x[:, :, lines, places], weight.shape[2:], dilation=options["dilation"], stride=(down, right)
            )
            product_of_groups = rows_of_groups @ windows.reshape(options["groups"], -1, rows * columns)
            made[:, :, top : top + rows, start : start + columns] = product_of_groups.reshape(1, -1, rows, columns)
        return made if bias is None else made + bias.reshape(-1, 1, 1)

    def module(self, graph: Graph, node: Node, *, flat: bool) -> nn.Module | None:
        shape, options = graph.tensors[node.tensors["weight"]].shape, node.options
        if len(shape) == 3:  # of a sequence, which is an image of one row here
            return None
        return nn.Conv2d(
            shape[1] * options["groups"],
            shape[0],
            (shape[2], shape[3]),
            stride=options["stride"],
            padding=options["padding"],
            dilation=options["dilation"],
            groups=options["groups"],
            bias="bias" in node.tensors,
            device="meta",
        )

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        """With a second input, the sum of that and the output."""
        sizes = conv_window(node, writer.tensors[node.tensors["weight"]].shape, writer.shapes)
        window, layer = writer.window(sizes), c_layer(writer, node, prefix)
        other = writer.pointer(node.inputs[1]) if len(node.inputs) > 1 else "NULL"
        return writer.call("conv", node, window, layer, other)


def _kernels(weight: Tensor) -> Tensor:
    """The weight of a convolution over a sequence, as one over an image of one row."""
    return weight.unsqueeze(2) if weight.dim() == 3 else weight


class Linear(TorchOperation):
    """`nn.Linear`."""

    name, costs_as, floats_only, int8 = "linear", "linear", True, integer_rules.Linear()
    calls = ("linear.default",)

    def from_aten(self, call: Call) -> Node | None:
        if len(call.input_shape()) != 1:
            return None
        return call.made(self.name, {"weight": call.arguments["weight"], "bias": call.arguments["bias"]})

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.linear(inputs[0], tensors["weight"], tensors.get("bias"))

    def module(self, graph: Graph, node: Node, *, flat: bool) -> nn.Module:
        outputs, inputs = graph.tensors[node.tensors["weight"]].shape
        return nn.Linear(inputs, outputs, bias="bias" in node.tensors, device="meta")

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        (outputs,) = writer.shapes[node.output]
        return writer.call("linear", node, outputs, c_layer(writer, node, prefix))


def c_layer(
    writer: CWriter, node: Node, prefix: str, *, weight: NDArray[Any] | None = None, roles: Sequence[str] = LAYER_ROLES
) -> str:
    """Write a layer's kept weights, of its own or in another order, and its bias; returns a pointer to them."""
    own = writer.tensors[node.tensors[roles[0]]] if weight is None else weight
    bias = writer.tensors[node.tensors[roles[1]]] if roles[1] in node.tensors else None
    arrays = (*writer.layer_arrays(prefix, own.astype(np.float32), "float"), writer.array(f"{prefix}_bias", bias))
    return writer.struct("layer_t", prefix, arrays)


class TokenLinear(TorchOperation):
    """`nn.Linear` on the last of several axes."""

    name, costs_as, floats_only = "token_linear", "linear", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.linear(inputs[0], tensors["weight"], tensors.get("bias"))

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        *rows, inputs = writer.shapes[node.inputs[0]]
        sizes = (prod(rows), inputs, writer.shapes[node.output][-1])
        return writer.call("token_linear", node, *sizes, c_layer(writer, node, prefix))


class BatchNorm(TorchOperation):
    """`nn.BatchNorm1d` and `nn.BatchNorm2d` in evaluation mode."""

    name, floats_only, c_in_place, int8 = "batch_norm", True, True, integer_rules.Conv()
    calls = ("_native_batch_norm_legit_no_training.default",)
    module_roles = ROLES

    def from_aten(self, call: Call) -> Node | None:
        """PyTorch's decomposed norm returns three values, of which a getitem selects the first."""
        given, state = call.arguments, call.state
        named = [given[name] for name in ROLES.values() if given[name] is not None]
        whole = all(array in state.arrays for array in named) and len(call.node.meta["val"][0].shape) in (2, 4)
        if not whole or len(call.node.users) != 1:
            return None
        (picked,) = call.node.users
        arrays = {}
        for role, name in ROLES.items():
            if given[name] is not None:
                arrays[role] = state.arrays[given[name]]
                continue
            arrays[role] = f"{MADE}{picked.name}.{role}"  # a norm without weights of its own
            like = state.tensors[state.arrays[given["running_mean"]]]
            state.tensors[arrays[role]] = like * 0 + (1 if role == "weight" else 0)
        source = state.values[call.node.args[0]]  # type: ignore[index]
        return Node(self.name, (source,), picked.name, arrays, {"epsilon": float(given["eps"])})

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        mean, variance = tensors["mean"].detach(), tensors["variance"].detach()
        epsilon = node.options["epsilon"]
        return functional.batch_norm(inputs[0], mean, variance, tensors["weight"], tensors["bias"], eps=epsilon)

    def module(self, graph: Graph, node: Node, *, flat: bool) -> nn.Module:
        channels = len(graph.tensors[node.tensors["weight"]])
        kind = nn.BatchNorm1d if flat else nn.BatchNorm2d
        norm = kind(channels, eps=node.options["epsilon"], device="meta")
        norm.num_batches_tracked = torch.tensor(0)
        return norm

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        gain, shift, mean, variance = (np.asarray(writer.tensors[node.tensors[role]], np.float64) for role in ROLES)
        scale = gain / np.sqrt(variance + node.options["epsilon"])
        channels, *sides = writer.shapes[node.output]
        scales = writer.array(f"{prefix}_scale", scale.astype(np.float32))
        shifts = writer.array(f"{prefix}_shift", (shift - mean * scale).astype(np.float32))
        return writer.call("scale", node, channels, prod(sides), scales, shifts)

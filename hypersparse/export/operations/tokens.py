"""Operations over the last axis in PyTorch and C: norms, products, softmax, reductions."""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.errors import ModelError
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.functions import REDUCTIONS
from hypersparse_runtime.graph import Node
from hypersparse_runtime.operations.tokens import reduction_of


def rows_and_length(writer: CWriter, name: str) -> tuple[int, int]:
    """The count and the length of a value's last axes."""
    *rows, length = writer.shapes[name]
    return prod(rows), length


class Norm(TorchOperation):
    """Base of norms with a gain and a shift."""

    floats_only = True

    def _c_arrays(self, writer: CWriter, node: Node, prefix: str) -> list[str]:
        arrays = ((role, node.tensors.get(role)) for role in ("weight", "bias"))
        pointers = [writer.array(f"{prefix}_{role}", writer.tensors[name] if name else None) for role, name in arrays]
        return [*pointers, writer.number(node.options["epsilon"])]


class LayerNorm(Norm):
    """`nn.LayerNorm`."""

    name, c_in_place = "layer_norm", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        arrays = (tensors.get("weight"), tensors.get("bias"))
        return functional.layer_norm(inputs[0], inputs[0].shape[-1:], *arrays, node.options["epsilon"])

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        sizes = rows_and_length(writer, node.inputs[0])
        return writer.call("layer_norm", node, *sizes, *self._c_arrays(writer, node, prefix))


class GroupNorm(Norm):
    """`nn.GroupNorm` and `nn.InstanceNorm2d`."""

    name, c_in_place = "group_norm", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        arrays = (tensors.get("weight"), tensors.get("bias"))
        return functional.group_norm(inputs[0], node.options["groups"], *arrays, node.options["epsilon"])

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        (channels, *sides), groups = writer.shapes[node.output], int(node.options["groups"])
        sizes = (groups, channels // groups, prod(sides))
        return writer.call("group_norm", node, *sizes, *self._c_arrays(writer, node, prefix))


class Reduce(TorchOperation):
    """`mean`, `sum`, `amax` and `amin` over some axes."""

    name = "reduce"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        made: Tensor = getattr(torch, REDUCTIONS[reduction_of(node)].torch)(inputs[0], -1)
        return made

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        return writer.call(REDUCTIONS[reduction_of(node)].c, node, *rows_and_length(writer, node.inputs[0]))


class SoftmaxLast(TorchOperation):
    """`nn.Softmax` over an axis of a value of several."""

    name, floats_only, c_in_place = "softmax_last", True, True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.softmax(inputs[0], -1)

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        return writer.call("softmax_rows", node, *rows_and_length(writer, node.inputs[0]))


class MatMul(TorchOperation):
    """`@` of two values, as in attention."""

    name, costs_as, floats_only = "matmul", "matmul", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        product = inputs[0] @ inputs[1]
        return product if node.options["scale"] == 1 else product * node.options["scale"]

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        *batches, rows, columns = writer.shapes[node.output]
        first, second = (writer.shapes[name] for name in node.inputs)
        apart = [prod(shape[-2:]) if shape[:-2] == tuple(batches) else 0 for shape in (first, second)]
        if any(step == 0 and prod(shape[:-2]) > 1 for step, shape in zip(apart, (first, second), strict=True)):
            raise ModelError("C source has no `matmul` that repeats some axes only; export this network as .hsp.")
        pointers = [writer.pointer(name) for name in (*node.inputs, node.output)]
        sizes = (prod(batches), rows, first[-1], columns, *apart, writer.number(node.options["scale"]))
        return f"matmul({', '.join(map(str, (*pointers, *sizes)))});"

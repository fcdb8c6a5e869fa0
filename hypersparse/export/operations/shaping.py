"""Operations that name or move elements, in PyTorch and C. `hypersparse.export.rules` make them."""

from collections.abc import Mapping
from typing import cast

from torch import Tensor
from torch.nn import functional

from hypersparse.export.c_views import joint_views
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.graph import Node
from hypersparse_runtime.operations.shaping import Shaping
from hypersparse_runtime.views import View


class Reshape(TorchOperation):
    """`reshape`, `view`, `unsqueeze` and the like."""

    name, c_view = "reshape", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].reshape(len(inputs[0]), *node.options["shape"])


class Moving(TorchOperation):
    """Base of what a view of the input has; C copies it."""

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        view = cast(Shaping, node.operation).seen(node, View.whole("", writer.shapes[node.inputs[0]]))
        assert view is not None  # each axis of a whole value has one stride
        return writer.call("move_f32", node, writer.view(joint_views([view])[0]))


class Permute(Moving):
    """`permute` and `transpose`."""

    name = "permute"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].permute(0, *(axis + 1 for axis in node.options["order"]))


class Slice(Moving):
    """Slices, `select`, `narrow`, and the pieces of `split`, `chunk` and `unbind`."""

    name = "slice"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        axis, start, length, step = (node.options[name] for name in ("axis", "start", "length", "step"))
        last = start + (length - 1) * step
        part = slice(min(start, last), max(start, last) + 1, abs(step))
        made = inputs[0][(slice(None),) * (axis + 1) + (part,)]
        return made if step > 0 else made.flip(axis + 1)


class Expand(Moving):
    """`expand` and `repeat`."""

    name = "expand"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].expand(len(inputs[0]), *node.options["shape"])


class Constant(TorchOperation):
    """A value that does not depend on the input: class tokens, positions, masks."""

    name = "constant"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return tensors["value"].expand(len(inputs[0]), *tensors["value"].shape)


class Embedding(TorchOperation):
    """`nn.Embedding`."""

    name = "embedding"

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.embedding(inputs[0].long(), tensors["weight"])

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        table = writer.tensors[node.tensors["weight"]]
        sizes = (writer.size(node.inputs[0]), table.shape[1], writer.array(f"{prefix}_table", table))
        return writer.call("embedding", node, *sizes)

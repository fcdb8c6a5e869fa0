"""Pooling in PyTorch and C."""

from collections.abc import Mapping
from math import prod
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from hypersparse.export import integer_rules
from hypersparse.export.aten_call import Call, int_pair
from hypersparse.export.c_windows import pool_window
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.graph import Node


def _is_mean_of_images(call: Call, *, keepdim: bool) -> bool:
    given = call.arguments
    if given["keepdim"] != keepdim:
        return False
    whole = {dim % 4 for dim in given["dim"] or ()} == {2, 3}
    return len(call.input_shape()) == 3 and given["dtype"] is None and whole


class Pool(TorchOperation):
    """Base of pooling over windows."""

    c_function: ClassVar[str]

    def _windows(self, call: Call) -> Node | None:
        given = call.arguments
        if len(call.input_shape()) != 3:
            return None
        kernel = int_pair(given["kernel_size"])
        stride = int_pair(given["stride"]) if given["stride"] else kernel
        return call.made(self.name, kernel=kernel, stride=stride, padding=int_pair(given["padding"]))

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        return writer.call(self.c_function, node, writer.window(pool_window(node, writer.shapes)))


class MaxPool(Pool):
    """`nn.MaxPool2d`."""

    name, costs_as, c_function = "max_pool", "max_pool2d", "max_pool_f32"
    int8 = integer_rules.MaxPool()
    calls = ("max_pool2d.default",)

    def from_aten(self, call: Call) -> Node | None:
        given = call.arguments
        if given["ceil_mode"] or int_pair(given["dilation"]) != (1, 1):
            return None
        return self._windows(call)

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        kernel, stride, padding = (node.options[name] for name in ("kernel", "stride", "padding"))
        pooled: Tensor = functional.max_pool2d(inputs[0], kernel, stride, padding)
        return pooled


class AvgPool(Pool):
    """`nn.AvgPool2d`, and adaptive pooling to sides that divide those of the image."""

    name, costs_as, floats_only, c_function = "avg_pool", "avg_pool2d", True, "avg_pool"
    int8 = integer_rules.AvgPool()
    calls = ("avg_pool2d.default", "adaptive_avg_pool2d.default", "mean.dim")

    def from_aten(self, call: Call) -> Node | None:
        if call.name == "aten.mean.dim":
            return self._adjacent(call, call.input_shape()[1:]) if _is_mean_of_images(call, keepdim=True) else None
        if call.name == "aten.adaptive_avg_pool2d.default":
            return self._adaptive(call)
        given = call.arguments
        counts_padding = given["count_include_pad"] or int_pair(given["padding"]) == (0, 0)
        if given["ceil_mode"] or given["divisor_override"] is not None or not counts_padding:
            return None
        return self._windows(call)

    def _adaptive(self, call: Call) -> Node | None:
        shape, sides = call.input_shape(), call.shape()[1:]
        if len(shape) != 3 or any(before % after for before, after in zip(shape[1:], sides, strict=True)):
            return None
        return self._adjacent(call, (shape[1] // sides[0], shape[2] // sides[1]))

    def _adjacent(self, call: Call, kernel: tuple[int, ...]) -> Node | None:
        return call.made(self.name, kernel=kernel, stride=kernel, padding=(0, 0))

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        kernel, stride, padding = (node.options[name] for name in ("kernel", "stride", "padding"))
        return functional.avg_pool2d(inputs[0], kernel, stride, padding)


class Mean(TorchOperation):
    """`mean` over height and width."""

    name, floats_only, int8 = "mean", True, integer_rules.Mean()
    calls = ("mean.dim",)

    def from_aten(self, call: Call) -> Node | None:
        return call.made(self.name) if _is_mean_of_images(call, keepdim=False) else None

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return inputs[0].mean(dim=(2, 3))

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        channels, *sides = writer.shapes[node.inputs[0]]
        return writer.call("mean", node, channels, prod(sides))

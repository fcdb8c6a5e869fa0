"""Transposed convolutions, resizing and adaptive pooling, in PyTorch and C."""

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.export.c_windows import conv_window
from hypersparse.export.c_writer import CWriter
from hypersparse.export.operations.base import TorchOperation
from hypersparse.export.operations.layers import c_layer
from hypersparse_runtime.graph import Node
from hypersparse_runtime.operations import operation
from hypersparse_runtime.operations.resampling import Resampling


class ConvTranspose(TorchOperation):
    """`nn.ConvTranspose2d` and `nn.ConvTranspose1d`."""

    name, costs_as, floats_only = "conv_transpose", "conv_transpose2d", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        how = (node.options[name] for name in names)
        return functional.conv_transpose2d(inputs[0], tensors["weight"], tensors.get("bias"), *how)

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        groups, given = node.options["groups"], writer.tensors[node.tensors["weight"]]
        by_outputs = given.reshape(groups, -1, *given.shape[1:]).swapaxes(1, 2)
        weight = by_outputs.reshape(-1, *by_outputs.shape[2:])
        layer = c_layer(writer, node, prefix, weight=weight)
        return writer.call("conv_transpose", node, writer.window(conv_window(node, weight.shape, writer.shapes)), layer)


class Resampled(TorchOperation):
    """Base of weighted sums over rows and columns, the same for every channel."""

    def c_call(self, writer: CWriter, node: Node, prefix: str) -> str:
        before, after = (writer.shapes[name] for name in (node.inputs[0], node.output))
        matrices = cast(Resampling, operation(node.op)).matrices(node, before, after)
        weights = []
        for matrix, axis in zip(matrices, ("down", "right"), strict=True):
            arrays = writer.layer_arrays(f"{prefix}_{axis}", matrix.astype(np.float32), "float")
            weights.append(writer.struct("layer_t", f"{prefix}_{axis}", (*arrays, "NULL")))
        return writer.call("resample", node, before[0], *before[1:], *after[1:], *weights)


class Resize(Resampled):
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


class AdaptivePool(Resampled):
    """`nn.AdaptiveAvgPool2d` to a size that does not divide the image's."""

    name, floats_only = "adaptive_pool", True

    def compute(self, node: Node, inputs: list[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        return functional.adaptive_avg_pool2d(inputs[0], node.options["size"])

"""2-D convolutions whose weights get their gradient from the kernel in `conv_kernel`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch._functorch.config
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.sparsity.triton_import import import_if_triton
from hypersparse.training.kernels.conv_tiling import Convolution, kernel_takes, tiling_of, worth_it

FIRST_WITH_BF16 = 8  # compute capability
LEAST_SHARED = 160 * 1024  # bytes of a processor: A100 and H100 have them; with less the largest tiles may not fit


def kernel_serves(device: torch.device) -> bool:
    """Whether the kernel can be used there."""
    if device.type != "cuda" or kernel() is None:
        return False
    gpu = torch.cuda.get_device_properties(device)
    return gpu.major >= FIRST_WITH_BF16 and gpu.shared_memory_per_multiprocessor >= LEAST_SHARED


def use_kernel_(network: nn.Module) -> None:
    """Let all convolutions of a network that the kernel takes use it; their names, parameters and hooks stay."""
    for module in network.modules():
        if kernel_takes(module):
            module.__class__ = KernelConv2d


def function_cached() -> AbstractContextManager[None]:
    """While a network is compiled: let torch's cache of traced networks keep those with our own autograd function."""
    kept: AbstractContextManager[None] = torch._functorch.config.patch(
        autograd_cache_allow_custom_autograd_functions=True  # else a warm start of ResNet-32 traces for 4 s again
    )
    return kept


class KernelConv2d(nn.Conv2d):
    """A convolution that differs from its parent only in how the gradient of the weights is computed."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (side, _), (stride, _), padding = self.kernel_size, self.stride, int(self.padding[0])
        if input.dim() != 4 or not worth_it(
            Convolution.of(input, self.out_channels, side=side, stride=stride, padding=padding)
        ):
            outputs: Tensor = super()._conv_forward(input, weight, bias)
            return outputs
        # As autocast would: the weights of a replica are bf16, the bias and what comes in need not be.
        outputs = _Convolve.apply(input.to(weight.dtype), weight, stride, padding)  # type: ignore[no-untyped-call]
        return outputs if bias is None else outputs + bias.to(weight.dtype)[:, None, None]


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.stride, ctx.padding = stride, padding
        return functional.conv2d(images, weight, stride=stride, padding=padding)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        images, weight = ctx.saved_tensors
        stride, padding = ctx.stride, ctx.padding
        of_images = None
        if ctx.needs_input_grad[0]:
            of_images, _, _ = torch.ops.aten.convolution_backward(
                gradients,
                images,
                weight,
                None,
                [stride, stride],
                [padding, padding],
                [1, 1],
                False,
                [0, 0],
                1,
                [True, False, False],
            )
        return of_images, conv_weight_gradient(images, gradients, weight.shape[-1], stride, padding), None, None


@torch.library.custom_op("hypersparse::conv_weight_gradient", mutates_args=())
def conv_weight_gradient(images: Tensor, gradients: Tensor, side: int, stride: int, padding: int) -> Tensor:
    """The gradient [K, C, side, side] of a convolution's weights, channels-last, by the kernel or its twin."""
    made = kernel() if images.is_cuda else None
    if made is None:
        return plain_weight_gradient(images, gradients, side, stride, padding)
    convolution = Convolution.of(images, gradients.shape[1], side=side, stride=stride, padding=padding)
    return made(images, gradients, convolution, tiling_of(convolution))


@conv_weight_gradient.register_fake
def _(images: Tensor, gradients: Tensor, side: int, stride: int, padding: int) -> Tensor:
    shape = (gradients.shape[1], images.shape[1], side, side)
    return torch.empty(shape, dtype=images.dtype, device=images.device, memory_format=torch.channels_last)


def plain_weight_gradient(images: Tensor, gradients: Tensor, side: int, stride: int, padding: int) -> Tensor:
    """What the kernel computes, by unfolding the images and one product in float32."""
    windows = functional.unfold(images.float(), side, padding=padding, stride=stride)
    products = torch.einsum("nkp,nwp->kw", gradients.float().flatten(2), windows)
    shape = (gradients.shape[1], images.shape[1], side, side)
    return products.view(shape).to(images.dtype).contiguous(memory_format=torch.channels_last)


@import_if_triton
def kernel() -> Callable[..., Tensor]:
    """The kernel."""
    from hypersparse.training.kernels.conv_kernel import weight_gradient

    return weight_gradient

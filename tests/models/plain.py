"""Convolutions and norms of a network by the names of their weights, to write its forward pass in so many words."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = Callable[..., Tensor]


def shaken(model: nn.Module) -> nn.Module:
    """The network in evaluation mode, with norms and biases that are not 1 and 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.dim() == 1:
                low = 0.5 if "var" in name or "weight" in name else -0.5
                tensor.copy_(low + torch.rand(tensor.shape, generator=generator))
    return model.eval()


def layers_of(model: nn.Module) -> tuple[Layer, Layer]:
    """`conv(name, x, stride)` and `norm(name, x)`."""
    tensors = model.state_dict()

    def conv(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = tensors[f"{name}.weight"]
        return functional.conv2d(x, weight, tensors.get(f"{name}.bias"), stride, padding=weight.shape[-1] // 2)

    def norm(name: str, x: Tensor) -> Tensor:
        mean, var, gain, shift = (
            tensors[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * gain + shift

    return conv, norm

"""The gradient of a penalty on all prunable weights, added to the gradients that `backward()` left."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from hypersparse.distributed.shards import local
from hypersparse.sparsity.weights import PrunableWeights

PenaltyOfVector = Callable[[Tensor], Tensor]


def value_and_gradient(penalty: PenaltyOfVector, vector: Tensor) -> tuple[Tensor, Tensor | None]:
    """A penalty of the vector of all weights, and its gradient; None where it does not depend on them."""
    leaf = vector.detach().requires_grad_()
    with torch.enable_grad():
        value = penalty(leaf)
        value.backward()  # type: ignore[no-untyped-call]
    return value.detach(), leaf.grad


def add_penalty_gradient_(weights: PrunableWeights, penalty: PenaltyOfVector, *, scale: Tensor | None = None) -> Tensor:
    """Add the penalty's gradient to the weights' gradients, times `scale` if they are scaled; returns its value."""
    with torch.no_grad():
        vector = weights.vector()
    value, gradient = value_and_gradient(penalty, vector)
    if gradient is not None:
        layers = list(weights.values())
        shapes = [local(layer).shape for layer in layers]
        parts = torch.split(
            gradient if scale is None else gradient * scale.to(gradient), [shape.numel() for shape in shapes]
        )
        add_parts_(layers, (part.view(shape) for part, shape in zip(parts, shapes, strict=True)))
    return value


@torch.no_grad()
def add_parts_(layers: Sequence[Tensor], parts: Iterable[Tensor]) -> None:
    """Add to each layer's gradient its part; frozen layers have none."""
    there: list[Tensor] = []
    added: list[Tensor] = []
    for layer, part in zip(layers, parts, strict=True):
        if layer.requires_grad:
            layer.grad = torch.zeros_like(layer) if layer.grad is None else layer.grad
            there.append(local(layer.grad))
            added.append(part)
    torch._foreach_add_(there, added)

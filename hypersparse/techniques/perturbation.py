"""S2-SAM: sharpness-aware minimization without a second pass (Ji et al., NeurIPS 2024).

Gradients are taken at w + rho * g / |g|, with the gradient g of the previous step, and applied to w.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hypersparse.methods.base import TrainingState
from hypersparse.techniques.averaging import of_layers


@dataclass
class Perturbation:
    """The offset of each trained parameter for the next gradient; zero at first."""

    tensors: list[Tensor]


@dataclass(frozen=True)
class Perturbing:
    """Offsets the weights along the gradient of the previous step while the gradient is computed."""

    radius: float

    def begin(self, state: TrainingState) -> None:
        """Start without an offset."""
        state.memory.set(Perturbation([torch.zeros_like(parameter) for parameter in _trained(state)]))

    @contextmanager
    def around_gradient(self, state: TrainingState) -> Iterator[None]:
        """Wraps the forward and backward pass; afterwards the weights are restored bit for bit."""
        parameters, perturbation = _trained(state), state.recall(Perturbation).tensors
        with torch.no_grad():
            before = [parameter.clone() for parameter in parameters]
            torch._foreach_add_(parameters, perturbation)
        state.weights.apply_mask_()  # dropped weights stay exactly 0.0
        try:
            yield
        finally:
            with torch.no_grad():
                self._follow_(state, parameters, perturbation)
                torch._foreach_copy_(parameters, before)

    def end(self, state: TrainingState) -> None:
        """Drop the offset."""
        state.memory.pop(Perturbation)

    def _follow_(self, state: TrainingState, parameters: list[Tensor], perturbation: list[Tensor]) -> None:
        """Set the offset along the gradients of the kept weights, with length `radius`; zero if not finite."""
        for parameter, tensor in zip(parameters, perturbation, strict=True):
            tensor.zero_() if parameter.grad is None else tensor.copy_(parameter.grad)
        if state.weights.mask is not None:
            state.weights.zero_dropped_(of_layers(state, parameters, perturbation))
        norm = torch.stack([tensor.double().square().sum() for tensor in perturbation]).sum().sqrt()
        usable = norm.isfinite() & (norm > 0)
        for tensor in perturbation:
            factor = (self.radius / norm).to(tensor.dtype)
            tensor.copy_(torch.where(usable, tensor * factor, 0.0))


def _trained(state: TrainingState) -> list[Tensor]:
    return [parameter for parameter in state.weights.model.parameters() if parameter.requires_grad]

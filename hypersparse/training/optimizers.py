"""The optimizer of a recipe."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.recipe import TrainingOptions
from hypersparse.sparsity.triton_import import import_if_triton
from hypersparse.training.flat_memory import FlatMemory


def build(parameters: Iterable[nn.Parameter], options: TrainingOptions, device: torch.device) -> Optimizer:
    """The optimizer of all parameters. As in the paper, weight decay includes norms and biases."""
    # On a GPU the rate is a tensor, so that a captured step sees it change.
    lr = torch.tensor(options.lr, device=device) if device.type == "cuda" else options.lr
    if options.optimizer == "adamw":
        betas = (options.momentum, 0.999)
        return torch.optim.AdamW(parameters, lr=lr, betas=betas, weight_decay=options.weight_decay, fused=True)
    return FlatSGD(
        parameters,
        lr=lr,
        momentum=options.momentum,
        nesterov=options.nesterov,
        weight_decay=options.weight_decay,
        fused=True,
    )


class FlatSGD(torch.optim.SGD):
    """SGD that steps all prunable weights with one kernel if they and their gradients are flat and on a GPU.

    Its state is that of `torch.optim.SGD`, with momentum buffers that are views of one tensor.
    """

    _memory: FlatMemory | None = None
    _moments: tuple[Tensor, list[Tensor]] | None = None

    def use_flat(self, memory: FlatMemory, *, add_penalty: bool) -> None:
        """Step the weights of this memory with one kernel if possible; it may add the penalty's gradient."""
        self._memory = memory
        if add_penalty:
            memory.defer_penalty_gradient_()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Make one step; it also applies the mask where it keeps the memory's copy."""
        memory, kernel = self._memory, sgd_kernel() if self._can_be_flat() else None
        extra = memory.take_penalty_gradient() if memory else None
        if memory is None or memory.values is None or (gradients := memory.gradients) is None or kernel is None:
            if memory and extra is not None:
                memory.add_to_gradients_(extra)
            loss = super().step(closure)
            if memory and memory.copy is not None:
                memory.weights.apply_mask_()
                memory.refresh_(memory.copy)
            return loss
        (group,) = self.param_groups
        options = {name: group[name] for name in ("lr", "momentum", "weight_decay", "nesterov")}
        if memory.copy is not None:
            options |= {"copy": memory.copy, "dropped": memory.weights.dropped}
        kernel(memory.values, gradients, extra, self._flat_moments(memory, memory.values), **options)
        weights = memory.weights.values()
        parts = [weight.grad for weight in weights]
        for weight in weights:
            weight.grad = None  # done; the others follow
        loss = super().step(closure)
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part
        return loss

    def _can_be_flat(self) -> bool:
        flat = self._memory.values if self._memory else None
        return (
            flat is not None and flat.is_cuda and len(self.param_groups) == 1 and self.param_groups[0]["momentum"] > 0
        )

    def _flat_moments(self, memory: FlatMemory, flat: Tensor) -> Tensor:
        """The flat momentum with the values of the optimizer's state: none yet, its views, or a loaded one."""
        if self._moments is None:
            zeros = torch.zeros_like(flat)
            self._moments = zeros, memory.split(zeros)
        moments, parts = self._moments
        for weight, part in zip(memory.weights.values(), parts, strict=True):
            held = self.state[weight].get("momentum_buffer")
            if held is not part:
                part.zero_() if held is None else part.copy_(held)
                self.state[weight]["momentum_buffer"] = part
        return moments


@import_if_triton
def sgd_kernel() -> Callable[..., None]:
    """The kernel."""
    from hypersparse.training.kernels.sgd_kernel import sgd_step_

    return sgd_step_

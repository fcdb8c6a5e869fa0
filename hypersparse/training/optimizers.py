"""The optimizer of a recipe."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.recipe import TrainingOptions
from hypersparse.sparsity.triton_import import import_if_triton
from hypersparse.sparsity.weights import PrunableWeights


def build(parameters: Iterable[nn.Parameter], options: TrainingOptions, device: torch.device) -> Optimizer:
    """Over all parameters: weight decay acts on norms and biases too, as in the paper."""
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
    """SGD that steps all prunable weights by one kernel where they and their gradients lie in one memory on a GPU.

    Its state is that of `torch.optim.SGD`: the momentum buffers are then pieces of one memory too.
    """

    _weights: PrunableWeights | None = None
    _moments: tuple[Tensor, list[Tensor]] | None = None

    def use_flat(self, weights: PrunableWeights, *, defer: bool) -> None:
        """Step these weights by one kernel wherever possible; with `defer` it adds the penalty's gradient too."""
        self._weights = weights
        if defer:
            weights.defer_gathered_gradient_()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Make one step."""
        weights, kernel = self._weights, sgd_kernel() if self._can_be_flat() else None
        extra = weights.take_gathered_gradient() if weights else None
        if weights is None or weights.flat is None or (gradient := weights.flat_gradient) is None or kernel is None:
            if weights and extra is not None:
                weights.add_to_gradients_(extra)
            return super().step(closure)
        (group,) = self.param_groups
        options = {name: group[name] for name in ("lr", "momentum", "weight_decay", "nesterov")}
        kernel(weights.flat, gradient, extra, self._flat_moments(weights, weights.flat), **options)
        places = [weight.grad for weight in weights.values()]
        for weight in weights.values():
            weight.grad = None  # done; the others' turn
        loss = super().step(closure)
        for weight, place in zip(weights.values(), places, strict=True):
            weight.grad = place
        return loss

    def _can_be_flat(self) -> bool:
        flat = self._weights.flat if self._weights else None
        return (
            flat is not None and flat.is_cuda and len(self.param_groups) == 1 and self.param_groups[0]["momentum"] > 0
        )

    def _flat_moments(self, weights: PrunableWeights, flat: Tensor) -> Tensor:
        """The memory of the momentum, with whatever the state holds in it: nothing yet, its pieces, or a loaded one."""
        if self._moments is None:
            memory = torch.zeros_like(flat)
            self._moments = memory, weights.pieces(memory)
        memory, places = self._moments
        for weight, place in zip(weights.values(), places, strict=True):
            held = self.state[weight].get("momentum_buffer")
            if held is not place:
                place.zero_() if held is None else place.copy_(held)
                self.state[weight]["momentum_buffer"] = place
        return memory


@import_if_triton
def sgd_kernel() -> Callable[..., None]:
    """The kernel."""
    from hypersparse.training.kernels.sgd_kernel import sgd_step_

    return sgd_step_

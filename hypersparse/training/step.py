"""One training step: forward, backward, penalty, optimizer, mask."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.methods.task import RunningMean
from hypersparse.sparsifier import Sparsifier
from hypersparse.training.machine import Machine


class EagerStep:
    """A step as PyTorch runs it line by line. Nothing in it waits for the device."""

    def __init__(self, model: nn.Module, sparsifier: Sparsifier, machine: Machine) -> None:
        self.model, self.sparsifier, self.machine = model, sparsifier, machine
        self.device = sparsifier.weights.device
        self.criterion: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
        self.reset()

    def reset(self) -> None:
        """Before an epoch: forget the losses of the last one."""
        self.loss = RunningMean(self.device)
        self.first_bad = torch.full((), torch.inf, device=self.device)  # first step with a loss that is not finite
        self.index = 0

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        sparsifier, optimizer = self.sparsifier, self.sparsifier.state.optimizer
        with self.machine.autocast():
            outputs = self.model(images).float()
            loss = self.criterion(outputs, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        sparsifier.add_penalty_gradient_()
        optimizer.step()
        sparsifier.step()
        sparsifier.observe(outputs, labels)
        self.loss.add(loss, len(labels))
        self.first_bad.clamp_max_(torch.where(loss.detach().isfinite(), torch.inf, float(self.index)))
        self.index += 1

    def state_dict(self) -> dict[str, object]:
        """The losses of this epoch so far."""
        return {"total": self.loss.total.clone(), "count": self.loss.count, "index": self.index}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on in the middle of an epoch."""
        self.reset()
        self.loss.total.copy_(torch.as_tensor(state["total"]))
        self.loss.count, self.index = int(str(state["count"])), int(str(state["index"]))

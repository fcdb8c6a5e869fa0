"""Averages of the weights over the steps of a phase: an exponential moving average, scored instead of the weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hypersparse.errors import LoopError
from hypersparse.methods.base import TrainingState
from hypersparse.methods.task import to_device
from hypersparse.sparsity.eval_mode import eval_mode


@dataclass
class Averages:
    """Averaged parameters of the model in order, and the number of averaged steps."""

    tensors: list[Tensor]
    steps: Tensor


@dataclass
class TeacherAverages(Averages):
    """The averages that become the run's own teacher."""


@dataclass(frozen=True)
class Averaging:
    """average <- average + max(1 - decay, 1 / steps) * (weights - average): a plain mean at first."""

    decay: float
    images: int = 0
    kind: type[Averages] = Averages

    def begin(self, state: TrainingState) -> None:
        """Start with the current weights."""
        if state.given_task is None and any(True for _ in batch_norms(state.weights.model)):
            raise LoopError(
                "Batch norms of averaged weights are re-estimated on training images; pass "
                "`task=Task(criterion, loader)` to hypersparse.attach."
            )
        tensors = [parameter.detach().clone() for parameter in parameters_of(state)]
        state.memory.set(self.kind(tensors, torch.zeros((), device=state.weights.device)))

    @contextmanager
    def around_step(self, state: TrainingState) -> Iterator[None]:
        """Average the weights after the optimizer's step; dropped weights are exactly 0.0 in the average."""
        yield
        weights, averages = state.weights, state.recall(self.kind)
        weights.apply_mask_()  # the optimizer has just moved the dropped ones too
        with torch.no_grad():
            averages.steps += 1
            share = averages.steps.reciprocal().clamp_min_(1 - self.decay)
            changes = torch._foreach_sub(parameters_of(state), averages.tensors)
            torch._foreach_mul_(changes, share)
            torch._foreach_add_(averages.tensors, changes)
            if weights.mask is not None:
                weights.zero_dropped_(of_layers(state, parameters_of(state), averages.tensors))

    @contextmanager
    def in_place(self, state: TrainingState) -> Iterator[None]:
        """Inside the block the network has the averages; afterwards every tensor is restored bit for bit."""
        tensors = [*parameters_of(state), *state.weights.model.buffers()]
        before = [tensor.detach().clone() for tensor in tensors]
        try:
            self.adopt(state)
            yield
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, before, strict=True):
                    tensor.copy_(value)

    def adopt(self, state: TrainingState) -> None:
        """Make the averages the network's weights, and re-estimate its batch norms."""
        averages = state.recall(self.kind)
        with torch.no_grad():
            for parameter, average in zip(parameters_of(state), averages.tensors, strict=True):
                parameter.copy_(average)
        state.weights.apply_mask_()
        reestimate_(state, images=self.images)

    def end(self, state: TrainingState) -> None:
        """Drop the averages."""
        state.memory.pop(self.kind)


def parameters_of(state: TrainingState) -> list[Tensor]:
    """All parameters of the model."""
    return list(state.weights.model.parameters())


def of_layers(
    state: TrainingState, parameters: Sequence[Tensor], tensors: Sequence[Tensor]
) -> list[tuple[str, Tensor]]:
    """The tensors of prunable weights, by layer name."""
    names = {id(weight): name for name, weight in state.weights.items()}
    pairs = zip(parameters, tensors, strict=True)
    return [(names[id(parameter)], tensor) for parameter, tensor in pairs if id(parameter) in names]


def batch_norms(model: nn.Module) -> Iterator[_BatchNorm]:
    """The batch norms with running statistics."""
    return (module for module in model.modules() if isinstance(module, _BatchNorm) and module.running_mean is not None)


def reestimate_(state: TrainingState, *, images: int = 0) -> None:
    """Replace the statistics of all batch norms by means over batches of this many training images; 0: all."""
    model = state.weights.model
    norms = list(batch_norms(model))
    if not norms:
        return
    task, seen = state.task, 0
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad(), eval_mode(model):
        model.training = True  # a pass that is no scoring: nothing compiled for scores may serve it
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a cumulative mean
            norm.training = True
        for inputs, labels in task.training_batches():
            task.forward(model, to_device(inputs, state.weights.device))
            seen += len(labels)
            if images and seen >= images:
                break
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    task.ranks.copy_first_(model.buffers())

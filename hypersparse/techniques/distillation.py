"""Distillation: a loss term that pulls the network's outputs towards those of a teacher."""

import copy
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.methods.base import TrainingState
from hypersparse.sparsity.selection import all_tensors
from hypersparse.techniques.averaging import Averaging, TeacherAverages

Divergence = Literal["forward", "reverse"]


def divergence(outputs: Tensor, targets: Tensor, *, temperature: float, kind: Divergence) -> Tensor:
    """temperature^2 * KL(teacher || network), or with `reverse` KL(network || teacher), a mean over samples.

    >>> same = torch.tensor([[1.0, 2.0]])
    >>> float(divergence(same, same, temperature=2.0, kind="forward"))
    0.0
    """
    network = functional.log_softmax(outputs.float() / temperature, dim=1)
    teacher = functional.log_softmax(targets.float() / temperature, dim=1)
    other, base = (network, teacher) if kind == "forward" else (teacher, network)
    return temperature**2 * functional.kl_div(other, base, log_target=True, reduction="batchmean")


class DistillationLoss(nn.Module):
    """The divergence of a network's outputs from a teacher's on the same inputs, times a factor."""

    def __init__(self, teacher: nn.Module, *, factor: float, temperature: float, kind: Divergence) -> None:
        super().__init__()
        self.teacher = teacher.eval().requires_grad_(False)
        self.factor, self.temperature, self.kind = factor, temperature, kind

    def train(self, mode: bool = True) -> "DistillationLoss":
        """Keep the teacher in evaluation mode."""
        return super().train(False)

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The term for a batch."""
        with torch.no_grad():
            targets = self.teacher(inputs)
        return self.factor * divergence(outputs, targets, temperature=self.temperature, kind=self.kind)


@dataclass
class Teacher:
    """The parameters and buffers of the run's own teacher, by name."""

    tensors: dict[str, Tensor]


@dataclass
class Distilling:
    """Provides the loss term. The teacher is given, or the run's own averaged dense network."""

    factor: float
    temperature: float
    kind: Divergence
    averaging: Averaging
    given: nn.Module | None = None
    loss: DistillationLoss | None = field(default=None, repr=False)  # of this process; built from the memory

    @classmethod
    def of(
        cls, *, factor: float, temperature: float, kind: Divergence, decay: float, given: nn.Module | None
    ) -> "Distilling":
        """A `Distilling` with the averages that become the run's own teacher."""
        averaging = Averaging(decay=decay, kind=TeacherAverages)
        return cls(factor=factor, temperature=temperature, kind=kind, averaging=averaging, given=given)

    def keep_average(self, state: TrainingState) -> None:
        """After the pre-training, its average becomes the teacher."""
        with self.averaging.in_place(state):
            state.memory.set(Teacher(_copies(state.weights.model)))
        self.averaging.end(state)

    def keep_network(self, state: TrainingState) -> None:
        """Without pre-training, the initial trained network becomes the teacher."""
        if state.memory.get(Teacher) is None:
            state.memory.set(Teacher(_copies(state.weights.model)))

    def loss_of(self, state: TrainingState) -> DistillationLoss:
        """The loss term."""
        if self.loss is None:
            teacher = self.given if self.given is not None else _own(state)
            self.loss = DistillationLoss(
                teacher.to(state.weights.device), factor=self.factor, temperature=self.temperature, kind=self.kind
            )
        return self.loss

    def end(self, state: TrainingState) -> None:
        """Drop the teacher."""
        state.memory.pop(Teacher)


def _own(state: TrainingState) -> nn.Module:
    found = state.memory.get(Teacher)
    assert found is not None, "the teacher is there from the end of the pre-training"
    teacher = copy.deepcopy(state.weights.model)
    tensors = all_tensors(teacher)
    with torch.no_grad():
        for name, tensor in found.tensors.items():
            tensors[name].copy_(tensor)
    return teacher


def _copies(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in all_tensors(model).items()}

"""Small networks and data that the tests of several methods share."""

from typing import Any

import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import Method, PrunableWeights, Sparsifier, Task, TrainingState

cross_entropy = nn.functional.cross_entropy


def three_classes(shape: tuple[int, ...] = (6,), *, samples: int = 48) -> list[tuple[Tensor, Tensor]]:
    """Batches of 16 of three classes that can be told apart."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(samples) % 3
    inputs = torch.randn(3, *shape, generator=generator)[labels]
    inputs += 0.3 * torch.randn(inputs.shape, generator=generator)
    return list(zip(inputs.split(16), labels.split(16), strict=True))


def perceptron() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


def sequence_network() -> nn.Sequential:
    """For inputs of two channels and eight moments."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )


def state_of(model: nn.Module, task: Any = None, *, seed: int = 0) -> TrainingState:
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingState(model, optimizer, PrunableWeights(model), given_task=task)


def trained(
    method: Method, model: nn.Module, batches: list[tuple[Tensor, Tensor]], *, epochs: int = 2, **options: Any
) -> Sparsifier:
    """A model trained with a method in a plain loop."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    task = Task(cross_entropy, batches)
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=epochs, task=task, **options)
    for _ in sparsifier.epochs():
        model.train()
        for inputs, labels in batches:
            loss = cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return sparsifier

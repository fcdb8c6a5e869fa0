"""A small network trained with ART, and a task whose scores are told beforehand."""

from typing import Any

import torch
from torch import nn

import hypersparse
from hypersparse import ART, PrunableWeights, Sparsifier, TrainingState
from tests.methods.small import cross_entropy, perceptron, three_classes


class Scripted:
    """A task that scores what it was told to, and writes down what it saw of the model."""

    metric = staticmethod(lambda outputs, labels: torch.tensor(0.0))

    def __init__(self, *scores: float) -> None:
        self.scores = iter(scores)
        self.nonzero: list[int] = []

    def score(self, model: nn.Module) -> float:
        weights = PrunableWeights(model)
        self.nonzero.append(int(weights.vector().count_nonzero()))
        return next(self.scores)


def attached(method: ART, task: Any, epochs: int = 1, **options: Any) -> Sparsifier:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    return hypersparse.attach(model, optimizer, method, epochs=epochs, task=task, **options)


def train_epoch(sparsifier: Sparsifier, *, observe: bool = False) -> None:
    model, optimizer = sparsifier.state.model, sparsifier.state.optimizer
    model.train()
    for inputs, labels in three_classes():
        outputs = model(inputs)
        loss = cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if observe:
            sparsifier.observe(outputs, labels)


def trained(method: ART, task: Any, *, observe: bool = False, epochs: int = 1) -> Sparsifier:
    sparsifier = attached(method, task, epochs)
    for _ in sparsifier.epochs():
        train_epoch(sparsifier, observe=observe)
    return sparsifier


def state_of(task: Any = None) -> TrainingState:
    model = perceptron()
    return TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1), PrunableWeights(model), given_task=task)

"""A network of 108 weights in two layers, 48 samples of three classes, and a loop as a user writes it."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import Method, Sparsifier

STEPS = 3  # in an epoch


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(48) % 3
    inputs = torch.randn(3, 6, generator=generator)[labels] + 0.3 * torch.randn(48, 6, generator=generator)
    return list(zip(inputs.split(16), labels.split(16), strict=True))


def attached(method: Method, *, epochs: int, **options: Any) -> Sparsifier:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    return hypersparse.attach(model, optimizer, method, epochs=epochs, **options)


def train_epoch(sparsifier: Sparsifier, after_step: Callable[[], None] | None = None) -> None:
    """The steps of one epoch."""
    model, optimizer = sparsifier.state.model, sparsifier.state.optimizer
    for inputs, labels in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if after_step is not None:
            after_step()


def epochs_of(sparsifier: Sparsifier, after_step: Callable[[], None] | None = None) -> Iterator[int]:
    """Train the whole plan; yields after every epoch's steps, before it is finished."""
    for epoch in sparsifier.epochs():
        train_epoch(sparsifier, after_step)
        yield epoch


def copy_of(sparsifier: Sparsifier) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in sparsifier.state.model.state_dict().items()}

"""A training loop such as other people write, with a small network: what the tests of the sparsifier share."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import hypersparse
from hypersparse import ART, Sparsifier, Task

cross_entropy = nn.functional.cross_entropy
KEPT = 22  # of 108 at a sparsity of 0.8
PHASES = ["pre-train", "regularize", "fine-tune"]


class Network(nn.Module):
    """A small classifier that is not one of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.norm = nn.BatchNorm1d(12)
        self.last = nn.Linear(12, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.norm(self.first(inputs)).relu())  # type: ignore[no-any-return]


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(48) % 3
    inputs = torch.randn(3, 6, generator=generator)[labels] + 0.3 * torch.randn(48, 6, generator=generator)
    return list(zip(inputs.split(16), labels.split(16), strict=True))


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network()


def sgd(model: nn.Module, lr: float = 0.05) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-3)


def short_art(**options: Any) -> ART:
    given = {"sparsity": 0.8, "pretrain_epochs": 2, "strength": 1e-3, "growth": 1.5, "max_regularized_epochs": 30}
    return ART(**{**given, **options})


def attached(
    model: nn.Module | None = None, optimizer: Optimizer | None = None, method: Any = None, **options: Any
) -> Sparsifier:
    model = network() if model is None else model
    given = {"epochs": 2, "task": Task(cross_entropy, batches()), **options}
    return hypersparse.attach(model, optimizer or sgd(model), method or short_art(), **given)


def train_step(sparsifier: Sparsifier, inputs: Tensor, labels: Tensor) -> None:
    model, optimizer = sparsifier.state.model, sparsifier.state.optimizer
    loss = cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train_epoch(sparsifier: Sparsifier) -> None:
    sparsifier.state.model.train()
    for inputs, labels in batches():
        train_step(sparsifier, inputs, labels)


def epochs_of(sparsifier: Sparsifier) -> Iterator[str]:
    """Train, and stop at the end of every epoch's body with the name of its phase."""
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
        yield sparsifier.phase.name


def is_sparse(sparsifier: Sparsifier, kept: int = KEPT) -> bool:
    zeros = sum(int((weight == 0).sum()) for weight in sparsifier.weights.values())
    return sparsifier.mask is not None and sparsifier.mask.kept == kept and zeros == sparsifier.weights.total - kept


def equal_tensors(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)

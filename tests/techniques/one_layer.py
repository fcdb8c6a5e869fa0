"""A linear layer without bias, trained on gradients that a test gives."""

from typing import Any

import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import Dense, Mask, Method, Sparsifier, Techniques


def one_layer(values: list[float], *, method: Method | None = None, lr: float = 0.1, **options: Any) -> Sparsifier:
    """The layer in the first epoch of a training; options of `Techniques`, and of SGD those that begin with `sgd_`."""
    layer = nn.Linear(len(values), 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([values]))
    of_sgd = {name.removeprefix("sgd_"): options.pop(name) for name in list(options) if name.startswith("sgd_")}
    optimizer = torch.optim.SGD(layer.parameters(), lr=lr, **of_sgd)
    techniques = Techniques(**options)
    sparsifier = hypersparse.attach(layer, optimizer, method or Dense(), epochs=3, techniques=techniques)
    sparsifier.begin_epoch()
    return sparsifier


def weight_of(sparsifier: Sparsifier) -> Tensor:
    return sparsifier.weights["weight"]


def step(sparsifier: Sparsifier, gradient: list[float]) -> list[float]:
    """The weights after a step on this gradient."""
    weight = weight_of(sparsifier)
    weight.grad = torch.tensor([gradient])
    sparsifier.state.optimizer.step()
    return values(sparsifier)


def values(sparsifier: Sparsifier) -> list[float]:
    found: list[float] = weight_of(sparsifier).detach()[0].tolist()
    return found


def mask(sparsifier: Sparsifier, kept: list[bool]) -> None:
    sparsifier.weights.set_mask_(Mask({"weight": torch.tensor([kept])}))

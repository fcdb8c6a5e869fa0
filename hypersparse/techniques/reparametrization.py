"""Weights as products m * w with periodic balancing (PILoT; Sign-In, Gadhikar, Jacobs et al. 2025).

The network always holds the products. They are factored around the optimizer's step: the optimizer updates w, and m
takes an SGD step with the same options.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.errors import OptionError
from hypersparse.methods.base import TrainingState

LEAST_FACTOR = 1e-3  # of sqrt(balance): m never becomes 0, so that w = weight / m exists


@dataclass
class Factors:
    """The factors m and their momentum, by layer."""

    values: list[Tensor]
    momenta: list[Tensor]


@dataclass(frozen=True)
class Factoring:
    """Trains weights as products m * w, with m^2 - w^2 = balance after every balancing."""

    every: int
    balance: float = 1.0

    def begin(self, state: TrainingState) -> None:
        """Balance the factors of the current weights, without momentum."""
        _options_of(state.optimizer)  # says what cannot work before the first step
        weights = list(state.weights.values())
        state.memory.set(
            Factors([torch.ones_like(weight) for weight in weights], [torch.zeros_like(weight) for weight in weights])
        )
        self.rebalance(state)

    def at_epoch_start(self, state: TrainingState) -> None:
        """Balance again every `every` epochs of a phase."""
        if state.epoch and state.epoch % self.every == 0:
            self.rebalance(state)

    @torch.no_grad()
    def rebalance(self, state: TrainingState) -> None:
        """m = sqrt((balance + sqrt(balance^2 + 4 weight^2)) / 2); the products do not change."""
        for weight, factor in zip(state.weights.values(), state.recall(Factors).values, strict=True):
            factor.copy_(((self.balance + (self.balance**2 + 4 * weight.square()).sqrt()) / 2).sqrt())

    @contextmanager
    def around_step(self, state: TrainingState) -> Iterator[None]:
        """Give the optimizer w with its gradient m * g, then step m by its gradient w * g, and multiply."""
        factors, options = state.recall(Factors), _options_of(state.optimizer)
        layers = [
            (weight, weight.grad, factor, momentum, options[id(weight)])
            for weight, factor, momentum in zip(state.weights.values(), factors.values, factors.momenta, strict=True)
            if weight.grad is not None and id(weight) in options
        ]
        slopes = []
        with torch.no_grad():
            for weight, gradient, factor, _, group in layers:
                weight.div_(factor)
                slopes.append(weight * gradient + group["weight_decay"] * factor)
                gradient.mul_(factor)
        yield
        with torch.no_grad():
            for (weight, _, factor, momentum, group), slope in zip(layers, slopes, strict=True):
                momentum.mul_(group["momentum"]).add_(slope)
                change = slope + group["momentum"] * momentum if group["nesterov"] else momentum
                factor.sub_(change * group["lr"]).clamp_min_(LEAST_FACTOR * self.balance**0.5)
                weight.mul_(factor)

    def end(self, state: TrainingState) -> None:
        """Drop the factors; the weights are their products."""
        state.memory.pop(Factors)


def _options_of(optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    """The SGD options of each parameter."""
    found: dict[int, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        if "momentum" not in group or "nesterov" not in group:
            raise OptionError(
                f"`reparametrize` trains the factors by SGD with the optimizer's own options, and "
                f"{type(optimizer).__name__} has none; pass torch.optim.SGD, or leave `reparametrize` out."
            )
        parameters: list[nn.Parameter] = group["params"]
        found |= {id(parameter): group for parameter in parameters}
    return found

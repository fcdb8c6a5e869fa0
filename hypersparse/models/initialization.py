"""Initialization of convolutional networks."""

from typing import Literal

from torch import nn


def initialize_(model: nn.Module, *, fan: Literal["fan_in", "fan_out"]) -> None:
    """Draw Kaiming-normal convolutions and N(0, 0.01²) linear weights, and set every bias to 0.

    Batch norms keep their default of 1 and 0. Random numbers come from torch's global generator; seed it first.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=fan, nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

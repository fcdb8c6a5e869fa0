"""A network that is slow to train as long as a file is there, for tests that must meet a run at work."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hypersparse.models import build as build_known

SECONDS = 0.05  # a step; whoever waits for an epoch looks into the log every half second


class Held(nn.Module):
    """Gives what its network gives, later."""

    def __init__(self, network: nn.Module, file: Path) -> None:
        super().__init__()
        self.network, self.file = network, file

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and self.file.exists():
            time.sleep(SECONDS)
        result: torch.Tensor = self.network(images)
        return result


def build(shape: tuple[int, ...], classes: int, file: str) -> nn.Module:
    return Held(build_known("resnet8", shape=shape, classes=classes, options={"width": 4}), Path(file))


def model(file: Path) -> dict[str, Any]:
    """The table of a recipe for it; the file is made."""
    file.touch()
    return {"name": "tests.training.held:build", "file": str(file)}

"""`eval_mode`: temporary evaluation mode; `inspecting`: a forward pass without side effects."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Set every module to evaluation mode in the block, and restore the modes afterwards."""
    was_training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in was_training.items():
            module.training = training


@contextmanager
def inspecting(model: nn.Module) -> Iterator[None]:
    """As `eval_mode`; afterwards buffers, other attributes of modules and random generators are restored too."""
    kept = {module: (module.__dict__.copy(), module._buffers.copy()) for module in model.modules()}
    try:
        with eval_mode(model), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, (attributes, buffers) in kept.items():
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)

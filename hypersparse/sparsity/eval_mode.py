"""`eval_mode`: a network in evaluation mode for a while; `inspecting`: run for a look that leaves no trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside the block every module is in evaluation mode; afterwards each is as it was."""
    was_training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in was_training.items():
            module.training = training


@contextmanager
def inspecting(model: nn.Module) -> Iterator[None]:
    """The same, and what modules keep of a forward pass (buffers, caches, counts) is forgotten, and so are draws."""
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

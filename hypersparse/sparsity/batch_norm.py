"""`recompute_statistics`: a network whose batch norms have the statistics of what it computes now."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def recompute_statistics(model: nn.Module, passes: Callable[[], None]) -> Iterator[None]:
    """Inside the block batch norms have the plain mean of what they saw in `passes`; afterwards they are as they were.

    `passes` runs the network on some batches, in training mode and without gradients. Buffers are changed in place.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    before = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers(recurse=False)]
    momenta = [norm.momentum for norm in norms]
    was_training = {module: module.training for module in model.modules()}
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over all batches
        model.train()
        try:
            with torch.no_grad():
                passes()
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
            for module, training in was_training.items():
                module.training = training
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)

"""The optimizer of a recipe."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from hypersparse.recipe import TrainingOptions


def build(parameters: Iterable[nn.Parameter], options: TrainingOptions, device: torch.device) -> Optimizer:
    """Over all parameters: weight decay acts on norms and biases too, as in the paper."""
    # On a GPU the rate is a tensor, so that a captured step sees it change.
    lr = torch.tensor(options.lr, device=device) if device.type == "cuda" else options.lr
    if options.optimizer == "adamw":
        betas = (options.momentum, 0.999)
        return torch.optim.AdamW(parameters, lr=lr, betas=betas, weight_decay=options.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=lr,
        momentum=options.momentum,
        nesterov=options.nesterov,
        weight_decay=options.weight_decay,
        fused=True,
    )

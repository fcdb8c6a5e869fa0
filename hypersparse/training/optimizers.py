"""The optimizer of a recipe."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from hypersparse.recipe import TrainingOptions


def build(parameters: Iterable[nn.Parameter], options: TrainingOptions) -> Optimizer:
    """Over all parameters: weight decay acts on norms and biases too, as in the paper."""
    if options.optimizer == "adamw":
        betas = (options.momentum, 0.999)
        return torch.optim.AdamW(
            parameters, lr=options.lr, betas=betas, weight_decay=options.weight_decay, foreach=True
        )
    return torch.optim.SGD(
        parameters,
        lr=options.lr,
        momentum=options.momentum,
        nesterov=options.nesterov,
        weight_decay=options.weight_decay,
        foreach=True,
    )

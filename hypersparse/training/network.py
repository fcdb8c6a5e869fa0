"""The network that a recipe trains."""

from typing import Any

import torch
from torch import nn

from hypersparse import models
from hypersparse.models.narrow import narrowed
from hypersparse.recipe import Recipe
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.weights import PrunableWeights


def build_network(recipe: Recipe, *, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of a recipe with random weights from torch's global generator: seed it first."""
    model = recipe.model
    options = _narrow_options(recipe, shape, classes) if model.narrow else model.options
    return models.build(model.name, shape=shape, classes=classes, options=options, own_code=recipe.own_code)


def channels_last_(model: nn.Module) -> None:
    """Set 2-D convolutions to channels-last, the layout of tensor cores, which avoids copies."""
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


def _narrow_options(recipe: Recipe, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """Options of the dense network with about as many parameters as the sparse one: kept weights, norms, biases."""
    name, options, own_code = recipe.model.name, recipe.model.options, recipe.own_code
    with torch.random.fork_rng(devices=[]):
        full = models.build(name, shape=shape, classes=classes, options=options, own_code=own_code)
    prunable = PrunableWeights(full).total
    others = sum(parameter.numel() for parameter in full.parameters()) - prunable
    parameters = keep_count(prunable, recipe.model.narrow) + others
    return narrowed(name, shape=shape, classes=classes, options=options, parameters=parameters, own_code=own_code)

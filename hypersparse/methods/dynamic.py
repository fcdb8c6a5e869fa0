"""What methods share whose masks change while the network trains."""

from typing import Literal

import torch
from torch import Tensor

from hypersparse.methods.base import TrainingState
from hypersparse.sparsity import budgets
from hypersparse.sparsity.budgets import keep_count
from hypersparse.sparsity.mask import Mask, Scores
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights

Distribution = Literal["uniform", "erk", "literal"]


def budget(weights: PrunableWeights, sparsity: float, distribution: Distribution) -> dict[str, int]:
    """Kept weights by layer: `uniform` and `literal` keep the first whole, and `literal` does not make up for it."""
    totals = {name: weight.numel() for name, weight in weights.items()}
    keep = keep_count(weights.total, sparsity)
    first = list(totals)[: len(totals) > 1]  # of a single layer nothing could be pruned
    if distribution == "erk":
        return budgets.erk({name: tuple(weight.shape) for name, weight in weights.items()}, keep)
    if distribution == "uniform":
        return budgets.uniform(totals, keep, dense=first)
    return {name: total if name in first else keep_count(total, sparsity) for name, total in totals.items()}


def draw_mask_(state: TrainingState, budget: dict[str, int]) -> None:
    """From now on as many weights as the budget says are kept in each layer, at random places."""
    state.weights.set_mask_(Mask.top_by_layer(random_scores(state), budget).to(state.weights.device))


def random_scores(state: TrainingState) -> dict[str, Tensor]:
    """A number in [0, 1) for every weight, drawn from the method's generator."""
    return {name: torch.rand(weight.shape, generator=state.generator) for name, weight in state.weights.items()}


def exchanged(mask: Mask, scores: Scores, growth: Scores, *, fraction: float) -> Mask:
    """In each layer drop this fraction of the kept weights, those with the lowest scores, and grow as many.

    Those grow whose `growth` is largest among all that are not kept, the just dropped included. Layers that have no
    `growth` stay as they are; none changes its count.

    >>> mask = Mask({"a": torch.tensor([True, True, False, False])})
    >>> scores, growth = torch.tensor([2.0, 1.0, 0.0, 0.0]), torch.tensor([9.0, 1.0, 2.0, 3.0])
    >>> exchanged(mask, {"a": scores}, {"a": growth}, fraction=0.5)["a"]
    tensor([ True, False, False,  True])
    """
    layers = dict(mask)
    for name, count in mask.kept_by_layer().items():
        moving, kept = int(fraction * count), mask[name]
        if moving and name in growth:
            staying = _top(scores[name].masked_fill(~kept, -torch.inf), count - moving)
            layers[name] = staying | _top(growth[name].masked_fill(staying, -torch.inf), moving)
    return Mask(layers)


def exchange_(state: TrainingState, growth: Scores, *, fraction: float) -> None:
    """Move that fraction of the kept weights, the smallest ones, to where `growth` is largest; they begin at 0.0."""
    weights = state.weights
    assert weights.mask is not None
    weights.apply_mask_()  # in a user's loop the optimizer has just moved the dropped ones too
    before, after = weights.mask, exchanged(weights.mask, magnitude(weights), growth, fraction=fraction)
    forget_(state, after - before)
    weights.set_mask_(after)


def forget_(state: TrainingState, grown: Mask) -> None:
    """Weights that grow have no past: their momentum becomes zero, whatever the optimizer gathered meanwhile."""
    for name, weight in state.weights.items():
        for value in state.optimizer.state.get(weight, {}).values():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                value.masked_fill_(grown[name], 0.0)


def keep_all(state: TrainingState) -> None:
    """A mask from the first step on: a captured step has one throughout its phase, or none."""
    state.weights.set_mask_(Mask.all_kept(state.weights))


def shrunk(weights: PrunableWeights, keep: int) -> Mask:
    """The `keep` largest weights over all layers, of those that are kept now."""
    scores = magnitude(weights)
    if weights.mask is not None:
        scores = {name: score.masked_fill(~weights.mask[name], -torch.inf) for name, score in scores.items()}
    return Mask.top(scores, keep)


def _top(scores: Tensor, keep: int) -> Tensor:
    return Mask.top({"": scores}, keep)[""]

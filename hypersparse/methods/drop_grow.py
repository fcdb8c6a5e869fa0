"""Functions for methods whose masks change during training."""

import torch
from torch import Tensor

from hypersparse.methods.base import TrainingState
from hypersparse.sparsity.distributions import Distribution
from hypersparse.sparsity.mask import Budget, Mask, Scores
from hypersparse.sparsity.scores import magnitude, random_scores
from hypersparse.sparsity.weights import PrunableWeights

OF_ADAM = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}


def draw_mask_(state: TrainingState, budget: Budget) -> None:
    """Set a random mask with the budget's count in each layer."""
    state.weights.set_mask_(Mask.top_by_layer(random_scores(state.weights, state.generator), budget))


def drop_and_grow(mask: Mask, scores: Scores, growth: Scores, *, fraction: float) -> Mask:
    """In each layer drop this fraction of the kept weights, those with the lowest scores, and grow as many.

    The weights with the largest `growth` grow among all that are not kept, including those just dropped. Layers without
    `growth` do not change; no layer changes its count.

    >>> mask = Mask({"a": torch.tensor([True, True, False, False])})
    >>> scores, growth = torch.tensor([2.0, 1.0, 0.0, 0.0]), torch.tensor([9.0, 1.0, 2.0, 3.0])
    >>> drop_and_grow(mask, {"a": scores}, {"a": growth}, fraction=0.5)["a"]
    tensor([ True, False, False,  True])
    """
    counts = mask.kept_by_layer()
    moving = {name: int(fraction * counts[name]) for name in mask if name in growth}
    moving = {name: count for name, count in moving.items() if count}
    if not moving:
        return mask
    falling = {name: scores[name].masked_fill(~mask[name], -torch.inf) for name in moving}
    staying = Mask.top_by_layer(falling, {name: counts[name] - count for name, count in moving.items()})
    rising = {name: growth[name].masked_fill(staying[name], -torch.inf) for name in moving}
    return Mask({**mask, **(staying | Mask.top_by_layer(rising, moving))})


def drop_and_grow_(state: TrainingState, growth: Scores, *, fraction: float) -> None:
    """Drop this fraction of the kept weights, the smallest ones, and grow as many at 0.0 where `growth` is largest."""
    weights = state.weights
    assert weights.mask is not None
    weights.apply_mask_()  # in a user's loop the optimizer has just moved the dropped ones too
    change_mask_(state, drop_and_grow(weights.mask, magnitude(weights), growth, fraction=fraction))


def change_mask_(state: TrainingState, mask: Mask) -> None:
    """Set another mask and clear the optimizer state of regrown weights."""
    if state.weights.mask is not None:
        reset_state_of_(state, mask - state.weights.mask)
    state.weights.set_mask_(mask)


def decay_(state: TrainingState, weight: Tensor, value: Tensor, *, strength: float) -> None:
    """Add weight decay of this value to a weight's gradient, before the optimizer's step."""
    if weight.grad is not None:
        # A GradScaler leaves gradients scaled for a fused optimizer, which divides them itself.
        scale = getattr(state.optimizer, "grad_scale", None)
        weight.grad.add_(value if scale is None else value * scale, alpha=strength)


def reset_state_of_(state: TrainingState, grown: Mask) -> None:
    """Clear the optimizer state of these weights."""
    for name, weight in state.weights.items():
        for value in _moments(state, weight):
            value.masked_fill_(grown[name], 0.0)


def reset_momentum_(state: TrainingState) -> None:
    """Set all momentum to zero; in place, since a captured step reads it.

    Adam restarts its step count. With the old count it would not correct the bias of the new moments and step too far.
    """
    for parameter, remembered in state.optimizer.state.items():
        for value in _moments(state, parameter):
            value.zero_()
        if "step" in remembered and remembered.keys() <= OF_ADAM:
            remembered["step"] = _zero_(remembered["step"])


def keep_all(state: TrainingState) -> None:
    """Set a mask that keeps all weights: a captured step has a mask in its whole phase, or in none of it."""
    state.weights.set_mask_(Mask.all_kept(state.weights))


def prune_by_magnitude(weights: PrunableWeights, keep: int, distribution: Distribution = "global") -> Mask:
    """The mask of the `keep` largest of the kept weights."""
    return weights.select(magnitude(weights), keep, distribution, among=weights.mask)


def _zero_(count: Tensor | float) -> Tensor | float:
    return count.zero_() if isinstance(count, Tensor) else 0


def _moments(state: TrainingState, parameter: Tensor) -> list[Tensor]:
    values = state.optimizer.state.get(parameter, {}).values()
    return [value for value in values if isinstance(value, Tensor) and value.shape == parameter.shape]

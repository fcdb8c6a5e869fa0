"""ST-3: straight-through gradients and soft thresholds (Vanderschueren, De Vleeschouwer 2023)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from hypersparse.methods.base import (
    DISTRIBUTION_HELP,
    EverySteps,
    Phase,
    PhaseLR,
    PruningMethod,
    Requirements,
    StepRules,
    TrainingState,
)
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution
from hypersparse.sparsity.mask import Mask


@dataclass
class RawWeights:
    """By layer the weights that are trained, and the thresholds that they are used above."""

    values: list[Tensor]
    thresholds: list[Tensor]


@options
class ST3(PruningMethod):
    """Use weights shrunk by a growing threshold, train the weights behind them, and keep the largest in the end."""

    name: ClassVar[str] = "st3"
    citation: ClassVar[str] = (
        "A. Vanderschueren, C. De Vleeschouwer: Are Straight-Through gradients and Soft-Thresholding all you need for "
        "Sparse Training? WACV 2023."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    ramp: float = option(default=0.7, help="When the sparsity is reached, as a fraction of the training.", gt=0, lt=1)
    power: float = option(default=3.0, help="Of the ramp: 3 is a cubic one, that prunes most at the start.", ge=1)
    scale_by_width: bool = option(
        default=False, help="Compare weights times the square root of their layer's inputs, as ST-3 sigma does."
    )
    update_every: int = option(default=20, help="Steps between updates of the mask and the thresholds.", ge=1)

    def plan(self, epochs: int) -> Sequence[Phase]:
        softening = min(epochs, max(1, round(self.ramp * epochs)))
        update = partial(self.threshold, epochs=softening)
        soften = Phase(
            "soften",
            epochs=softening,
            lr=PhaseLR(schedule_epochs=epochs),
            requires=Requirements(weights=self.check),
            on_enter=self.take_weights,
            on_step=EverySteps(update, self.update_every),
            rules=StepRules(around_step=self.straight_through, trainable=all_weights),
            on_exit=self.prune,
        )
        lr = PhaseLR(schedule_epochs=epochs, schedule_start=softening)
        settle = Phase("settle", epochs=epochs - softening, lr=lr)
        return [soften, settle] if settle.epochs else [soften]

    def take_weights(self, state: TrainingState) -> None:
        """Begin with all weights, and thresholds of zero."""
        state.weights.set_mask_(Mask.all_kept(state.weights))
        weights = state.weights.values()
        thresholds = [torch.zeros((), device=state.weights.device) for _ in weights]
        state.memory.set(RawWeights([weight.detach().clone() for weight in weights], thresholds))

    def threshold(self, state: TrainingState, *, epochs: int) -> None:
        """Use as many of the largest raw weights as the ramp keeps now."""
        done, length = state.progress(epochs)
        left = (1 - min(done + 1, length) / length) ** self.power
        final = self.keep(state.weights)
        self.use_largest(state, final + round((state.weights.total - final) * left))

    def prune(self, state: TrainingState) -> None:
        """Keep the largest raw weights, as they are used, from now on."""
        self.use_largest(state, self.keep(state.weights))
        state.memory.pop(RawWeights)

    @torch.no_grad()
    def use_largest(self, state: TrainingState, keep: int) -> None:
        """The mask of the largest raw weights; the largest dropped one of those that compete is the threshold."""
        weights, raw = state.weights, state.recall(RawWeights)
        scales = {name: self.scale(weight) for name, weight in weights.items()}
        scores = {name: value.abs() * scales[name] for name, value in zip(weights, raw.values, strict=True)}
        mask = weights.select(scores, keep, self.distribution)
        dropped = torch.stack([value.masked_fill(mask[name], 0.0).max() for name, value in scores.items()])
        if self.distribution == "global" and weights.limits is None:
            dropped = dropped.max().expand(len(dropped))
        for threshold, largest, scale in zip(raw.thresholds, dropped, scales.values(), strict=True):
            threshold.copy_(largest / scale)  # in place: a captured step knows the address
        weights.set_mask_(mask)
        self.shrink(state)

    def scale(self, weight: Tensor) -> float:
        """The factor on a layer's weights where they are compared with those of other layers."""
        return float(weight[0].numel() ** 0.5) if self.scale_by_width else 1.0

    @contextmanager
    def straight_through(self, state: TrainingState) -> Iterator[None]:
        """Show the optimizer the raw weights, with the gradients of the shrunk ones."""
        raw = state.recall(RawWeights)
        with torch.no_grad():
            for weight, value in zip(state.weights.values(), raw.values, strict=True):
                weight.copy_(value)
        yield
        with torch.no_grad():
            for weight, value in zip(state.weights.values(), raw.values, strict=True):
                value.copy_(weight)
        self.shrink(state)

    def shrink(self, state: TrainingState) -> None:
        """The weights are the raw ones, shrunk by their threshold; what the mask drops is 0.0."""
        raw = state.recall(RawWeights)
        with torch.no_grad():
            for weight, value, threshold in zip(state.weights.values(), raw.values, raw.thresholds, strict=True):
                weight.copy_((value.abs() - threshold).clamp_min_(0.0).copysign_(value))
        state.weights.apply_mask_()


def all_weights(state: TrainingState) -> Mask:
    """All weights learn."""
    return Mask.all_kept(state.weights)

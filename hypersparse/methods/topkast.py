"""Top-KAST: top-k always sparse training (Jayakumar, Pascanu, Rae, Osindero, Elsen 2020)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hypersparse.methods.base import (
    DISTRIBUTION_HELP,
    EverySteps,
    Phase,
    PhaseLR,
    PruningMethod,
    StepRules,
    TrainingState,
)
from hypersparse.methods.drop_grow import decay_, reset_state_of_
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude


@dataclass
class UnusedWeights:
    """By layer the values of unused weights, 0.0 for the others, and which of them are trained."""

    values: list[Tensor]
    learn: list[Tensor]


@options
class TopKAST(PruningMethod):
    """Use the largest weights, train the next largest too, and update the choice regularly."""

    name: ClassVar[str] = "topkast"
    citation: ClassVar[str] = (
        "S. M. Jayakumar, R. Pascanu, J. W. Rae, S. Osindero, E. Elsen: Top-KAST: Top-K Always Sparse Training. "
        "NeurIPS 2020."
    )

    distribution: Distribution = option(default="uniform", help=DISTRIBUTION_HELP)
    backward_ratio: float = option(default=2.0, help="Trained weights, as a multiple of those that are used.", ge=1)
    exploration_decay: float = option(
        default=1e-4, help="Weight decay of trained weights that are not used, divided by the density.", ge=0
    )
    update_every: int = option(default=100, help="Steps between updates of the mask.", ge=1)
    update_until: float = option(
        default=1.0, help="When updates of the mask end, as a fraction of the training.", gt=0, le=1
    )

    def plan(self, epochs: int) -> Sequence[Phase]:
        exploring = min(epochs, max(1, round(self.update_until * epochs)))
        explore = Phase(
            "explore",
            epochs=exploring,
            lr=PhaseLR(schedule_epochs=epochs),
            on_enter=self.choose_largest,
            on_step=EverySteps(self.choose_largest, self.update_every),
            rules=StepRules(around_step=self.as_one, trainable=self.trainable),
            on_exit=self.discard_unused,
        )
        lr = PhaseLR(schedule_epochs=epochs, schedule_start=exploring)
        settle = Phase("settle", epochs=epochs - exploring, lr=lr)
        return [explore, settle] if settle.epochs else [explore]

    @torch.no_grad()
    def choose_largest(self, state: TrainingState) -> None:
        """Use the largest of all weights and train the next largest too (sets A and B of the paper)."""
        weights, unused = state.weights, self.unused(state)
        weights.apply_mask_()  # the optimizer has just moved the dropped ones too
        torch._foreach_add_(list(weights.values()), unused.values)
        scores, keep = magnitude(weights), self.keep(weights)
        used = weights.select(scores, keep, self.distribution)
        trained = min(weights.total, round(self.backward_ratio * keep))
        chosen = used | weights.select(scores, trained, self.distribution)
        reset_state_of_(state, chosen - self.trainable(state))
        for name, value, learns in zip(weights, unused.values, unused.learn, strict=True):
            value.copy_(weights[name].masked_fill(used[name], 0.0))  # in place: a captured step knows the address
            learns.copy_(chosen[name] & ~used[name])
        weights.set_mask_(used)

    @contextmanager
    def as_one(self, state: TrainingState) -> Iterator[None]:
        """Show the optimizer all weights, used or not, and decay the unused ones."""
        weights, unused = list(state.weights.values()), self.unused(state)
        with torch.no_grad():
            for weight, value in zip(weights, unused.values, strict=True):
                weight.add_(value)  # exact: one of the two is 0
                decay_(state, weight, value, strength=self.exploration_decay / (1 - self.sparsity))
        yield
        with torch.no_grad():  # what the optimizer did to those that do not learn never happened
            for weight, value, learns in zip(weights, unused.values, unused.learn, strict=True):
                torch.where(learns, weight, value, out=value)

    def trainable(self, state: TrainingState) -> Mask:
        """The used weights and the unused ones that are trained."""
        used = state.weights.mask or Mask.all_kept(state.weights)
        return used | Mask(dict(zip(state.weights, self.unused(state).learn, strict=True)))

    def discard_unused(self, state: TrainingState) -> None:
        """Discard the unused weights."""
        state.memory.pop(UnusedWeights)

    def unused(self, state: TrainingState) -> UnusedWeights:
        """The unused weights; zeros at first."""
        if state.memory.get(UnusedWeights) is None:
            weights = state.weights.values()
            values = [torch.zeros_like(weight) for weight in weights]
            state.memory.set(UnusedWeights(values, [torch.zeros_like(value, dtype=torch.bool) for value in values]))
        return state.recall(UnusedWeights)

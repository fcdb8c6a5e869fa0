"""Powerpropagation (Schwarz, Jayakumar, Pascanu, Latham, Teh 2021)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor

from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, Requirements, StepRules, TrainingState
from hypersparse.methods.drop_grow import prune_by_magnitude
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution


@options
class PowerProp(PruningMethod):
    """Train a power of the weights, which slows down the learning of small ones; then prune and fine-tune."""

    name: ClassVar[str] = "powerprop"
    citation: ClassVar[str] = (
        "J. Schwarz, S. M. Jayakumar, R. Pascanu, P. E. Latham, Y. W. Teh: Powerpropagation: A sparsity inducing "
        "weight reparameterisation. NeurIPS 2021."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    power: float = option(default=2.0, help="A weight is this power of what is trained, with its sign.", gt=1)
    fine_tune: float = option(default=1.0, help="Epochs with the mask, as a multiple of those before it.", gt=0)

    def plan(self, epochs: int) -> Sequence[Phase]:
        requires = Requirements(weights=self.check)
        tuning = max(1, round(self.fine_tune * epochs))
        return [
            Phase(
                "train",
                epochs=epochs,
                rules=StepRules(around_step=self.as_roots),
                cache_key=f"powerprop, power {self.power!r}, {epochs} epochs",
            ),
            Phase("fine-tune", epochs=tuning, on_enter=self.prune, reset_optimizer=True, requires=requires),
        ]

    @contextmanager
    def as_roots(self, state: TrainingState) -> Iterator[None]:
        """Replace the weights by their roots for the optimizer's step only."""
        self.take_roots(state)
        yield
        self.take_powers(state)

    def take_roots(self, state: TrainingState) -> None:
        """Replace the weights and gradients by those of the roots (eq. 1, chain rule)."""
        with torch.no_grad():
            for weight, gradient in stepped(state):
                roots = weight.abs().pow_(1 / self.power)
                gradient.mul_(self.power * roots.pow(self.power - 1))
                weight.copy_(roots.copysign_(weight))

    def take_powers(self, state: TrainingState) -> None:
        """Replace the roots by the weights."""
        with torch.no_grad():
            for weight, _ in stepped(state):
                weight.copy_(weight.abs().pow_(self.power).copysign_(weight))

    def prune(self, state: TrainingState) -> None:
        """Keep the largest weights; the fine-tuning trains them directly."""
        state.weights.set_mask_(prune_by_magnitude(state.weights, self.keep(state.weights), self.distribution))


def stepped(state: TrainingState) -> list[tuple[Tensor, Tensor]]:
    """The weights with gradients, and these; roots and powers of frozen weights would drift."""
    return [(weight, weight.grad) for weight in state.weights.values() if weight.grad is not None]

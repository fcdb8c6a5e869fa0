"""Powerpropagation (Schwarz, Jayakumar, Pascanu, Latham, Teh 2021)."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from hypersparse.methods.base import Method, Phase, Sparsity, TrainingState
from hypersparse.methods.drop_grow import DISTRIBUTION_HELP, check_shares, prune_by_magnitude
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution, keep_count


@options
class PowerProp(Method):
    """Train powers of the weights, so that large ones learn fast and small ones hardly; then prune and fine-tune."""

    name: ClassVar[str] = "powerprop"
    citation: ClassVar[str] = (
        "J. Schwarz, S. M. Jayakumar, R. Pascanu, P. E. Latham, Y. W. Teh: Powerpropagation: A sparsity inducing "
        "weight reparameterisation. NeurIPS 2021."
    )

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")
    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    power: float = option(default=2.0, help="A weight is this power of what is trained, with its sign.", gt=1)
    fine_tune: float = option(default=1.0, help="Epochs with the mask, as a multiple of those before it.", gt=0)

    def label(self) -> str:
        return f"powerprop-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        check = partial(check_shares, sparsity=self.sparsity, distribution=self.distribution)
        tuning = max(1, round(self.fine_tune * epochs))
        return [
            Phase(
                "train",
                epochs=epochs,
                before_step=self.take_roots,
                after_step=self.take_powers,
                shared=f"powerprop, power {self.power!r}, {epochs} epochs",
            ),
            Phase("fine-tune", epochs=tuning, enter=self.prune, restart=True, check=check),
        ]

    def take_roots(self, state: TrainingState) -> None:
        """Let the optimizer see the roots, and the loss's gradient with respect to them (eq. 1 by the chain rule)."""
        with torch.no_grad():
            for weight, gradient in stepped(state):
                roots = weight.abs().pow_(1 / self.power)
                gradient.mul_(self.power * roots.pow(self.power - 1))
                weight.copy_(roots.copysign_(weight))

    def take_powers(self, state: TrainingState) -> None:
        """Make the weights of the roots that the optimizer has moved; so the network never sees the roots."""
        with torch.no_grad():
            for weight, _ in stepped(state):
                weight.copy_(weight.abs().pow_(self.power).copysign_(weight))

    def prune(self, state: TrainingState) -> None:
        """Keep the largest weights; from here on they are trained as they are."""
        keep = keep_count(state.weights.total, self.sparsity)
        state.weights.set_mask_(prune_by_magnitude(state.weights, keep, self.distribution))


def stepped(state: TrainingState) -> list[tuple[Tensor, Tensor]]:
    """The weights that the optimizer will step, with their gradients; roots and powers of frozen ones would drift."""
    return [(weight, weight.grad) for weight in state.weights.values() if weight.grad is not None]

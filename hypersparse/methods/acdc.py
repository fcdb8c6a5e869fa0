"""AC/DC: alternating compressed and decompressed training (Peste, Iofinova, Vladu, Alistarh 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from hypersparse.errors import OptionError
from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, Requirements, TrainingState
from hypersparse.methods.drop_grow import keep_all, prune_by_magnitude, reset_momentum_
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution
from hypersparse.sparsity.weights import PrunableWeights


@dataclass
class FrozenWeights:
    """Values of frozen weights before pruning."""

    values: list[Tensor]


@options
class ACDC(PruningMethod):
    """Alternate sparse and dense training, prune at the start of each sparse turn, and end sparse."""

    name: ClassVar[str] = "acdc"
    citation: ClassVar[str] = (
        "A. Peste, E. Iofinova, A. Vladu, D. Alistarh: AC/DC: Alternating Compressed/DeCompressed Training of Deep "
        "Neural Networks. NeurIPS 2021."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    warmup: float = option(default=0.1, help="Dense epochs at the start, as a fraction of the training.", ge=0, lt=1)
    turn: float = option(
        default=0.05, help="Length of a sparse or dense turn, as a fraction of the training.", gt=0, lt=1
    )
    final: float = option(default=0.15, help="Sparse epochs at the end, as a fraction of the training.", gt=0, le=1)

    def __post_init__(self) -> None:
        if self.warmup + self.final > 1:
            raise OptionError(
                f"`warmup` and `final` of AC/DC are fractions of one training, together at most 1; got {self.warmup:g} "
                f"and {self.final:g}. Lower one of them."
            )

    def plan(self, epochs: int) -> Sequence[Phase]:
        take_turn = partial(self.take_turn, epochs=epochs)
        requires = Requirements(weights=self.check)
        return [Phase("train", epochs=epochs, on_enter=keep_all, on_epoch_start=take_turn, requires=requires)]

    def is_sparse(self, epoch: int, epochs: int) -> bool:
        """Whether an epoch trains the pruned network: not in the warm-up, then in every other turn, and at the end."""
        turn = max(1, round(self.turn * epochs))
        final = epochs - max(1, round(self.final * epochs))
        into = epoch - round(self.warmup * epochs)
        if epoch >= final or into < 0:
            return epoch >= final
        # At least one whole dense turn comes before the end: a sparse one that would reach into it is left out.
        begun = epoch - into % turn
        return into // turn % 2 == 0 and begun + turn <= final - turn

    def take_turn(self, state: TrainingState, *, epochs: int) -> None:
        """At the start of an epoch: prune if a sparse turn begins, and remove the mask if a dense one begins."""
        weights, sparse = state.weights, self.is_sparse(state.epoch, epochs)
        was_sparse = state.epoch > 0 and self.is_sparse(state.epoch - 1, epochs)
        if sparse and not was_sparse:
            if frozen := _frozen(weights):
                state.memory.set(FrozenWeights([weight.detach().clone() for weight in frozen]))
            weights.set_mask_(prune_by_magnitude(weights, self.keep(weights), self.distribution))
        elif was_sparse and not sparse:
            reset_momentum_(state)
            keep_all(state)
            if remembered := state.memory.pop(FrozenWeights):
                with torch.no_grad():  # what cannot grow comes back
                    for weight, value in zip(_frozen(weights), remembered.values, strict=False):
                        weight.copy_(value)


def _frozen(weights: PrunableWeights) -> list[nn.Parameter]:
    return [weight for weight in weights.values() if not weight.requires_grad]

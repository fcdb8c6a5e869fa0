"""LTH: the lottery ticket hypothesis in one shot (Frankle, Carbin 2019)."""

from collections.abc import Sequence
from typing import ClassVar

from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, Requirements, TrainingState
from hypersparse.methods.drop_grow import prune_by_magnitude
from hypersparse.methods.snapshot import NetworkCopy, rewind_
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution


@options
class LTH(PruningMethod):
    """Train the dense network, keep its largest weights, reset them to their initial values, and train again."""

    name: ClassVar[str] = "lth"
    citation: ClassVar[str] = (
        "J. Frankle, M. Carbin: The Lottery Ticket Hypothesis: Finding Sparse, Trainable Neural Networks. ICLR 2019."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)

    def plan(self, epochs: int) -> Sequence[Phase]:
        requires = Requirements(weights=self.check)
        # Not `pretraining`: without it nobody would know the first values. The pruning is where the second phase
        # begins, so that the end of the first is the same for all sparsities.
        return [
            Phase("dense", epochs=epochs, on_enter=self.remember, cache_key=f"lth, {epochs} epochs"),
            Phase("train", epochs=epochs, on_enter=self.prune_and_reset, reset_optimizer=True, requires=requires),
        ]

    def remember(self, state: TrainingState) -> None:
        """Store the initial network."""
        state.memory.set(NetworkCopy.of(state.weights))

    def prune_and_reset(self, state: TrainingState) -> None:
        """Keep the largest weights and reset them to their initial values."""
        mask = prune_by_magnitude(state.weights, self.keep(state.weights), self.distribution)
        rewind_(state, mask)
        state.memory.pop(NetworkCopy)

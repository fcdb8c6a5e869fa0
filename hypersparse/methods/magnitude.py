"""Magnitude: train dense, remove the smallest weights once, fine-tune (Han et al. 2015, in one step)."""

from collections.abc import Sequence
from typing import ClassVar

from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, Requirements, TrainingState
from hypersparse.methods.drop_grow import prune_by_magnitude
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution


@options
class Magnitude(PruningMethod):
    """Train the dense network to the end, remove its smallest weights, fine-tune the rest."""

    name: ClassVar[str] = "magnitude"
    citation: ClassVar[str] = (
        "S. Han, J. Pool, J. Tran, W. J. Dally: Learning both Weights and Connections for Efficient Neural Networks. "
        "NIPS 2015."
    )
    sharded: ClassVar[bool] = True

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    dense_epochs: int | None = option(
        default=None, help="Epochs of dense training; unset: as many as of fine-tuning.", ge=1
    )

    def plan(self, epochs: int) -> Sequence[Phase]:
        length = self.dense_epochs or epochs
        cache_key = f"dense, {length} epochs, the whole schedule"
        requires = Requirements(weights=self.check)
        return [
            Phase("pre-train", epochs=length, pretraining=True, cache_key=cache_key),
            Phase("fine-tune", epochs=epochs, on_enter=self.prune, reset_optimizer=True, requires=requires),
        ]

    def prune(self, state: TrainingState) -> None:
        """Remove the smallest weights for good."""
        state.weights.set_mask_(prune_by_magnitude(state.weights, self.keep(state.weights), self.distribution))

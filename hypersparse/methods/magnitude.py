"""Magnitude: train dense, remove the smallest weights once, fine-tune (Han et al. 2015, in one step)."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from hypersparse.methods.base import Method, Phase, Sparsity, TrainingState
from hypersparse.methods.drop_grow import check_shares
from hypersparse.options import option, options
from hypersparse.sparsity import scores
from hypersparse.sparsity.distributions import Distribution, keep_count, select


@options
class Magnitude(Method):
    """Train the dense network to the end, remove its smallest weights, fine-tune the rest."""

    name: ClassVar[str] = "magnitude"
    citation: ClassVar[str] = (
        "S. Han, J. Pool, J. Tran, W. J. Dally: Learning both Weights and Connections for Efficient Neural Networks. "
        "NIPS 2015."
    )

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")
    distribution: Distribution = option(default="global", help="How the layers share the kept weights.")
    dense_epochs: int | None = option(
        default=None, help="Epochs of dense training; unset: as many as of fine-tuning.", ge=1
    )

    def label(self) -> str:
        return f"magnitude-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        length = self.dense_epochs or epochs
        check = partial(check_shares, sparsity=self.sparsity, distribution=self.distribution)
        shared = f"dense, {length} epochs, the whole schedule"
        return [
            Phase("pre-train", epochs=length, pretraining=True, shared=shared),
            Phase("fine-tune", epochs=epochs, enter=self.prune, restart=True, check=check),
        ]

    def prune(self, state: TrainingState) -> None:
        """Remove the smallest weights for good."""
        weights = state.weights
        keep = keep_count(weights.total, self.sparsity)
        weights.set_mask_(select(scores.magnitude(weights), keep, self.distribution))

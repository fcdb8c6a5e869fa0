"""LTH: the lottery ticket hypothesis in one shot (Frankle, Carbin 2019)."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from hypersparse.methods.base import Method, Phase, Sparsity, TrainingState
from hypersparse.methods.drop_grow import DISTRIBUTION_HELP, check_shares, prune_by_magnitude
from hypersparse.methods.snapshot import rewind_, whole_copy
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution, keep_count


@options
class LTH(Method):
    """Train densely to see which weights grow large, put those back to their first values, and train them alone."""

    name: ClassVar[str] = "lth"
    citation: ClassVar[str] = (
        "J. Frankle, M. Carbin: The Lottery Ticket Hypothesis: Finding Sparse, Trainable Neural Networks. ICLR 2019."
    )

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")
    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)

    def label(self) -> str:
        return f"lth-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        check = partial(check_shares, sparsity=self.sparsity, distribution=self.distribution)
        # Not `pretraining`: without it nobody would know the first values. The pruning is where the second phase
        # begins, so that the end of the first is the same for all sparsities.
        return [
            Phase("dense", epochs=epochs, enter=self.remember, shared=f"lth, {epochs} epochs"),
            Phase("train", epochs=epochs, enter=self.prune_and_reset, restart=True, check=check),
        ]

    def remember(self, state: TrainingState) -> None:
        """Keep the first values of everything."""
        state.memory["initial"] = whole_copy(state.weights)

    def prune_and_reset(self, state: TrainingState) -> None:
        """The largest weights over all layers get their first values back; the others are dropped."""
        mask = prune_by_magnitude(state.weights, keep_count(state.weights.total, self.sparsity), self.distribution)
        rewind_(state.weights, state.memory.pop("initial"), mask)

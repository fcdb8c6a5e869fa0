"""GMP: gradual magnitude pruning (Zhu, Gupta 2017)."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from hypersparse.errors import OptionError
from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, Requirements, TrainingState
from hypersparse.methods.drop_grow import change_mask_, keep_all, prune_by_magnitude
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution, keep_count


@options
class GMP(PruningMethod):
    """Prune the smallest weights gradually while training, more in early epochs than in later ones."""

    name: ClassVar[str] = "gmp"
    citation: ClassVar[str] = (
        "M. Zhu, S. Gupta: To prune, or not to prune: exploring the efficacy of pruning for model compression. 2017."
    )
    sharded: ClassVar[bool] = True

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    start: float = option(default=0.1, help="When pruning starts, as a fraction of the training.", ge=0, lt=1)
    end: float = option(default=0.5, help="When pruning ends, as a fraction of the training.", gt=0, le=1)

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise OptionError(f"GMP prunes from `start` to `end`, which is later; got {self.start:g} and {self.end:g}.")

    def plan(self, epochs: int) -> Sequence[Phase]:
        prune = partial(self.prune, epochs=epochs)
        requires = Requirements(weights=self.check)
        return [Phase("train", epochs=epochs, on_enter=keep_all, on_epoch_start=prune, requires=requires)]

    def prune(self, state: TrainingState, *, epochs: int) -> None:
        """At the start of an epoch: drop the smallest of the kept weights, according to the schedule."""
        # Deviation: epoch by epoch, not every so many steps, and what is dropped stays so.
        mask, keep = state.weights.mask, self.keep_in(state.epoch, epochs, state.weights.total)
        if mask is not None and keep < mask.kept:
            change_mask_(state, prune_by_magnitude(state.weights, keep, self.distribution))

    def keep_in(self, epoch: int, epochs: int, total: int) -> int:
        """Count of weights kept in an epoch, by a cubic schedule (eq. 1)."""
        last = min(round(self.end * epochs), epochs - 1)  # at least one epoch is left for the final mask
        span = max(1, last - round(self.start * epochs))
        left = min(span, max(0, last - epoch))
        final = keep_count(total, self.sparsity)
        return final + (total - final) * left**3 // span**3

"""GMP: gradual magnitude pruning (Zhu, Gupta 2017)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from hypersparse.errors import OptionError
from hypersparse.methods.base import DISTRIBUTION_HELP, EverySteps, Phase, PruningMethod, Requirements, TrainingState
from hypersparse.methods.drop_grow import change_mask_, keep_all, prune_by_magnitude
from hypersparse.options import option, options
from hypersparse.plurals import how_many
from hypersparse.sparsity.distributions import Distribution, keep_count

ANY = 10**6  # a count of weights, to see whether any of them are pruned


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

    update_every: int | None = option(
        default=None, help="Optimizer steps between prunings; unset: one at the start of every epoch.", ge=1
    )

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise OptionError(f"GMP prunes from `start` to `end`, which is later; got {self.start:g} and {self.end:g}.")

    def plan(self, epochs: int) -> Sequence[Phase]:
        requires = Requirements(weights=self.check, steps=self.update_every is not None)
        train = Phase("train", epochs=epochs, on_enter=keep_all, requires=requires)
        if self.update_every is not None:
            action = EverySteps(partial(self.prune_after_step, epochs=epochs), self.update_every)
            return [replace(train, on_step=action, on_exit=self.prune_last)]
        if epochs and self.keep_in(0, epochs, ANY) < ANY:
            raise OptionError(
                f"In {how_many(epochs, 'epoch')} GMP would prune before the first step; pass more epochs or a later "
                "`end`, or prune every so many steps by `update_every`."
            )
        return [replace(train, on_epoch_start=partial(self.prune, epochs=epochs))]

    def prune(self, state: TrainingState, *, epochs: int) -> None:
        """At the start of an epoch: drop the smallest of the kept weights, according to the schedule."""
        # What is dropped stays so; in the reference it may return.
        self.prune_to(state, self.keep_in(state.epoch, epochs, state.weights.total))

    def prune_after_step(self, state: TrainingState, *, epochs: int) -> None:
        """After every so many steps: the same, by a schedule in steps."""
        assert self.update_every is not None
        _, length = state.progress(epochs)
        self.prune_to(state, self.keep_in(state.step + 1, length, state.weights.total, every=self.update_every))

    def prune_last(self, state: TrainingState) -> None:
        """At the end: drop what is left to drop, in a training of fewer steps than lie between two prunings."""
        self.prune_to(state, self.keep(state.weights))

    def prune_to(self, state: TrainingState, keep: int) -> None:
        """Keep the `keep` largest of the kept weights."""
        mask = state.weights.mask
        if mask is not None and keep < mask.kept:
            change_mask_(state, prune_by_magnitude(state.weights, keep, self.distribution))

    def keep_in(self, position: int, length: int, total: int, *, every: int = 1) -> int:
        """Count of weights kept in an epoch, or after a step, of so many, by a cubic schedule (eq. 1).

        It ends at a multiple of `every`, and at least one epoch or step is left for the final mask.
        """
        last = min(round(self.end * length), length - 1) // every * every
        span = max(1, last - round(self.start * length))
        left = min(span, max(0, last - position))
        final = keep_count(total, self.sparsity)
        return final + (total - final) * left**3 // span**3

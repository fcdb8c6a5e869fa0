"""IMP: iterative magnitude pruning with rewinding (Frankle, Dziugaite, Roy, Carbin 2020)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil, log
from typing import ClassVar

from hypersparse.errors import OptionError
from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PhaseLR, PruningMethod, Requirements, TrainingState
from hypersparse.methods.drop_grow import prune_by_magnitude
from hypersparse.methods.snapshot import NetworkCopy, rewind_
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution, in_rounds, keep_count

ROUNDS = 5  # 160 + 5 * 140 = 860 epochs, as the paper counts them


@options
class IMP(PruningMethod):
    """Train, prune some of the weights, rewind the rest to an early epoch, and repeat."""

    name: ClassVar[str] = "imp"
    citation: ClassVar[str] = (
        "J. Frankle, G. K. Dziugaite, D. M. Roy, M. Carbin: Linear Mode Connectivity and the Lottery Ticket "
        "Hypothesis. ICML 2020."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    rounds: int = option(default=ROUNDS, help="Rounds of pruning, each by the same factor.", ge=1)
    prune_fraction: float = option(
        default=0.0,
        help="Remove this share of the remaining weights in each round, for as many rounds as needed. The lottery "
        "ticket papers use 0.2; 0: see `rounds`.",
        ge=0,
        lt=1,
    )
    rewind: float = option(
        default=0.125,
        help="The epoch to which weights and schedule are rewound, as a fraction of the training.",
        ge=0,
        lt=1,
    )

    def __post_init__(self) -> None:
        if self.prune_fraction and self.rounds != ROUNDS:
            raise OptionError(
                f"IMP prunes in so many `rounds` or by a `prune_fraction` in each; got rounds={self.rounds} and "
                f"prune_fraction={self.prune_fraction:g}. Leave one of them out."
            )

    def plan(self, epochs: int) -> Sequence[Phase]:
        start = min(round(self.rewind * epochs), max(epochs - 1, 0))
        lr, requires = PhaseLR(schedule_epochs=epochs, schedule_start=start), Requirements(weights=self.check)
        rest = Phase("dense", epochs=epochs - start, lr=lr, requires=requires)
        cache_key = f"imp, epoch {start} of {epochs}"
        return [
            Phase("begin", epochs=start, lr=PhaseLR(schedule_epochs=epochs), cache_key=cache_key),
            replace(rest, on_enter=self.remember, cache_key=cache_key),
            *(
                replace(
                    rest,
                    name=f"round {number}",
                    on_enter=partial(self.prune_and_rewind, number=number),
                    reset_optimizer=True,
                )
                for number in range(1, self.count_of_rounds() + 1)
            ),
        ]

    def count_of_rounds(self) -> int:
        """The number of rounds; with `prune_fraction` the last one may remove less."""
        if not self.prune_fraction:
            return self.rounds
        return max(
            1, ceil(log(1 - self.sparsity) / log(1 - self.prune_fraction) - 1e-9)
        )  # 1 - 0.2 and 0.8 differ in bits

    def keeps(self, total: int) -> list[int]:
        """Weights kept after each round."""
        final, rounds = keep_count(total, self.sparsity), self.count_of_rounds()
        if not self.prune_fraction:
            return in_rounds(total, final, rounds)
        return [*(max(final, round((1 - self.prune_fraction) ** number * total)) for number in range(1, rounds)), final]

    def remember(self, state: TrainingState) -> None:
        """Store the whole network at the epoch to rewind to."""
        state.memory.set(NetworkCopy.of(state.weights))

    def prune_and_rewind(self, state: TrainingState, *, number: int) -> None:
        """Keep the largest weights and rewind them, with norms and statistics, to their stored values."""
        keeps = self.keeps(state.weights.total)
        mask = prune_by_magnitude(state.weights, keeps[number - 1], self.distribution)
        rewind_(state, mask)
        if number == len(keeps):
            state.memory.pop(NetworkCopy)

"""Random: a random mask, the baseline of all pruning methods."""

from collections.abc import Sequence
from typing import ClassVar

from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, TrainingState
from hypersparse.methods.one_shot import prune_first
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import random_scores


@options
class Random(PruningMethod):
    """Keep random weights, with the same density in every layer or by Erdős-Rényi-Kernel."""

    name: ClassVar[str] = "random"
    citation: ClassVar[str] = (
        "S. Liu, T. Chen, X. Chen, L. Shen, D. C. Mocanu, Z. Wang, M. Pechenizkiy: The Unreasonable Effectiveness of "
        "Random Pruning: Return of the Most Naive Baseline for Sparse Training. ICLR 2022."
    )

    distribution: Distribution = option(default="erk", help=DISTRIBUTION_HELP)

    def plan(self, epochs: int) -> Sequence[Phase]:
        return prune_first(self.mask, epochs=epochs)

    def mask(self, state: TrainingState) -> Mask:
        """The mask, chosen before training."""
        scores = random_scores(state.weights, state.generator)
        return state.weights.select(scores, self.keep(state.weights), self.distribution)

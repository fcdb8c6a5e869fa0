"""Iterative SNIP and FORCE: SNIP's score, computed again in every round of pruning (de Jorge et al. 2021)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, TrainingState
from hypersparse.methods.one_shot import prune_first
from hypersparse.methods.scoring_data import ScoringSamples
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution, select_in_rounds
from hypersparse.sparsity.mask import Mask, Scores
from hypersparse.sparsity.scores import gradients


@options
class IterSNIP(PruningMethod, ScoringSamples):
    """Prune by SNIP's score in many small rounds, and compute it again in each; before training."""

    name: ClassVar[str] = "iter_snip"
    citation: ClassVar[str] = (
        "P. de Jorge, A. Sanyal, H. S. Behl, P. H. S. Torr, G. Rogez, P. K. Dokania: Progressive Skeletonization: "
        "Trimming more fat from a network at initialization. ICLR 2021."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    rounds: int = option(default=60, help="Rounds of pruning, each removing the same fraction.", ge=1)
    recover: bool = option(default=False, help="Let weights removed in earlier rounds return, as FORCE does.")

    def plan(self, epochs: int) -> Sequence[Phase]:
        return prune_first(self.mask, epochs=epochs, needs_task=True)

    def mask(self, state: TrainingState) -> Mask:
        """The mask, chosen before training."""
        weights, task = state.weights, state.task
        batches = self.batches(task, weights.device)

        def sensitivity(values: Mapping[str, Tensor]) -> Scores:
            found = gradients(weights.model, values, batches, task.criterion, run=task.forward, ranks=task.ranks)
            # Times the weight before pruning: what a removed one would be worth in the pruned network.
            return {name: (weights[name].detach() * gradient).abs() for name, gradient in found.items()}

        return select_in_rounds(
            weights,
            self.keep(weights),
            rounds=self.rounds,
            score=sensitivity,
            distribution=self.distribution,
            recover=self.recover,
            limits=weights.limits,
        )

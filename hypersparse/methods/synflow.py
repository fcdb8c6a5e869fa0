"""SynFlow: keep the weights through which most flows, pruning a little at a time (Tanaka et al. 2020)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, TrainingState
from hypersparse.methods.one_shot import prune_first
from hypersparse.options import option, options
from hypersparse.sparsity import scores
from hypersparse.sparsity.distributions import Distribution, select_in_rounds
from hypersparse.sparsity.mask import Mask, Scores


@options
class SynFlow(PruningMethod):
    """Remove the weights with the least synaptic flow in many small rounds; before training, without data."""

    name: ClassVar[str] = "synflow"
    citation: ClassVar[str] = (
        "H. Tanaka, D. Kunin, D. L. K. Yamins, S. Ganguli: Pruning Neural Networks without any Data by Iteratively "
        "Conserving Synaptic Flow. NeurIPS 2020."
    )

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    rounds: int = option(default=100, help="Rounds of pruning, each removing the same fraction.", ge=1)

    def plan(self, epochs: int) -> Sequence[Phase]:
        return prune_first(self.mask, epochs=epochs, needs_task=True)  # for the shape of an input

    def mask(self, state: TrainingState) -> Mask:
        """The mask, chosen before training."""
        weights, task = state.weights, state.task
        inputs, _ = task.first_batch(weights.device)

        def flow(values: Mapping[str, Tensor]) -> Scores:
            return scores.synflow(weights.model, values, inputs, run=task.forward, ranks=task.ranks)

        return select_in_rounds(
            weights,
            self.keep(weights),
            rounds=self.rounds,
            score=flow,
            distribution=self.distribution,
            limits=weights.limits,
        )

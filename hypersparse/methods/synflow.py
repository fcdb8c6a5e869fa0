"""SynFlow: keep the weights through which most flows, pruning a little at a time (Tanaka et al. 2020)."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from hypersparse.methods.base import TrainingState
from hypersparse.methods.one_shot import OneShot
from hypersparse.options import option, options
from hypersparse.sparsity import scores
from hypersparse.sparsity.distributions import Distribution, select_in_rounds
from hypersparse.sparsity.mask import Mask, Scores


@options
class SynFlow(OneShot):
    """Remove in many small rounds the weights through which least flows, before any training and without data."""

    name: ClassVar[str] = "synflow"
    citation: ClassVar[str] = (
        "H. Tanaka, D. Kunin, D. L. K. Yamins, S. Ganguli: Pruning Neural Networks without any Data by Iteratively "
        "Conserving Synaptic Flow. NeurIPS 2020."
    )
    needs_task: ClassVar[bool] = True  # for the shape of an input

    distribution: Distribution = option(default="global", help="How the layers share the kept weights.")
    rounds: int = option(default=100, help="Rounds of pruning, each removing the same fraction.", ge=1)

    def mask(self, state: TrainingState) -> Mask:
        weights, task = state.weights, state.task
        inputs, _ = task.first_batch(weights.device)

        def flow(values: Mapping[str, Tensor]) -> Scores:
            return scores.synflow(weights.model, values, inputs, run=task.forward)

        keep = self.keep(weights)
        return select_in_rounds(weights, keep, rounds=self.rounds, score=flow, distribution=self.distribution)

"""SNIP: keep the connections to which the loss is most sensitive (Lee, Ajanthan, Torr 2019)."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from hypersparse.methods.base import DISTRIBUTION_HELP, Phase, PruningMethod, TrainingState
from hypersparse.methods.one_shot import check_count, prune_first
from hypersparse.methods.scoring_data import ScoringSamples
from hypersparse.options import option, options
from hypersparse.sparsity import scores
from hypersparse.sparsity.distributions import Distribution
from hypersparse.sparsity.mask import Mask


@options
class SNIP(PruningMethod, ScoringSamples):
    """Keep the weights whose removal would change the loss of a few samples most; before training."""

    name: ClassVar[str] = "snip"
    citation: ClassVar[str] = (
        "N. Lee, T. Ajanthan, P. H. S. Torr: SNIP: Single-shot Network Pruning based on Connection Sensitivity. "
        "ICLR 2019."
    )
    sharded: ClassVar[bool] = True

    distribution: Distribution = option(default="global", help=DISTRIBUTION_HELP)
    tie_rule: Literal["exact", "authors"] = option(
        default="exact",
        help="Keep exactly total - floor(sparsity * total), or int((1 - sparsity) * total) and all equal to the last "
        "of them (`authors`, for distribution=global).",
    )

    def __post_init__(self) -> None:
        check_count(self.tie_rule, self.distribution)

    def plan(self, epochs: int) -> Sequence[Phase]:
        return prune_first(self.mask, epochs=epochs, needs_task=True)

    def mask(self, state: TrainingState) -> Mask:
        """The mask, chosen before training."""
        weights, task = state.weights, state.task
        batches = self.batches(task, weights.device)
        found = scores.snip(weights.model, weights, batches, task.criterion, run=task.forward, ranks=task.ranks)
        if self.tie_rule == "authors":
            return weights.select(found, max(1, int(weights.total * (1 - self.sparsity))), rule=Mask.at_least)
        return weights.select(found, self.keep(weights), self.distribution)

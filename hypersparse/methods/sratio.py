"""SRatio: random weights in layers whose densities fall with depth (Su et al. 2020, "SmartRatio")."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

from hypersparse.methods.base import Phase, PruningMethod, TrainingState
from hypersparse.methods.one_shot import prune_first
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import keep_in_float32, sratio
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import random_scores


@options
class SRatio(PruningMethod):
    """Keep random weights, with a density that falls with depth; needs neither data nor weights."""

    name: ClassVar[str] = "sratio"
    citation: ClassVar[str] = (
        "J. Su, Y. Chen, T. Cai, T. Wu, R. Gao, L. Wang, J. D. Lee: Sanity-Checking Pruning Methods: Random Tickets "
        "can Win the Jackpot. NeurIPS 2020."
    )

    linear_keep: float | None = option(
        default=None,
        help="Fraction kept of the last layer; unset: 0.3, or 0.1 where that would leave nothing for the others.",
        gt=0,
        le=1,
    )
    rule: Literal["auto", "residual", "plain"] = option(
        default="auto",
        help="How fast densities fall: `residual` as for ResNet, `plain` as for VGG, `auto` by the layers' shapes.",
    )
    tie_rule: Literal["exact", "authors"] = option(
        default="exact",
        help="Keep exactly total - floor(sparsity * total), or round that down, and then every layer (`authors`).",
    )

    def plan(self, epochs: int) -> Sequence[Phase]:
        return prune_first(self.mask, epochs=epochs)

    def mask(self, state: TrainingState) -> Mask:
        """The mask, chosen before training."""
        weights, exact = state.weights, self.tie_rule == "exact"
        keep = self.keep(weights) if exact else max(1, keep_in_float32(weights.total, self.sparsity))
        rounding: Literal["exact", "down"] = "exact" if exact else "down"
        rule = partial(sratio, linear_keep=self.linear_keep, rule=self.rule, rounding=rounding)
        budget = weights.shares(keep, rule)
        return Mask.top_by_layer(random_scores(weights, state.generator), budget)

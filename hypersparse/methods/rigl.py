"""RigL: rigging the lottery (Evci, Gale, Menick, Castro, Elsen 2020), trained as in the HyperSparse paper."""

import warnings
from collections.abc import Collection, Sequence
from functools import partial
from math import inf
from typing import ClassVar, Literal

from hypersparse.distributed.shards import largest_number
from hypersparse.errors import LoopError
from hypersparse.methods.base import EverySteps, Phase, PhaseLR, PruningMethod, Requirements, TrainingState
from hypersparse.methods.drop_grow import draw_mask_, drop_and_grow_
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Layers, erk, keep_count, uniform
from hypersparse.sparsity.schedules import cosine
from hypersparse.sparsity.weights import PrunableWeights

BEFORE_STEP = "call `backward()` before `optimizer.step()`."


@options
class RigL(PruningMethod):
    """Train sparse from the start; drop small weights and grow those with large gradients."""

    name: ClassVar[str] = "rigl"
    citation: ClassVar[str] = (
        "U. Evci, T. Gale, J. Menick, P. S. Castro, E. Elsen: Rigging the Lottery: Making All Tickets Winners. "
        "ICML 2020."
    )
    sharded: ClassVar[bool] = True

    distribution: Literal["uniform", "erk", "literal"] = option(  # type: ignore[assignment]  # `literal` is RigL's own
        default="uniform",
        help="Distribution of kept weights: `uniform` keeps the first layer and the same share of the others. "
        "`literal` keeps (1 - sparsity) of the others, more in total. `erk` goes by the layers' shapes.",
    )
    search: float = option(
        default=2.25, help="Epochs before the fine-tuning, as a multiple of it (360 to 160 in the paper).", gt=0
    )
    update_until: float = option(
        default=0.75, help="When updates of the mask end, as a fraction of the search.", gt=0, le=1
    )
    update_every: int = option(default=100, help="Steps between updates of the mask.", ge=1)
    drop_fraction: float = option(
        default=0.3,
        help="Fraction of a layer's kept weights that moves in the first update; falls to 0 along a cosine.",
        gt=0,
        lt=1,
    )

    def plan(self, epochs: int) -> Sequence[Phase]:
        length = max(1, round(self.search * epochs))
        moving = max(1, round(self.update_until * length))
        return [
            Phase(
                "search",
                epochs=moving,
                on_enter=self.draw_mask,
                # With a move in every step nothing would be learnt if it replaced the step.
                on_step=EverySteps(
                    partial(self.move, epochs=moving), self.update_every, replaces_step=self.update_every > 1
                ),
                lr=PhaseLR(held=True),
                requires=Requirements(weights=self.check),
            ),
            Phase("settle", epochs=length - moving, lr=PhaseLR(held=True)),  # the mask stays, all else goes on
            Phase("fine-tune", epochs=epochs, reset_optimizer=True),
        ]

    def check(self, weights: PrunableWeights) -> None:
        """Raise an error before any training if a layer cannot hold its share."""
        self.budget(weights)

    def budget(self, weights: PrunableWeights) -> dict[str, int]:
        """Kept weights by layer."""
        first = list(weights)[: len(weights) > 1]  # of a single layer nothing could be pruned
        keep = self.keep(weights)
        if self.distribution == "erk":
            return weights.shares(keep, erk)
        if self.distribution == "uniform":
            return weights.shares(keep, lambda layers, left: uniform(layers, left, dense=layers.keys() & first))
        return weights.shares(keep, partial(self.literal, dense=first))

    def literal(self, layers: Layers, _keep: int, *, dense: Collection[str]) -> dict[str, int]:
        """The same density in every layer but the dense ones, whatever that keeps in all."""
        totals = {name: layer.numel() for name, layer in layers.items()}
        return {name: total if name in dense else keep_count(total, self.sparsity) for name, total in totals.items()}

    def draw_mask(self, state: TrainingState) -> None:
        """Begin with a random mask, exact in every layer."""
        draw_mask_(state, self.budget(state.weights))

    def move(self, state: TrainingState, *, epochs: int) -> None:
        """Drop the smallest weights of each layer and grow as many where the gradient is largest."""
        growth = {name: weight.grad.abs() for name, weight in state.weights.items() if weight.grad is not None}
        if not growth:
            raise LoopError(f"RigL reads gradients. Unless all weights are frozen: {BEFORE_STEP}")
        largest = largest_number(growth)
        if not 0 < largest < inf:  # nor NaN: a step that a GradScaler leaves out says nothing
            if largest == 0:
                warnings.warn(f"RigL found all gradients zero and moved nothing: {BEFORE_STEP}", stacklevel=2)
            return
        # Deviation: epoch by epoch, unless `attach` is told how many steps there are.
        position, length = state.progress(epochs)
        fraction = self.drop_fraction * cosine(position / length)
        state.log["moved_fraction"] = fraction
        drop_and_grow_(state, growth, fraction=fraction)

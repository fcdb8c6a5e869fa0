"""SET: sparse evolutionary training (Mocanu et al. 2018)."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

from hypersparse.methods.base import Phase, PruningMethod, TrainingState
from hypersparse.methods.drop_grow import draw_mask_, drop_and_grow_
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import erk, uniform
from hypersparse.sparsity.scores import random_scores


@options
class SET(PruningMethod):
    """Train sparse from the start; after every epoch drop the smallest weights and grow random ones."""

    name: ClassVar[str] = "set"
    citation: ClassVar[str] = (
        "D. C. Mocanu, E. Mocanu, P. Stone, P. H. Nguyen, M. Gibescu, A. Liotta: Scalable training of artificial "
        "neural networks with adaptive sparse connectivity inspired by network science. Nature Communications 2018."
    )

    distribution: Literal["uniform", "erk"] = option(
        default="erk",
        help="Kept weights by layer: a share by the layer's shape (`erk`), or the same share of every one (`uniform`).",
    )
    drop_fraction: float = option(
        default=0.3, help="Fraction of a layer's kept weights that moves after an epoch.", gt=0, lt=1
    )
    update_until: float = option(
        default=0.75, help="When updates of the mask end, as a fraction of the training.", gt=0, le=1
    )

    def plan(self, epochs: int) -> Sequence[Phase]:
        move = partial(self.move, until=round(self.update_until * epochs))
        return [Phase("train", epochs=epochs, on_enter=self.draw_mask, on_epoch_start=move)]

    def draw_mask(self, state: TrainingState) -> None:
        """Begin with a random mask, exact in every layer."""
        rule = erk if self.distribution == "erk" else uniform
        draw_mask_(state, state.weights.shares(self.keep(state.weights), rule))

    def move(self, state: TrainingState, *, until: int) -> None:
        """At the start of an epoch but the first: drop the smallest weights, grow as many at random places."""
        if 0 < state.epoch < until:
            # Deviation: by magnitude, not a share of the positive and one of the negative weights; and not to the end.
            # What grows begins at 0.0, as in one of the authors' two codes; in the other at a random value.
            learning = {name: weight for name, weight in state.weights.items() if weight.requires_grad}
            drop_and_grow_(state, random_scores(learning, state.generator), fraction=self.drop_fraction)

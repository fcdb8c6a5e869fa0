"""`Fixed`: train the weights that a given mask keeps. A recipe cannot hold a mask, so it is for `attach` only."""

from collections.abc import Sequence
from typing import ClassVar

from hypersparse.errors import ModelError
from hypersparse.methods.base import Method, Phase, Requirements, TrainingState
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights


class Fixed(Method):
    """Train with a given mask, such as one of `Mask.from_zeros` or `Mask.load`; layers that it lacks stay dense.

    >>> import torch
    >>> Fixed(Mask({"weight": torch.tensor([True, False])})).sparsity
    0.5
    """

    name: ClassVar[str] = "fixed"
    citation: ClassVar[str] = "none"

    def __init__(self, mask: Mask) -> None:
        self.mask = mask

    def __repr__(self) -> str:
        return f"Fixed({self.mask})"

    @property
    def sparsity(self) -> float:
        return self.mask.sparsity

    def plan(self, epochs: int) -> Sequence[Phase]:
        requires = Requirements(weights=self.check)
        return [Phase("train", epochs=epochs, on_enter=self.set_mask, requires=requires)]

    def set_mask(self, state: TrainingState) -> None:
        """Set the given mask."""
        state.weights.set_mask_(self.whole(state.weights))

    def whole(self, weights: PrunableWeights) -> Mask:
        """The mask of all prunable layers of a model."""
        kept = Mask.all_kept(weights)
        return Mask({name: self.mask[name].to(weights.device) if name in self.mask else kept[name] for name in weights})

    def check(self, weights: PrunableWeights) -> None:
        """Raise an error if the mask has layers that the model has not, or cannot prune."""
        for name, layer in self.mask.items():
            if name in weights and weights[name].shape == layer.shape:
                continue
            reason = weights.selection.left_out.get(name, "not there or of another shape")
            raise ModelError(
                f"The mask has a layer `{name}` of shape {tuple(layer.shape)}, which is {reason} in this model; leave "
                "it out: Mask({name: layer for name, layer in mask.items() if ...})."
            )

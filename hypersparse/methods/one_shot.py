"""The family of methods that choose a mask once, before training, and then train the sparse network."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from hypersparse.errors import OptionError
from hypersparse.methods.base import Method, Phase, Sparsity, TrainingState
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights


@options
class OneShot(Method):
    """Choose which weights to keep, then train those alone; subclasses say which."""

    needs_task: ClassVar[bool] = False  # whether `mask` looks at data

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")

    @abstractmethod
    def mask(self, state: TrainingState) -> Mask:
        """Which weights to keep, seen from the moment before training."""

    def label(self) -> str:
        return f"{self.name}-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        return [Phase("train", epochs=epochs, enter=self.prune, needs_task=self.needs_task)]

    def prune(self, state: TrainingState) -> None:
        """From now on the mask holds."""
        state.weights.set_mask_(self.mask(state))

    def keep(self, weights: PrunableWeights) -> int:
        """How many weights are kept."""
        return keep_count(weights.total, self.sparsity)


def check_count(count: str, distribution: str) -> None:
    """Say if the authors' rule for the last weights is asked for layer by layer, where there is none."""
    if count == "authors" and distribution != "global":
        raise OptionError(
            f"tie_rule='authors' is a rule over all layers; with distribution='{distribution}' use 'exact'."
        )

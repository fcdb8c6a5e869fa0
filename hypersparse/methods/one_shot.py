"""What methods share that choose a mask once, before training, and then train the sparse network."""

from collections.abc import Callable

from hypersparse.errors import OptionError
from hypersparse.methods.base import Phase, Requirements, TrainingState
from hypersparse.sparsity.mask import Mask


def prune_first(choose: Callable[[TrainingState], Mask], *, epochs: int, needs_task: bool = False) -> list[Phase]:
    """The plan of a method that chooses a mask in the moment before training; `needs_task` if it looks at data."""

    def prune(state: TrainingState) -> None:
        state.weights.set_mask_(choose(state))

    return [Phase("train", epochs=epochs, on_enter=prune, requires=Requirements(task=needs_task))]


def check_count(count: str, distribution: str) -> None:
    """Say if the authors' rule for the last weights is asked for layer by layer, where there is none."""
    if count == "authors" and distribution != "global":
        raise OptionError(
            f"tie_rule='authors' is a rule over all layers; with distribution='{distribution}' use 'exact'."
        )

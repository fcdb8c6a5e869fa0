"""Common parts of methods that choose a mask once before training."""

from collections.abc import Callable

from hypersparse.errors import OptionError
from hypersparse.methods.base import Phase, Requirements, TrainingState
from hypersparse.sparsity.mask import Mask


def prune_first(choose: Callable[[TrainingState], Mask], *, epochs: int, needs_task: bool = False) -> list[Phase]:
    """The plan of a method that chooses a mask before training; `needs_task` if it uses data."""

    def prune(state: TrainingState) -> None:
        state.weights.set_mask_(choose(state))

    return [Phase("train", epochs=epochs, on_enter=prune, requires=Requirements(task=needs_task))]


def check_count(count: str, distribution: str) -> None:
    """Raise an error if the authors' tie rule is combined with a distribution by layer."""
    if count == "authors" and distribution != "global":
        raise OptionError(
            f"tie_rule='authors' is a rule over all layers; with distribution='{distribution}' use 'exact'."
        )

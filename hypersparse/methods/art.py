"""ART: adaptive regularized training (Glandorf, Kaiser, Rosenhahn 2023, section 3, algorithm 1)."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor

from hypersparse.errors import OptionError
from hypersparse.methods.base import Phase, TrainingState
from hypersparse.methods.free_pruning import FreePruning
from hypersparse.options import option, options
from hypersparse.sparsity import penalties
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.mask import kth_largest

LOOKED = "w_kappa"  # under this name in the state's memory: the last look at the smallest weight that stays


@options
class ART(FreePruning):
    """Press weights towards zero until pruning costs nothing, then prune and fine-tune."""

    name: ClassVar[str] = "art"
    citation: ClassVar[str] = (
        "P. Glandorf, T. Kaiser, B. Rosenhahn: HyperSparse Neural Networks: Shifting Exploration to "
        "Exploitation through Adaptive Regularization. ICCV Workshops 2023."
    )
    forgets: ClassVar[tuple[str, ...]] = (LOOKED,)

    penalty: Literal["hypersparse", "l1", "l2"] = option(
        default="hypersparse", help="What presses weights towards zero."
    )
    pretrain_epochs: int = option(default=60, help="Dense epochs before the penalty; 0 begins with the penalty.", ge=0)
    refresh_every: int = option(
        default=1,
        help="For penalty=hypersparse: steps between two looks at the smallest weight that stays, from which the "
        "penalty has its shape.",
        ge=1,
    )

    def __post_init__(self) -> None:
        if self.refresh_every > 1 and self.penalty != "hypersparse":
            raise OptionError(f"`refresh_every` belongs to the penalty `hypersparse`; this one is `{self.penalty}`.")

    def label(self) -> str:
        return f"art-{self.penalty}-{self.sparsity:g}"

    def plan(self, epochs: int) -> Sequence[Phase]:
        length = self.pretrain_epochs
        pretrain = Phase("pre-train", epochs=length, hold_lr=True, pretraining=True, shared=f"dense, {length} epochs")
        look = self.look_at_w_kappa if self.refresh_every > 1 else None  # otherwise the penalty itself looks
        count = self.begin_to_count if self.growth_steps else None
        press = Phase(
            "regularize",
            epochs=self.max_regularized_epochs,
            enter=self.begin_to_press if look and count else look or count,
            adjust=look,
            adjust_every=self.refresh_every,
            after_step=self.count_step if self.growth_steps else None,
            penalty=self.weighted_penalty,
            until=self.pruning_is_free,
            leave=self.prune,
            hold_lr=True,
            lr_factor=self.regularized_lr,
            shared=repr(self),
            check=self.check_count,
            needs_task=True,
            needs_observe=self.stop_reference == "code",
        )
        return [*([pretrain] if length else []), press, Phase("fine-tune", epochs=epochs, restart=True)]

    def begin_to_press(self, state: TrainingState) -> None:
        """On entering the regularized phase, where it both looks and counts."""
        self.look_at_w_kappa(state)
        self.begin_to_count(state)

    def weighted_penalty(self, state: TrainingState, vector: Tensor) -> Tensor:
        """The penalty times its strength in this step (eq. 1)."""
        if self.refresh_every > 1:
            smallest = state.memory[LOOKED] = state.memory[LOOKED].to(vector.device)  # a checkpoint's is on the CPU
            unwrap = penalties.hypersparse_around(vector, smallest)
        else:
            unwrap = self.bare_penalty(vector)
        return self.strength_now(state) * unwrap

    def look_at_w_kappa(self, state: TrainingState) -> None:
        """Find the smallest weight that stays, for the steps until the next look."""
        vector = state.weights.vector().detach()
        found = kth_largest(vector.abs(), keep_count(vector.numel(), self.sparsity))
        # In place: a captured step knows the address.
        state.memory[LOOKED] = state.memory[LOOKED].copy_(found) if LOOKED in state.memory else found

    def bare_penalty(self, vector: Tensor) -> Tensor:
        """The penalty of a vector of all weights, without a strength."""
        if self.penalty == "hypersparse":
            return penalties.hypersparse(vector, keep_count(vector.numel(), self.sparsity))
        return (penalties.l1 if self.penalty == "l1" else penalties.l2)(vector)

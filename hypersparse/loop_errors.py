"""Errors and warnings about a user's training loop: missing calls, and calls that cannot work."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from hypersparse.errors import LoopError
from hypersparse.methods.base import Phase
from hypersparse.plurals import how_many

if TYPE_CHECKING:
    from hypersparse.sparsifier import Sparsifier

ADDED_BY_THE_STEP = (
    "The optimizer's step adds the penalty's gradient: remove `sparsifier.penalty()` from the loss, or attach with "
    '`penalty="loss"`.'
)


@dataclass
class LoopCalls:
    """Counts of what happened in one epoch."""

    steps: int = 0
    penalties: int = 0
    distillations: int = 0

    def check(self, plan: Sequence[Phase], *, observed: int, penalty_in_loss: bool, own_loop: bool) -> None:
        """Raise an error about a missing call at the end of an epoch; `observed` counts samples."""
        if self.steps == 0:
            raise LoopError(
                "The optimizer made no step in this epoch; call `step()` of the optimizer that `attach` was given."
            )
        if penalty_in_loss and self.penalties == 0 and any(phase.rules.penalty is not None for phase in plan):
            raise LoopError(
                "`sparsifier.penalty()` was not called in this epoch; "
                "add it to the loss: `loss = criterion(...) + sparsifier.penalty()`."
            )
        if not own_loop and self.distillations == 0 and any(phase.rules.extra_loss is not None for phase in plan):
            raise LoopError(
                "`sparsifier.distillation_loss(inputs, outputs)` was not called in this epoch; add it to the loss."
            )
        if observed == 0 and any(phase.requires.observe for phase in plan):
            raise LoopError(
                "The method compares with the score seen while training: call "
                "`sparsifier.observe(outputs, labels)` in every step, or for ART pass stop_reference='paper'."
            )


def check_begun(optimizer: Optimizer) -> None:
    """Raise an error for a step before the first epoch; one at the rate 0 only creates the optimizer's state."""
    if any(float(group.get("lr", 1.0)) != 0.0 for group in optimizer.param_groups):
        raise LoopError(
            "The optimizer steps, and no epoch of the plan has begun: iterate over `sparsifier.epochs()`, or attach "
            "with `steps_per_epoch=len(loader)`."
        )


def check_clock(counts_steps: bool) -> None:
    """Raise an error where the loop begins or ends an epoch that is made of steps."""
    if counts_steps:
        raise LoopError("With `steps_per_epoch` the optimizer's steps begin and end the epochs; remove this call.")


def check_acted(phase: Phase, steps: int) -> None:
    """Warn at the end of a phase that was shorter than the method's interval."""
    if phase.on_step is not None and 0 < steps < phase.on_step.every:
        warnings.warn(
            f"Phase {phase.name} had {how_many(steps, 'step')}, too few for what the method does in every "
            f"{phase.on_step.every}th, such as moving weights: it was never done. Lower `every`.",
            stacklevel=2,
        )


def warn_if_cut(sparsifier: "Sparsifier") -> None:
    """Warn that a loop ended before its plan did."""
    if sparsifier.done or not (sparsifier.is_open or sparsifier.total_epoch > 0):
        return
    phase, epoch = sparsifier.phase, sparsifier.state.epoch + sparsifier.is_open
    sparse = sparsifier.is_sparse or sparsifier.sparsity is None
    dense = "" if sparse else ": the network does not have its sparsity yet"
    warnings.warn(
        f"The training ended in phase {phase.name}, epoch {epoch} of at most {phase.epochs}, before its plan{dense}. "
        "Train to the end of the plan, or save `sparsifier.state_dict()` and go on later.",
        stacklevel=3,
    )

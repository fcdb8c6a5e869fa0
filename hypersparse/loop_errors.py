"""Errors and warnings about a user's training loop: missing calls, and calls that cannot work."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypersparse.errors import LoopError
from hypersparse.methods.base import Phase


@dataclass
class LoopCalls:
    """Counts of the required calls in one epoch."""

    steps: int = 0
    penalties: int = 0
    optimizer_steps: int = 0

    def check(self, plan: Sequence[Phase], *, observed: int) -> None:
        """Raise an error about a missing call at the end of an epoch; `observed` counts samples."""
        if self.steps == 0:
            raise LoopError("`sparsifier.step()` was not called in this epoch; call it after `optimizer.step()`.")
        if self.steps < self.optimizer_steps:
            raise LoopError(
                f"`optimizer.step()` was called {self.optimizer_steps} times in this epoch, but `sparsifier.step()` "
                f"{self.steps}: call it after each of them, since an optimizer may move dropped weights."
            )
        if self.penalties == 0 and any(phase.penalty is not None for phase in plan):
            raise LoopError(
                "`sparsifier.penalty()` was not called in this epoch; "
                "add it to the loss: `loss = criterion(...) + sparsifier.penalty()`."
            )
        if observed == 0 and any(phase.requires.observe for phase in plan):
            raise LoopError(
                "The method compares with the score seen while training: call "
                "`sparsifier.observe(outputs, labels)` in every step, or for ART pass stop_reference='paper'."
            )


def check_acted(phase: Phase, steps: int) -> None:
    """Warn at the end of a phase that was shorter than the method's interval."""
    if phase.on_step is not None and 0 < steps < phase.on_step.every:
        warnings.warn(
            f"Phase {phase.name} had {steps} steps, too few for what the method does in every {phase.on_step.every}th, "
            "such as moving weights: it was never done. Lower `every`.",
            stacklevel=2,
        )


def check_closure(closure: Any) -> None:
    """Raise an error for a closure in a step around which the method changes the weights."""
    if closure is not None:
        raise LoopError(
            "This method changes the weights around the optimizer's step, and a closure would compute its loss with "
            "those: call `backward()` first, and then `optimizer.step()` without one."
        )

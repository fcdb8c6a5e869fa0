"""`SparsifierDriver`: what our own steps ask of a sparsifier beyond what a user's loop does."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from torch import Tensor

from hypersparse.sparsifier import Sparsifier
from hypersparse.training.flat_memory import FlatMemory


class SparsifierDriver:
    """Adds penalty gradients in place, finishes steps, and keeps count of those that are repeated or do not count."""

    def __init__(self, sparsifier: Sparsifier, memory: FlatMemory) -> None:
        self.sparsifier, self.memory = sparsifier, memory
        self._warming_up = False

    @property
    def method_acts(self) -> bool:
        """Whether the method does something of its own in the coming step."""
        return not self._warming_up and self.sparsifier.phase.acts_in(self.sparsifier.state.step)

    @property
    def optimizer_steps(self) -> bool:
        """Whether the optimizer makes the coming step, which the method may replace."""
        on_step = self.sparsifier.phase.on_step
        return not (self.method_acts and on_step is not None and on_step.replaces_step)

    def around_gradient(self) -> AbstractContextManager[None]:
        """Around the forward and the backward pass of a step."""
        around = self.sparsifier.phase.around_gradient
        return nullcontext() if around is None else around(self.sparsifier.state)

    def add_penalty_gradient_(self) -> None:
        """Add the penalty's gradient to the weights' after `backward()`, once a step."""
        sparsifier = self.sparsifier
        if sparsifier.phase.penalty is not None:
            self.memory.add_gradient_of_(partial(sparsifier.phase.penalty, sparsifier.state))

    def finish_step(self, scores: Tensor, samples: int) -> None:
        """After the optimizer's step: the mask holds again, and the scores of the batch are known."""
        if self._warming_up:
            self.sparsifier.weights.apply_mask_()
        else:
            self.sparsifier.finish_step()
        self.sparsifier.state.observed.add(scores, samples)

    def repeat_step(self, samples: int) -> None:
        """Count a step whose work a recorded graph has done again."""
        state, calls = self.sparsifier.state, self.sparsifier.calls
        calls.steps += 1
        state.step += 1
        state.observed.count += samples

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Steps inside the block do not count, and what they observed is forgotten."""
        calls, observed = replace(self.sparsifier.calls), self.sparsifier.state.observed
        total, count = observed.total.clone(), observed.count
        self._warming_up = True
        try:
            yield
        finally:
            self._warming_up = False
            self.sparsifier.calls = calls
            observed.total.copy_(total)
            observed.count = count

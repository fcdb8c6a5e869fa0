"""`SparsifierDriver`: operations on a sparsifier that only the package's own steps need."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from torch import Tensor

from hypersparse.sparsifier import Sparsifier
from hypersparse.training.flat_memory import FlatMemory


class SparsifierDriver:
    """Adds penalty gradients in place, finishes steps, and counts replayed and warm-up steps."""

    def __init__(self, sparsifier: Sparsifier, memory: FlatMemory) -> None:
        self.sparsifier, self.memory = sparsifier, memory
        self._warming_up = False

    @property
    def method_acts(self) -> bool:
        """Whether the method acts in the next step."""
        return not self._warming_up and self.sparsifier.phase.acts_in(self.sparsifier.state.step)

    @property
    def optimizer_steps(self) -> bool:
        """Whether the optimizer makes the next step, which the method may replace."""
        on_step = self.sparsifier.phase.on_step
        return not (self.method_acts and on_step is not None and on_step.replaces_step)

    def around_gradient(self) -> AbstractContextManager[None]:
        """Wraps the forward and the backward pass of a step."""
        around = self.sparsifier.phase.rules.around_gradient
        return nullcontext() if around is None else around(self.sparsifier.state)

    def add_penalty_gradient_(self) -> None:
        """Add the penalty's gradient to the weights' gradients, once per step after `backward()`."""
        sparsifier = self.sparsifier
        if sparsifier.phase.rules.penalty is not None:
            self.memory.add_gradient_of_(partial(sparsifier.phase.rules.penalty, sparsifier.state))

    def finish_step(self, scores: Tensor, samples: int) -> None:
        """Apply the mask and add the scores of the batch, after the optimizer's step."""
        if self._warming_up:
            if self.memory.copy is None:  # else the optimizer's step did
                self.sparsifier.weights.apply_mask_()
        else:
            self.sparsifier.finish_step()
        self.sparsifier.state.observed.add(scores, samples)

    def repeat_step(self, samples: int) -> None:
        """Count a step that was replayed."""
        state, calls = self.sparsifier.state, self.sparsifier.calls
        calls.steps += 1
        state.step += 1
        state.observed.count += samples

    @contextmanager
    def warm_up(self) -> Iterator[None]:
        """Steps inside the block are not counted, and their scores are discarded."""
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

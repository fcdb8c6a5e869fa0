"""`FlatMemory`: all prunable weights in one contiguous tensor, and their gradients in another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from hypersparse.errors import ModelError
from hypersparse.penalty_gradient import add_parts_, value_and_gradient
from hypersparse.sparsity.weights import PrunableWeights


class FlatMemory:
    """The memory of all prunable weights and of their gradients, for a loop that owns its model.

    One kernel can then process all weights. `values` is None if the weights stay separate. The reason is several types,
    or weights that would not start at a multiple of 16 bytes, where kernels are slow.
    """

    def __init__(self, weights: PrunableWeights) -> None:
        self.weights = weights
        self.values: Tensor | None = None
        self.copy: Tensor | None = None  # of `values` in another type, where the optimizer keeps it up to date
        self._gradients: tuple[Tensor, list[Tensor]] | None = None  # their memory, and its parts
        self._defers = False
        self._deferred: Tensor | None = None
        if _can_be_flat(list(weights.values())):
            self._flatten_()

    def _flatten_(self) -> None:
        weights = self.weights
        first = next(iter(weights.values()))
        self.values = torch.empty(weights.total, dtype=first.dtype, device=first.device)
        for weight, part in zip(weights.values(), self.split(self.values), strict=True):
            part.copy_(weight.detach())
            weight.data = part
        dropped = torch.empty_like(self.values, dtype=torch.bool)
        weights.use_memory_(self.values, dropped, self.split(dropped))

    @property
    def gradients(self) -> Tensor | None:
        """The flat gradients, if `copy_gradients_` was the last to set them."""
        if self._gradients is None:
            return None
        memory, parts = self._gradients
        pairs = zip(self.weights.values(), parts, strict=True)
        return memory if all(weight.grad is part for weight, part in pairs) else None

    def split(self, vector: Tensor) -> list[Tensor]:
        """Split a vector with the layout of `values`, or of `weights.vector()` without them, into layers."""
        weights = list(self.weights.values())
        parts = torch.split(vector, [weight.numel() for weight in weights])
        if self.values is None:
            return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]
        # In one stretch of memory a weight keeps its own order, which may be channels-last.
        return [part.as_strided(weight.shape, weight.stride()) for part, weight in zip(parts, weights, strict=True)]

    @contextmanager
    def keeping(self, copy: Tensor | None) -> Iterator[None]:
        """In the block the optimizer's steps apply the mask and write the new weights to `copy` too, unless None."""
        self.copy = copy
        try:
            self.refresh_(copy)
            yield
        finally:
            self.copy = None

    def refresh_(self, copy: Tensor | None) -> None:
        """Copy the weights to `copy`, unless None, after they were changed but by the optimizer."""
        if copy is not None and self.values is not None:
            with torch.no_grad():
                copy.copy_(self.values)

    def copy_gradients_(self, gradients: Sequence[Tensor]) -> None:
        """Set copies of these as the gradients of flat weights, in one contiguous tensor."""
        if self.values is None:
            raise ModelError("The weights' gradients lie in one memory only where the weights do, and these could not.")
        if self._gradients is None:
            memory = torch.empty_like(self.values)
            self._gradients = memory, self.split(memory)
        with torch.no_grad():
            torch._foreach_copy_(self._gradients[1], list(gradients))
        self._set_gradients_()

    def use_gradients_(self, memory: Tensor) -> None:
        """Set the parts of this vector, which has the layout of `values`, as the gradients of flat weights."""
        if self._gradients is None or self._gradients[0] is not memory:
            self._gradients = memory, self.split(memory)
        self._set_gradients_()

    def _set_gradients_(self) -> None:
        self._deferred = None  # of a step that nobody made
        for weight, part in zip(self.weights.values(), self._gradients[1] if self._gradients else (), strict=True):
            weight.grad = part

    def add_gradient_of_(self, penalty: Callable[[Tensor], Tensor]) -> None:
        """Add the gradient of a penalty on the vector of all weights, or keep it for the optimizer."""
        _, gradient = value_and_gradient(penalty, self.weights.vector() if self.values is None else self.values)
        if gradient is None:
            return
        if self._defers and self.gradients is not None and self._deferred is None:
            self._deferred = gradient
        else:
            self.add_to_gradients_(gradient)

    def defer_penalty_gradient_(self) -> None:
        """From now on leave the penalty's gradient to the optimizer's step if gradients are flat."""
        self._defers = True

    def take_penalty_gradient(self) -> Tensor | None:
        """The gradient that was left to the optimizer, with the layout of `values`; or None."""
        waiting, self._deferred = self._deferred, None
        return waiting

    def add_to_gradients_(self, gradient: Tensor) -> None:
        """Add a flat vector to the weights' gradients."""
        if (memory := self.gradients) is not None:
            memory.add_(gradient)
        else:
            add_parts_(list(self.weights.values()), self.split(gradient))


def _can_be_flat(weights: Sequence[Tensor]) -> bool:
    aligned = all(weight.numel() * weight.element_size() % 16 == 0 for weight in weights[:-1])
    alike = len({(weight.dtype, weight.device) for weight in weights}) == 1
    return aligned and alike and all(map(_is_dense, weights))


def _is_dense(weight: Tensor) -> bool:
    """Whether the weight fills its memory without gaps, in any order."""
    return weight.is_contiguous() or (weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last))

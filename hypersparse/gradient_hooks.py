"""`GradientHooks`: a phase's `around_gradient` in a user's loop, from the forward pass to the optimizer's step."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from hypersparse.sparsifier import Sparsifier


class GradientHooks:
    """Enters the context before a forward pass for training, and leaves it before the optimizer steps."""

    def __init__(self, sparsifier: "Sparsifier", model: nn.Module) -> None:
        self._sparsifier: Sparsifier | None = sparsifier
        self._context: AbstractContextManager[None] | None = None
        self._handle = model.register_forward_pre_hook(self._before_forward)

    def leave(self) -> None:
        """Leave the context, if a forward pass has entered it."""
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(None, None, None)

    def remove(self) -> None:
        """Leave the model alone from now on."""
        self.leave()
        self._handle.remove()

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the model has hooks that do nothing."""
        return {"_sparsifier": None, "_context": None, "_handle": None}

    def _before_forward(self, model: nn.Module, _: Any) -> None:
        if not (model.training and torch.is_grad_enabled()):
            self.leave()  # after a step that was left out, as a GradScaler does
            return
        sparsifier = self._sparsifier
        if sparsifier is None or self._context is not None or not sparsifier.is_open:
            return
        if (around := sparsifier.phase.rules.around_gradient) is not None:
            self._context = around(sparsifier.state)
            self._context.__enter__()

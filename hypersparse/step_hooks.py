"""`StepHooks`: what a sparsifier does around every step of an optimizer, registered as its hooks."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hypersparse.errors import LoopError
from hypersparse.penalty_gradient import add_penalty_gradient_

if TYPE_CHECKING:
    from hypersparse.sparsifier import Sparsifier

Closure = Callable[[], Any]


class StepHooks:
    """Adds the penalty's gradient before a step, and counts the step and applies the mask after it.

    Around the whole step only: torch also calls the hooks for a step that calls its parent's. Where the loop does all
    this itself, as the package's own engine does, what remains is the phase's `around_step`.
    """

    def __init__(self, sparsifier: "Sparsifier", optimizer: Optimizer) -> None:
        hooks = optimizer._optimizer_step_post_hooks.values()
        if any(isinstance(getattr(hook, "__self__", None), StepHooks) for hook in hooks):
            raise LoopError(
                "This optimizer has a sparsifier already; call its `detach()` first, or pass the new model's optimizer."
            )
        if not getattr(type(optimizer).step, "hooked", False):  # a wrapper that leaves out Optimizer.__init__
            optimizer._patch_step_function()
        self._sparsifier, self._optimizer = sparsifier, optimizer
        self._around: AbstractContextManager[None] | None = None  # the phase's, while the optimizer steps
        self._depth = 0  # of steps inside the step at hand
        self._outermost: FrameType | None = None  # where the step at hand runs
        self._handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    def remove(self) -> None:
        """Leave the optimizer alone from now on."""
        for handle in self._handles:
            handle.remove()

    def _before(self, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return None if _only_makes_state(sys._getframe(1)) else self._enter(args, kwargs, sys._getframe(1))

    def _enter(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        if self._depth and not _is_running(self._outermost):  # an earlier step ended with an error
            self._depth = 0
            if self._around is not None:
                raise LoopError(
                    "An earlier step of the optimizer failed while this method had changed the weights around it; load "
                    "your last checkpoint."
                )
        self._depth += 1
        if self._depth > 1:
            return None
        self._outermost = frame
        sparsifier = self._sparsifier
        sparsifier.leave_gradient()
        sparsifier.before_step()
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not sparsifier.is_open:
            return None
        changed = None
        if not callable(closure):
            self._add_penalty_gradient_()
        elif len(args) > 1:
            changed = (args[0], self._wrapped(closure), *args[2:]), kwargs
        else:
            changed = args, {**kwargs, "closure": self._wrapped(closure)}
        if sparsifier.phase.rules.around_step is not None:
            self._around = sparsifier.phase.rules.around_step(sparsifier.state)
            self._around.__enter__()
        return changed

    def _after(self, *_: Any) -> None:
        made = _only_makes_state(sys._getframe(1))
        self._depth -= not made
        if self._depth == 0 and not made:
            self._outermost = None
            self._sparsifier.after_optimizer()
            if self._around is not None:
                self._around.__exit__(None, None, None)
                self._around = None
            self._sparsifier.after_step()

    def _wrapped(self, closure: Closure) -> Closure:
        """The closure, which also adds the penalty's gradient."""
        phase = self._sparsifier.phase
        if phase.rules.around_step is None and phase.rules.around_gradient is None:
            return partial(self._call, closure)
        with torch.enable_grad():
            return _OnlyOnce(self._call(closure))

    def _call(self, closure: Closure) -> Any:
        loss = closure()
        self._sparsifier.leave_gradient()
        penalty = self._add_penalty_gradient_()
        # The value matters to optimizers that search along a line.
        return loss if penalty is None or not isinstance(loss, Tensor | float) else loss + penalty

    def _add_penalty_gradient_(self) -> Tensor | None:
        sparsifier = self._sparsifier
        if sparsifier.penalty_mode != "gradient" or sparsifier.phase.rules.penalty is None:
            return None
        # A GradScaler leaves gradients scaled for a fused optimizer, which divides them itself.
        scale = getattr(self._optimizer, "grad_scale", None)
        penalty = partial(sparsifier.phase.rules.penalty, sparsifier.state)
        return add_penalty_gradient_(sparsifier.weights, penalty, scale=scale)


def stepping(optimizer: Optimizer) -> Optimizer:
    """The optimizer that makes the steps, which has torch's hooks; Accelerate, for one, gives a wrapper around it."""
    while not hasattr(optimizer, "_optimizer_step_post_hooks"):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, Optimizer):
            raise LoopError(f"{type(optimizer).__name__} has no step hooks; pass the torch.optim.Optimizer in it.")
        optimizer = inner
    return optimizer


class _OnlyOnce:
    """A closure that was called before the method changed the weights."""

    def __init__(self, loss: Any) -> None:
        self._loss, self._called = loss, False

    def __call__(self) -> Any:
        if self._called:
            raise LoopError(
                "This method changes the weights around the optimizer's step, so the closure cannot be called again. "
                "Use an optimizer that calls it once, such as SGD or AdamW."
            )
        self._called = True
        return self._loss


def _only_makes_state(frame: FrameType | None) -> bool:
    """Whether torch.distributed.checkpoint steps, at the rate 0, so that an optimizer has state to load into."""
    for _ in range(3):  # with a learning rate scheduler there is a call between
        frame = frame.f_back if frame is not None else None
        if frame is not None and frame.f_code.co_name == "_init_optim_state":
            return True
    return False


def _is_running(frame: FrameType | None) -> bool:
    """Whether this call has not ended."""
    current: FrameType | None = sys._getframe(1)
    while current is not None and current is not frame:
        current = current.f_back
    return current is not None

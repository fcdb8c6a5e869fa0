"""What `attach` checks before any training."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from hypersparse.errors import OptionError
from hypersparse.methods.base import Method, Phase


def check_arguments(method: Any, *, task: Any, penalty: Any, extra_prunable: Any, input_shape: Any) -> None:
    """Raise an error about an argument of another type."""
    if not isinstance(method, Method):
        raise OptionError(f"`method` is one with its options, such as ART(sparsity=0.98); got {method!r}.")
    if task is not None and not hasattr(task, "score"):
        raise OptionError(f"`task` is Task(criterion, loader); got {type(task).__name__}.")
    if penalty not in ("gradient", "loss"):
        raise OptionError(f"`penalty` is 'gradient' or 'loss'; got {penalty!r}.")
    if extra_prunable is not None and not isinstance(extra_prunable, Mapping):
        raise OptionError(f"`extra_prunable` is {{ModuleType: ('weight',)}}; got {type(extra_prunable).__name__}.")
    if input_shape is not None and not (isinstance(input_shape, Sequence) and all(map(_is_count, input_shape))):
        raise OptionError(f"`input_shape` is that of one input, such as (3, 32, 32); got {input_shape!r}.")


def check_counts(*, epochs: Any, steps_per_epoch: Any, max_steps: Any) -> None:
    """Raise an error about a length that is not a count, or that is given without what it needs."""
    if not _is_count(epochs):
        raise OptionError(f"`epochs` counts epochs of the main training, 0 or more; got {epochs}.")
    for name, steps in {"steps_per_epoch": steps_per_epoch, "max_steps": max_steps}.items():
        if steps is not None and not (_is_count(steps) and steps > 0):
            raise OptionError(f"`{name}` counts optimizer steps, 1 or more; got {steps}.")
    if max_steps is not None and steps_per_epoch is None:
        raise OptionError(
            "`max_steps` bounds a plan whose epochs are counted in steps; pass `steps_per_epoch`, such as len(loader)."
        )


def check_plan(method: Method, plan: Sequence[Phase], *, epochs: int) -> None:
    """Raise an error if no epochs are left for what makes the mask."""
    empty = [phase for phase in plan if epochs == 0 == phase.epochs]
    if lost := [phase.name for phase in empty if phase.on_enter or phase.on_epoch_start]:
        raise OptionError(
            f"With `epochs` 0 the phase `{lost[0]}` of {type(method).__name__} is left out, and with it what it begins "
            "with, such as a choice of weights to keep; pass 1 or more."
        )


def _is_count(number: Any) -> bool:
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) >= 0

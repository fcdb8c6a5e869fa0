"""`attach`: the way into anybody's own training loop."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from torch import nn
from torch.optim import Optimizer

from hypersparse.errors import OptionError
from hypersparse.methods.ablation import Ablation
from hypersparse.methods.base import Method
from hypersparse.methods.task import Task
from hypersparse.plan import plan_of
from hypersparse.sparsifier import Sparsifier
from hypersparse.sparsity.collapse import OnCollapse
from hypersparse.sparsity.schedules import Schedule
from hypersparse.sparsity.weights import PrunableModules


def attach(
    model: nn.Module,
    optimizer: Optimizer,
    method: Method,
    *,
    epochs: int,
    task: Task | None = None,
    lr: Schedule | None = None,
    accumulation_steps: int = 1,
    trained: bool = False,
    extra_prunable: PrunableModules | None = None,
    input_shape: tuple[int, ...] | None = None,
    on_collapse: OnCollapse = "warn",
    ablation: Ablation | None = None,
) -> Sparsifier:
    """Make a model sparse inside your own training loop.

    `epochs` is the length of the main training (ART: of the fine-tuning). `lr` is a factor on the optimizer's learning
    rate as a function of progress through a phase, such as `schedules.cosine`; without one the rate stays as it is.
    `accumulation_steps` is the number of backward passes before each optimizer step. `trained=True` says that the model
    comes trained, so that pre-training is left out. `extra_prunable` names further module types with prunable weights.
    `on_collapse` says what happens when a mask leaves a layer without weights or, if `input_shape` tells the shape of
    one input, no path from input to output. `ablation` takes something away from what the method found, to see whether
    it mattered.
    """
    if not isinstance(method, Method):
        raise OptionError(f"`method` is one with its options, such as ART(sparsity=0.98); got {method!r}.")
    if not _is_count(epochs):
        raise OptionError(f"`epochs` counts epochs of the main training, 0 or more; got {epochs}.")
    if ablation is not None and ablation.name == "narrow":
        raise OptionError("The ablation `narrow` builds another network, and attach has yours: train a recipe instead.")
    if task is not None and not hasattr(task, "score"):
        raise OptionError(f"`task` is Task(criterion, loader); got {type(task).__name__}.")
    if extra_prunable is not None and not isinstance(extra_prunable, Mapping):
        raise OptionError(f"`extra_prunable` is {{ModuleType: ('weight',)}}; got {type(extra_prunable).__name__}.")
    if input_shape is not None and not (isinstance(input_shape, Sequence) and all(map(_is_count, input_shape))):
        raise OptionError(f"`input_shape` is that of one input, such as (3, 32, 32); got {input_shape!r}.")
    plan = plan_of(method, epochs=epochs, trained=trained, ablation=ablation)
    if lost := [phase.name for phase in plan if epochs == 0 == phase.epochs and (phase.enter or phase.begin)]:
        raise OptionError(
            f"With `epochs` 0 the phase `{lost[0]}` of {type(method).__name__} is left out, and with it what it begins "
            "with, such as a choice of weights to keep; pass 1 or more."
        )
    wanted = getattr(method, "sparsity", None)
    return Sparsifier(
        model,
        optimizer,
        plan,
        task=task,
        lr=lr,
        accumulation_steps=accumulation_steps,
        extra_prunable=extra_prunable,
        input_shape=input_shape,
        on_collapse=on_collapse,
        sparsity=float(wanted) if isinstance(wanted, Real) else None,
    )


def _is_count(number: Any) -> bool:
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) >= 0

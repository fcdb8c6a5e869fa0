"""What `attach` checks before any training."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from torch import nn
from torch.optim import Optimizer

from hypersparse.distributed.shards import is_sharded
from hypersparse.errors import LoopError, ModelError, OptionError
from hypersparse.methods.ablation import Ablation
from hypersparse.methods.base import Method, Phase
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.techniques.options import Techniques


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


def check_weights(weights: PrunableWeights, optimizer: Optimizer) -> None:
    """Raise an error about weights without values, or none of which the optimizer moves."""
    for name, weight in weights.items():
        if weight.is_meta:
            raise ModelError(
                f"`{name}` is on the meta device and has no values; load the weights, or call "
                "`model.to_empty(device=...)` and initialize them, before `attach`."
            )
    moved = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not any(id(weight) in moved for weight in weights.values()):
        raise LoopError(
            f"The optimizer holds none of the prunable weights of {type(weights.model).__name__}: it is another "
            "model's, or holds copies. Make it from this model's `parameters()`, after the model was moved or wrapped."
        )


def check_plan(method: Method, plan: Sequence[Phase], *, epochs: int, steps_per_epoch: int | None) -> None:
    """Raise an error if no epochs are left for what makes the mask, or if their length is not known and needed."""
    if steps_per_epoch is None and any(phase.requires.steps for phase in plan):
        raise OptionError(
            f"{type(method).__name__} with these options counts steps; pass `steps_per_epoch`, such as len(loader)."
        )
    empty = [phase for phase in plan if epochs == 0 == phase.epochs]
    if lost := [phase.name for phase in empty if phase.on_enter or phase.on_epoch_start]:
        raise OptionError(
            f"With `epochs` 0 the phase `{lost[0]}` of {type(method).__name__} is left out, and so are its actions, "
            "such as pruning. Pass 1 or more."
        )


def check_wrapper(model: nn.Module) -> None:
    """Raise an error about a wrapper that hides the weights."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise ModelError(
            "FullyShardedDataParallel flattens the weights, so that none has its shape; shard the model by "
            "`torch.distributed.fsdp.fully_shard` instead."
        )


def check_sharding(
    method: Method, weights: PrunableWeights, *, ablation: Ablation | None, penalty: str, techniques: Techniques
) -> None:
    """Raise an error if a method cannot work where `fully_shard` spreads the weights over ranks."""
    if weights.shard_group is None:
        return
    if not method.sharded:
        raise OptionError(
            f"{type(method).__name__} needs whole weights on every rank, and `fully_shard` has spread them. Take "
            "DistributedDataParallel, or ART, Magnitude, GMP, RigL or SNIP."
        )
    if ablation is not None or penalty == "loss" or techniques != Techniques():
        raise OptionError(
            "Where `fully_shard` spreads the weights, there are no ablations and no techniques, and the step adds the "
            'penalty; leave out `ablation`, `techniques` and `penalty="loss"`.'
        )


def check_in_place(weights: PrunableWeights) -> None:
    """Raise an error if the model has other parameters than when it was attached."""
    if weights.shard_group is None and is_sharded(dict(weights.model.named_parameters())):
        raise LoopError(
            "`fully_shard` has replaced the weights after `attach`. Call it first, then make the optimizer and attach."
        )


def check_teacher(techniques: Techniques, teacher: Any) -> None:
    """Raise an error about a teacher that nothing is learned from, or a file of one, which only recipes read."""
    if techniques.given_teacher:
        raise OptionError("`attach` takes a teacher as a module; pass `teacher=model` instead of the file of one.")
    if teacher is not None and not techniques.distill:
        raise OptionError("`teacher` is for the technique `distill`; pass techniques=Techniques(distill=1.0).")


def _is_count(number: Any) -> bool:
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) >= 0

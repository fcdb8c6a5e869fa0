"""Ablations: remove one property of a method's result, to measure its contribution.

They act on the final mask at the start of the last phase, for any method.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hypersparse.errors import OptionError
from hypersparse.methods.base import Phase, TrainingState, action_name
from hypersparse.options import option, options
from hypersparse.plurals import how_many
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.selection import all_tensors

REMEMBERING = ("redraw", "positions", "rewind")  # those that come back to earlier weights


@options
class Ablation:
    """The property of a method's result that is removed before the last phase."""

    name: Literal["none", "shuffle", "redraw", "positions", "rewind"] = option(
        default="none",
        help="`shuffle` each layer's mask with its weights, `redraw` the weights, draw new `positions` in each layer, "
        "or `rewind` the weights to an epoch.",
    )
    rewind_epoch: int = option(default=0, help="For `rewind`: weights as before this epoch of the run, from 0.", ge=0)

    def __post_init__(self) -> None:
        if self.rewind_epoch and self.name != "rewind":
            raise OptionError(f"`rewind_epoch` belongs to the ablation `rewind`; this one is `{self.name}`.")


@dataclass
class EarlierWeights:
    """The weights to restore, once stored, and the count of epochs begun so far."""

    epochs: int = 0
    tensors: dict[str, Tensor] | None = None


def ablated(plan: Sequence[Phase], ablation: Ablation, *, epochs: int) -> list[Phase]:
    """The plan with the ablation.

    If the last phase of a plan changes the mask or continues an earlier training, a phase `retrain` of `epochs` epochs
    is appended. The mask is final only then, and the network has a whole training to recover.
    """
    if ablation.name == "none":
        return list(plan)
    last = plan[-1]
    if last.on_epoch_start or last.on_step or last.on_exit or (last.lr.schedule_start and not last.reset_optimizer):
        plan = [*plan, Phase("retrain", epochs=epochs)]
    *earlier, last = plan
    _check_rewind(ablation, earlier)
    if ablation.name in REMEMBERING:
        earlier = [_remembering(phase, ablation) for phase in earlier]
    return [*earlier, _ablating(last, ablation)]


def _check_rewind(ablation: Ablation, earlier: Sequence[Phase]) -> None:
    most = sum(phase.epochs for phase in earlier)
    if ablation.rewind_epoch > most:
        raise OptionError(
            f"`rewind_epoch` is an epoch before the last phase, which begins after at most {most}; "
            f"got {ablation.rewind_epoch}."
        )


def _ablating(last: Phase, ablation: Ablation) -> Phase:
    """The last phase, which ablates the method's mask first."""

    def enter(state: TrainingState) -> None:
        if ablation.name in REMEMBERING:
            _note_epoch(state, ablation.rewind_epoch)
        if last.on_enter is not None:
            last.on_enter(state)
        if state.weights.mask is None:
            raise OptionError(
                f"The ablation `{ablation.name}` is of a mask, and this method has made none; take one that prunes."
            )
        _ACTIONS[ablation.name](state, state.weights.mask)
        state.memory.pop(EarlierWeights)

    enter.__name__ = "_and_".join(filter(None, (action_name(last.on_enter), ablation.name)))
    return replace(last, on_enter=enter, reset_optimizer=True, cache_key=None)


def _remembering(phase: Phase, ablation: Ablation) -> Phase:
    """The phase, which also stores the weights before the epoch to restore."""

    def enter(state: TrainingState) -> None:
        _note_epoch(state, ablation.rewind_epoch)
        if phase.on_enter is not None:
            phase.on_enter(state)

    def begin(state: TrainingState) -> None:
        if state.epoch > 0:  # otherwise noted on entering, before the method did anything
            _note_epoch(state, ablation.rewind_epoch)
        if phase.on_epoch_start is not None:
            phase.on_epoch_start(state)

    # What the method itself does then: to a plan that is told, the notes are nothing.
    enter.__name__, begin.__name__ = action_name(phase.on_enter), action_name(phase.on_epoch_start)
    cache_key = phase.cache_key and f"{phase.cache_key}; remembers the weights of epoch {ablation.rewind_epoch}"
    return replace(phase, on_enter=enter, on_epoch_start=begin, cache_key=cache_key)


def _note_epoch(state: TrainingState, wanted: int) -> None:
    earlier = state.memory.get(EarlierWeights) or EarlierWeights()
    if earlier.epochs == wanted:
        earlier.tensors = {name: tensor.detach().clone() for name, tensor in all_tensors(state.weights.model).items()}
    earlier.epochs += 1
    state.memory.set(earlier)


def _shuffle(state: TrainingState, mask: Mask) -> None:
    """Permute every layer's weights together with its mask."""
    layers = {}
    with torch.no_grad():
        for name, weight in state.weights.items():
            order = _order(weight, state.generator)
            weight.copy_(weight.flatten()[order].view(weight.shape))
            layers[name] = mask[name].flatten()[order].view(weight.shape)
    state.weights.set_mask_(Mask(layers))


def _redraw(state: TrainingState, mask: Mask) -> None:
    """New initial weights under the same mask.

    Weights of a layer are drawn independently, so a permutation of the initial ones is a new draw.
    """
    _go_back_(state)
    with torch.no_grad():
        for weight in state.weights.values():
            weight.copy_(weight.flatten()[_order(weight, state.generator)].view(weight.shape))
    state.weights.set_mask_(mask)


def _draw_positions(state: TrainingState, mask: Mask) -> None:
    """Draw a random mask with the same count in each layer, with initial values."""
    _go_back_(state)
    layers = {}
    for name, kept in mask.kept_by_layer().items():
        layer = torch.zeros_like(mask[name])
        layer.view(-1)[_order(layer, state.generator)[:kept]] = True
        layers[name] = layer
    state.weights.set_mask_(Mask(layers))


def _rewind(state: TrainingState, mask: Mask) -> None:
    """Restore the weights of an earlier epoch, with norms, biases and statistics, under the same mask."""
    _go_back_(state)
    state.weights.set_mask_(mask)


_ACTIONS: dict[str, Callable[[TrainingState, Mask], None]] = {
    "shuffle": _shuffle,
    "redraw": _redraw,
    "positions": _draw_positions,
    "rewind": _rewind,
}


def _go_back_(state: TrainingState) -> None:
    earlier = state.memory.get(EarlierWeights)
    assert earlier is not None
    if earlier.tensors is None:
        raise OptionError(
            "`rewind_epoch` is an epoch before the last phase, which began after "
            f"{how_many(earlier.epochs - 1, 'epoch')} this time; choose one up to that."
        )
    tensors = all_tensors(state.weights.model)
    with torch.no_grad():
        for name, tensor in earlier.tensors.items():
            tensors[name].copy_(tensor)


def _order(layer: Tensor, generator: torch.Generator) -> Tensor:
    """A random permutation of a layer, drawn on the CPU to be the same on all devices."""
    return torch.randperm(layer.numel(), generator=generator).to(layer.device)

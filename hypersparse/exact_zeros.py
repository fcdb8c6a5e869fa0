"""`ExactZeros`: dropped weights are 0.0 after every step, also in copies that an optimizer keeps, or it is an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hypersparse.distributed.shards import local
from hypersparse.errors import LoopError
from hypersparse.methods.base import Phase
from hypersparse.plurals import how_many
from hypersparse.sparsity.weights import PrunableWeights

NEAR = 0.5  # a state tensor at less than this relative distance from its weight is a copy; no momentum ever is
KNOWN = {"z", "lookahead_slow_buff"}  # of schedule-free optimizers and timm's Lookahead: copies, however far they are
OF_AVERAGE = ("k", "weight_sum", "lr_max")  # what schedule-free optimizers count in their groups


class ExactZeros:
    """Counts dropped weights that are not 0.0, and masks an optimizer's copies of the weights."""

    def __init__(self, weights: PrunableWeights, optimizer: Optimizer) -> None:
        self._weights, self._optimizer = weights, optimizer
        self._compared: set[str] = set()  # keys of the optimizer's state
        self._near: dict[str, list[Tensor]] = {}  # by key, whether it is near the weights; read when an epoch ends
        self._copies: set[str] = set()  # keys that hold copies of the weights

    def check(self) -> None:
        """Raise an error where a dropped weight is not 0.0."""
        counts = self._weights.count_nonzero_dropped().tolist()
        if any(counts):
            first = next(name for name, count in zip(self._weights, counts, strict=True) if count)
            raise LoopError(
                f"{how_many(sum(counts), 'dropped weight is', 'dropped weights are')} not 0.0, the first in `{first}`. "
                "Something changed the weights after the optimizer's step, such as Lookahead around it, another "
                "optimizer or loaded weights. Attach to the outermost optimizer, or call "
                "`sparsifier.mask.apply_to_(model)` after it."
            )

    def find_copies(self) -> None:
        """Compare the optimizer's state with the weights, while these are as the optimizer has left them."""
        states = [(weight, state) for weight in self._weights.values() for state in _states(self._optimizer, weight)]
        keys = {key for weight, state in states for key in state if _fits(state[key], weight)} - self._compared
        self._copies |= keys & KNOWN
        for key in keys - KNOWN:
            pairs = [(weight, state[key]) for weight, state in states if _fits(state.get(key), weight)]
            self._near[key] = [_is_near(weight, value) for weight, value in pairs]
        self._compared |= keys

    def after_step(self, phase: Phase) -> None:
        """Mask the optimizer's copies too."""
        if self._copies and phase.rules.around_step is not None:
            raise LoopError(
                f"{type(self._optimizer).__name__} keeps a copy of the weights (`{min(self._copies)}`), and this "
                "method changes the weights around the optimizer's step; take another optimizer, such as AdamW."
            )
        if self._copies and self._weights.mask is not None:
            self._weights.zero_dropped_(self._copies_by_layer())

    def finish_epoch(self, phase: Phase) -> None:
        """At the end of an epoch: see which parts of the state are copies, and check the weights."""
        self._copies |= {key for key, near in self._near.items() if bool(torch.stack(near).any())}
        self._near.clear()
        self.after_step(phase)
        self.check()

    @contextmanager
    def following_weights(self) -> Iterator[None]:
        """If a method replaces kept weights inside the block, the optimizer copies them again."""
        before = self._weights.vector().detach() if self._copies else None
        yield
        if before is not None:
            after = self._weights.vector().detach()
            if bool(((after != before) & (after != 0)).any()):
                reset_optimizer_(self._optimizer)

    def _copies_by_layer(self) -> Iterator[tuple[str, Tensor]]:
        for name, weight in self._weights.items():
            for state in _states(self._optimizer, weight):
                yield from ((name, state[key]) for key in self._copies & state.keys())


def reset_optimizer_(optimizer: Optimizer) -> None:
    """Make it a fresh optimizer, but for its learning rate."""
    for holder in _holders(optimizer):
        holder.state.clear()
    for group in optimizer.param_groups:
        if group.keys() >= set(OF_AVERAGE):  # with the old counts the new average would hardly move
            group.update({name: optimizer.defaults[name] for name in OF_AVERAGE})


def _holders(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizer, and the one inside it, where it is a wrapper."""
    return [optimizer, *(inner for inner in vars(optimizer).values() if isinstance(inner, Optimizer))]


def _states(optimizer: Optimizer, weight: Tensor) -> list[dict[str, Any]]:
    return [holder.state[weight] for holder in _holders(optimizer) if weight in holder.state]


def _fits(value: Any, weight: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == weight.shape and value.is_floating_point()


@torch.no_grad()
def _is_near(weight: Tensor, value: Tensor) -> Tensor:
    own, other = local(weight).float(), local(value).to(weight.device).float()
    near: Tensor = (own - other).norm() < NEAR * own.norm()
    return near

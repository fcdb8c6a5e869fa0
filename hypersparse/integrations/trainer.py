"""Shared parts of the callbacks for trainers: a plan that fits the training, and the moment of pruning."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

from hypersparse.errors import OptionError
from hypersparse.methods.base import Method
from hypersparse.methods.phase_plan import plan_of, within
from hypersparse.plurals import how_many
from hypersparse.sparsifier import Sparsifier, attach
from hypersparse.sparsity.mask import Mask


class SparsityWatch:
    """Detects when the network reaches its sparsity; counts weights only after the mask changed."""

    def __init__(self, sparsifier: Sparsifier) -> None:
        self._sparsifier = sparsifier
        self._mask: Mask | None = sparsifier.mask
        self._reached = sparsifier.is_sparse

    def has_just_reached_it(self) -> bool:
        """Whether the network has its sparsity now and did not have it at the last call."""
        mask = self._sparsifier.mask
        if self._reached or mask is self._mask:
            return False
        self._mask, self._reached = mask, self._sparsifier.is_sparse
        return self._reached


def attach_within(
    model: nn.Module,
    optimizer: Optimizer,
    method: Method,
    *,
    epochs: int | None,
    steps: int | None,
    steps_per_epoch: int,
    trained: bool = False,
    **options: Any,
) -> Sparsifier:
    """Attach a method to a trainer that makes `steps` optimizer steps; None if they are unbounded.

    Without `epochs`, the main training takes as many epochs as fit, for methods with a plan of fixed length.
    """
    if steps is None:
        if epochs is None:
            raise OptionError(
                f"The trainer has no last epoch; pass `epochs`, the length of {_name(method)}'s training."
            )
    else:
        steps_per_epoch = min(steps_per_epoch, steps)
        available = steps // steps_per_epoch
        if epochs is None:
            epochs = _most_epochs(method, available, trained=trained)
        try:
            within(plan_of(method, epochs=epochs, trained=trained), available)
        except OptionError as error:
            raise OptionError(f"The plan does not fit the trainer's {how_many(available, 'epoch')}: {error}") from None
    return attach(
        model,
        optimizer,
        method,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        max_steps=steps,
        trained=trained,
        **options,
    )


def _most_epochs(method: Method, available: int, *, trained: bool) -> int:
    """The longest main training with which the whole plan fits into the available epochs."""
    for epochs in range(available, 0, -1):
        plan = plan_of(method, epochs=epochs, trained=trained)
        if any(phase.stop_when is not None for phase in plan):
            raise OptionError(
                f"{_name(method)} decides itself when to prune: pass `epochs`, how many of the trainer's {available} "
                "epochs are left for the fine-tuning."
            )
        if sum(phase.epochs for phase in plan) <= available:
            return epochs
    least = sum(phase.epochs for phase in plan_of(method, epochs=1, trained=trained))
    raise OptionError(
        f"{_name(method)} needs {how_many(least, 'epoch')} or more, and the trainer makes {available}; train longer."
    )


def _name(method: Method) -> str:
    return type(method).__name__

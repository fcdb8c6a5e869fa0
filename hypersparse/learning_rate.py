"""`LearningRate`: the learning rates of an optimizer across the phases of a plan."""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from hypersparse.errors import LoopError
from hypersparse.methods.base import Phase
from hypersparse.sparsity.schedules import Schedule

FOREIGN_SCHEDULE = (
    "The sparsifier sets the learning rate across phases. Remove the other scheduler and pass `attach(..., "
    "lr=schedule)`. A schedule is a factor as a function of progress in [0, 1), such as `hypersparse.schedules.cosine`."
)


class LearningRate:
    """Scales the initial rate of every parameter group; raises an error if other code changes a rate."""

    def __init__(self, optimizer: Optimizer, schedule: Schedule) -> None:
        self._optimizer, self._schedule = optimizer, schedule
        self._base = self._current()
        self._applied = list(self._base)
        self.check()

    @property
    def now(self) -> float:
        """The current rate of the first parameter group."""
        return self._applied[0]

    def set_(self, phase: Phase, epoch: int) -> None:
        """Set the rates for an epoch of a phase."""
        self.check()
        factor = phase.lr.factor(self._schedule, epoch, phase.epochs)
        self._base += self._current()[len(self._base) :]  # groups added since the last call
        self._applied = [base * factor for base in self._base]
        for group, lr in zip(self._optimizer.param_groups, self._applied, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def check(self) -> None:
        """Raise an error if other code has changed a rate."""
        if hasattr(self._optimizer.step, "_wrapped_by_lr_sched"):  # set by every torch.optim.lr_scheduler
            raise LoopError(FOREIGN_SCHEDULE)
        for current, set_to in zip(self._current(), self._applied, strict=False):
            if abs(current - set_to) > 1e-6 * abs(set_to):
                raise LoopError(f"The learning rate was {set_to:g} and is now {current:g}. " + FOREIGN_SCHEDULE)

    def state_dict(self) -> list[list[float]]:
        """The initial and the current rates of the groups."""
        return [list(self._base), list(self._applied)]

    def load_state_dict(self, saved: Any) -> None:
        """Restore a saved state."""
        self._base, self._applied = (list(lrs) for lrs in saved)

    def _current(self) -> list[float]:
        return [float(group["lr"]) for group in self._optimizer.param_groups]

"""`Method`, `Phase` and `TrainingState`: how a method says what happens when."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.errors import LoopError
from hypersparse.methods.task import RunningMean, Task
from hypersparse.sparsity.distributions import check_sparsity
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights

MISSING_TASK = "This method scores the network; pass `task=Task(criterion, loader)` to hypersparse.attach."
Sparsity = Annotated[float, AfterValidator(check_sparsity)]


@dataclass
class TrainingState:
    """What a method sees of the training: the network, its prunable weights, the moment, and a memory.

    `memory` holds what the method must remember, in tensors, numbers, strings, lists and dicts of
    these: it is saved with every checkpoint. `log` is what the method has to say about this epoch.
    """

    model: nn.Module
    optimizer: Optimizer
    weights: PrunableWeights
    given_task: Task | None = None
    epoch: int = 0  # in this phase
    step: int = 0  # optimizer steps finished in this phase
    memory: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device = self.weights.device
        self.epoch_tensor = torch.zeros((), device=device)  # filled in place: a captured step reads it
        self.observed = RunningMean(device)
        # For what a method draws; on the CPU, so that it draws the same everywhere. Saved with the rest.
        self.generator = torch.Generator().manual_seed(torch.initial_seed() % 2**63)

    @property
    def task(self) -> Task:
        """The task, which this method needs."""
        if self.given_task is None:
            raise LoopError(MISSING_TASK)
        return self.given_task


@dataclass(frozen=True)
class Phase:
    """A stretch of training in which every step has the same shape."""

    name: str
    epochs: int  # at most, where `until` may end it earlier
    enter: Callable[[TrainingState], None] | None = None
    leave: Callable[[TrainingState], None] | None = None
    penalty: Callable[[TrainingState, Tensor], Tensor] | None = None  # of the vector of all weights, added to the loss
    begin: Callable[[TrainingState], None] | None = None  # at the start of every epoch, also of the first
    adjust: Callable[[TrainingState], None] | None = None  # in every `adjust_every`-th step; gradients are there
    adjust_every: int = 1  # counted over the phase
    adjust_replaces_step: bool = False  # our own loop then leaves the optimizer's step out; a user's cannot
    before_step: Callable[[TrainingState], None] | None = None  # just before every optimizer step, gradients are there
    after_step: Callable[[TrainingState], None] | None = None  # just after it; both by the optimizer's own hooks
    learning: Callable[[TrainingState], Mask] | None = None  # which weights learn, where more do than the mask keeps
    until: Callable[[TrainingState], bool] | None = None  # asked after every epoch; True ends the phase
    restart: bool = False  # begin with a fresh optimizer
    hold_lr: bool = False  # the first learning rate throughout, instead of the schedule over this phase
    lr_factor: float = 1.0  # on all learning rates of this phase
    schedule_epochs: int | None = None  # the schedule's length, where it is not this phase's own
    schedule_start: int = 0  # the epoch of the schedule with which this phase begins
    pretraining: bool = False  # left out when the network comes trained
    shared: str | None = None  # all of the method that decides this phase: runs with an equal one train it once
    check: Callable[[PrunableWeights], None] | None = None  # raises at once if this cannot work on these weights
    needs_task: bool = False  # scores the network, so that `attach` must be given a task
    needs_observe: bool = False  # reads the score seen while training, so that the loop must call `observe`

    def adjusts_in(self, step: int) -> bool:
        """Whether the method adjusts something in this step of the phase."""
        return self.adjust is not None and (step + 1) % self.adjust_every == 0


class Method(ABC):
    """A way to make a network sparse: options, and the plan they make.

    Subclasses are decorated with `hypersparse.options.options` and have a `name` (their file's) and a `citation`.
    A run's record asks those that end with a fixed share of the weights for it by the field `sparsity`, and those
    with a penalty by `bare_penalty(vector)` for its value without a strength.
    """

    name: ClassVar[str]
    citation: ClassVar[str]

    @abstractmethod
    def plan(self, epochs: int) -> Sequence[Phase]:
        """The phases, in order; `epochs` is the length of the main training in the recipe."""

    def label(self) -> str:
        """A few readable words for folder names and tables."""
        return self.name

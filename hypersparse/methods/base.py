"""`Method`, `PruningMethod`, `Phase` and `TrainingState`: the plan of a method."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import AfterValidator
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.errors import LoopError
from hypersparse.methods.method_state import Memory
from hypersparse.methods.task import RunningMean, Task
from hypersparse.options import option, options
from hypersparse.sparsity.distributions import Distribution, check_sparsity, keep_count
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.schedules import Schedule
from hypersparse.sparsity.weights import PrunableWeights

MISSING_TASK = "This method scores the network; pass `task=Task(criterion, loader)` to hypersparse.attach."
DISTRIBUTION_HELP = (
    "Distribution of kept weights: `global` (largest scores of all layers), `uniform` (same share in each layer), "
    "`erk` (by the layers' shapes) or `sratio` (falls with depth)."
)
T = TypeVar("T")
Sparsity = Annotated[float, AfterValidator(check_sparsity)]


@dataclass
class TrainingState:
    """The state of training that a method sees: network, prunable weights, epoch and step, and a memory.

    `memory` holds the method's own state and is saved with every checkpoint. `log` holds the values that the method
    logs for the epoch.
    """

    model: nn.Module
    optimizer: Optimizer
    weights: PrunableWeights
    given_task: Task | None = None
    epoch: int = 0  # in this phase
    step: int = 0  # optimizer steps finished in this phase
    steps_per_epoch: int | None = None  # None where the loop begins and ends the epochs
    memory: Memory = field(default_factory=Memory)
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

    def recall(self, kind: type[T]) -> T:
        """The remembered object of a kind, whose fields are tensors or lists of them, on the weights' device.

        A checkpoint's are on the CPU; later calls return the same tensors, whose addresses a captured step knows.
        """
        found = self.memory.get(kind)
        assert found is not None, f"{kind.__name__} begins with its phase"
        there = kind(**{name: _moved(value, self.weights.device) for name, value in vars(found).items()})
        self.memory.set(there)
        return there

    def progress(self, epochs: int) -> tuple[int, int]:
        """The position in a phase of `epochs` and its length, in steps, or in epochs if steps are not counted."""
        if self.steps_per_epoch is None:
            return self.epoch, epochs
        return self.step, epochs * self.steps_per_epoch


def _moved(value: Tensor | list[Tensor], device: torch.device) -> Tensor | list[Tensor]:
    return value.to(device) if isinstance(value, Tensor) else [tensor.to(device) for tensor in value]


Action = Callable[[TrainingState], None]
Within = Callable[[TrainingState], AbstractContextManager[None]]


def action_name(action: Callable[..., object] | None) -> str:
    """The name of a phase's function, or of the one in a `partial`; empty without a function."""
    return "" if action is None else str(getattr(action, "func", action).__name__)


@dataclass(frozen=True)
class PhaseLR:
    """The learning rate of a phase: its schedule, a part of one, or a constant rate."""

    held: bool = False  # the first rate throughout, instead of the schedule
    schedule_epochs: int | None = None  # the schedule's length, where it is not the phase's own
    schedule_start: int = 0  # the epoch of the schedule with which the phase begins

    def factor(self, schedule: Schedule, epoch: int, epochs: int) -> float:
        """The factor on the learning rate in an epoch of a phase of `epochs`."""
        return 1.0 if self.held else schedule((self.schedule_start + epoch) / (self.schedule_epochs or epochs))


@dataclass(frozen=True)
class Requirements:
    """Requirements of a phase for the loop and the weights."""

    task: bool = False  # scores the network, so that `attach` must be given a task
    observe: bool = False  # reads the score seen while training, so that the loop must call `observe`
    steps: bool = False  # reads the length of an epoch in steps, so that `attach` must be given one
    weights: Callable[[PrunableWeights], None] | None = None  # raises at once if this cannot work on these weights


@dataclass(frozen=True)
class EverySteps:
    """An action in every `every`-th step of a phase, after the backward pass."""

    action: Action
    every: int = 1
    replaces_step: bool = False  # our own loop then leaves the optimizer's step out; a user's cannot

    def is_due(self, step: int) -> bool:
        """Whether the action is due in this step of the phase."""
        return (step + 1) % self.every == 0


@dataclass(frozen=True)
class StepRules:
    """How a phase's steps and scores differ from ordinary training."""

    penalty: Callable[[TrainingState, Tensor], Tensor] | None = None  # of the vector of all weights, added to the loss
    extra_loss: Callable[[TrainingState], nn.Module] | None = None  # of (inputs, outputs), a term of the loss
    trainable: Callable[[TrainingState], Mask] | None = None  # which weights learn, where more do than the mask keeps
    around_step: Within | None = None  # of the optimizer, by its hooks
    around_gradient: Within | None = None  # around the forward and the backward pass of a step
    around_scoring: Within | None = None  # whenever the network is tested: another one may stand in for it


@dataclass(frozen=True)
class Phase:
    """A part of the training with one kind of step."""

    name: str
    epochs: int  # at most, where `stop_when` may end it earlier
    on_enter: Action | None = None
    on_exit: Action | None = None
    on_epoch_start: Action | None = None  # of every epoch, also of the first
    on_step: EverySteps | None = None
    stop_when: Callable[[TrainingState], bool] | None = None  # asked after every epoch; True ends the phase
    reset_optimizer: bool = False  # begin with a fresh one
    rules: StepRules = StepRules()
    lr: PhaseLR = PhaseLR()
    requires: Requirements = Requirements()
    pretraining: bool = False  # left out when the network comes trained
    cache_key: str | None = None  # all of the method that decides this phase: runs with an equal one train it once

    def acts_in(self, step: int) -> bool:
        """Whether the method acts in this step."""
        return self.on_step is not None and self.on_step.is_due(step)


class Method(ABC):
    """A method to make a network sparse: its options and its plan.

    Subclasses are decorated with `hypersparse.options.options` and have a `name` (their file's) and a `citation`.
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    sharded: ClassVar[bool] = False  # whether its weights may be spread over ranks by `fully_shard`

    @abstractmethod
    def plan(self, epochs: int) -> Sequence[Phase]:
        """The phases, in order; `epochs` is the length of the main training in the recipe."""

    @property
    def sparsity(self) -> float | None:
        """The fraction of weights removed at the end; None for methods without a fixed fraction."""
        return None

    def unscaled_penalty(self, vector: Tensor) -> Tensor | None:
        """The penalty of a vector of all weights without its strength; None for methods without a penalty."""
        return None

    def label(self) -> str:
        """A few readable words for folder names and tables."""
        return self.name


@options
class PruningMethod(Method):
    """A method that removes a fixed share of the weights."""

    sparsity: Sparsity = option(default=0.95, help="Fraction of the prunable weights that is removed, in [0, 1).")

    @property
    def distribution(self) -> Distribution:
        """The distribution of kept weights among layers; an option of most methods."""
        return "global"

    def label(self) -> str:
        return f"{self.name}-{self.sparsity:g}"

    def keep(self, weights: PrunableWeights) -> int:
        """The number of kept weights."""
        return keep_count(weights.total, self.sparsity)

    def check(self, weights: PrunableWeights) -> None:
        """Raise an error before training if the kept weights cannot be distributed among the layers."""
        if self.distribution != "global":
            weights.shares(self.keep(weights), self.distribution)

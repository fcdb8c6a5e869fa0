"""`attach` and `Sparsifier`: a method's plan, driven inside any training loop."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from math import isclose
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.errors import LoopError, OptionError
from hypersparse.learning_rate import LearningRate
from hypersparse.loop_errors import LoopCalls, check_acted, check_closure
from hypersparse.methods.ablation import Ablation
from hypersparse.methods.base import MISSING_TASK, Method, Phase, TrainingState
from hypersparse.methods.phase_plan import plan_of
from hypersparse.methods.task import Task
from hypersparse.sparsity.collapse import CollapseGuard, OnCollapse
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.schedules import Schedule, constant
from hypersparse.sparsity.weights import PrunableModules, PrunableWeights

STATE = frozenset(  # what every saved state has
    {"plan", "cache_keys", "sparsity", "phase_index", "epoch", "step", "total_epoch", "entered", "open", "calls", "lrs"}
    | {"generator", "observed", "memory", "log", "mask"}
)


class Sparsifier:
    """Drives a plan: which phase and epoch it is, the penalty now, the mask after every step."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: Sequence[Phase],
        *,
        task: Task | None = None,
        lr: Schedule | None = None,
        accumulation_steps: int = 1,
        extra_prunable: PrunableModules | None = None,
        input_shape: tuple[int, ...] | None = None,
        on_collapse: OnCollapse = "warn",
        sparsity: float | None = None,
    ) -> None:
        if accumulation_steps < 1:
            raise OptionError(
                f"`accumulation_steps` counts backward passes per step, 1 or more; got {accumulation_steps}."
            )
        self.plan = list(plan)
        if task is None and any(phase.requires.task for phase in self.plan):
            raise LoopError(MISSING_TASK)
        self.weights = PrunableWeights(model, extra_prunable=extra_prunable)
        for phase in self.plan:
            if phase.requires.weights is not None:
                phase.requires.weights(self.weights)
        self.state = TrainingState(model, optimizer, self.weights, given_task=task)
        self._guard = CollapseGuard(self.weights, input_shape=input_shape, on_collapse=on_collapse)
        self._sparsity = sparsity  # what the plan is for; a state at another one is refused
        self.total_epoch = 0  # epochs finished, over all phases
        self._lr = LearningRate(optimizer, lr or constant)
        self._accumulation_steps = accumulation_steps
        self._phase_index = 0
        self._entered = self._open = False
        self.calls = LoopCalls()  # in this epoch
        self._inside_steps = 0  # of the optimizer, one in the other
        self._around_step: AbstractContextManager[None] | None = None  # the phase's, while the optimizer steps
        optimizer.register_step_pre_hook(lambda _, args, kwargs: self._before_step(*args[1:], **kwargs))
        optimizer.register_step_post_hook(lambda *_: self._after_step())

    @property
    def done(self) -> bool:
        """Whether the whole plan has been run."""
        return self._phase_index >= len(self.plan)

    @property
    def is_open(self) -> bool:
        """Whether an epoch has begun and not been finished."""
        return self._open

    @property
    def phase(self) -> Phase:
        """The phase of the current epoch; after the end, the last one."""
        return self.plan[min(self._phase_index, len(self.plan) - 1)]

    @property
    def mask(self) -> Mask | None:
        """The current mask; None while no weight is pruned."""
        return self.weights.mask

    @property
    def trainable(self) -> Mask | None:
        """Which weights learn: those that the mask keeps, or more in some phases; None while all do."""
        if self.phase.trainable is not None and self._entered:
            return self.phase.trainable(self.state)
        return self.mask

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group."""
        return self._lr.now

    @property
    def log(self) -> dict[str, Any]:
        """The method's log entries of the last finished epoch."""
        return self.state.log

    def epochs(self) -> Iterator[int]:
        """Iterate over the epochs of the plan, instead of `range(epochs)`."""
        if self._open:  # saved at the end of a loop's body, so that epoch only remains to be finished
            self.finish_epoch()
        while self.begin_epoch():
            yield self.total_epoch
            if self._open:
                self.finish_epoch()

    def begin_epoch(self) -> bool:
        """Enter the next epoch, and its phase; False when the plan is done. An open epoch goes on."""
        if self._open:
            return True
        while not self.done and self.phase.epochs == 0:
            self._leave_phase()
        if self.done:
            return False
        if not self._entered:
            self._enter_phase()
        if self.phase.on_epoch_start is not None:
            self.phase.on_epoch_start(self.state)
        if self.phase.on_epoch_start is not None or self.phase.on_step is not None:  # then the mask may be another
            self._guard.look(f"In phase {self.phase.name}", briefly=True)
        self.state.epoch_tensor.fill_(self.state.epoch)
        self.state.observed.reset()
        self.state.log.clear()
        self._inside_steps = 0
        self.calls = LoopCalls()
        self._lr.set_(self.phase, self.state.epoch)
        self._open = True
        return True

    def finish_epoch(self) -> None:
        """After the last step of an epoch: ask the method whether its phase is over."""
        if not self._open:
            raise LoopError("`finish_epoch()` ends what `begin_epoch()` began; no epoch is open.")
        self.calls.check(self.plan, observed=self.state.observed.count)
        self._lr.check()
        phase, state = self.phase, self.state
        over = phase.stop_when(state) if phase.stop_when is not None else False
        self._open = False
        self.total_epoch += 1
        if over or state.epoch + 1 >= phase.epochs:
            self._leave_phase()
        else:
            state.epoch += 1

    def penalty(self) -> Tensor:
        """The current penalty, to be added to the loss; 0 in phases without one."""
        self.calls.penalties += 1
        if self.phase.penalty is None or self.done:
            return torch.zeros((), device=self.weights.device)  # a new one: loops may add to it in place
        return self.phase.penalty(self.state, self.weights.vector()) / self._accumulation_steps

    def step(self) -> None:
        """Call after `optimizer.step()`: sets dropped weights to exactly 0.0 again."""
        if not self._open:
            raise LoopError("`sparsifier.step()` belongs inside `for epoch in sparsifier.epochs():`.")
        if self.phase.on_step is not None and self.phase.on_step.is_due(self.state.step):
            # Deviation: in a user's loop the optimizer has made its step, which RigL's update replaces.
            self.phase.on_step.action(self.state)
        self.calls.steps += 1
        self.state.step += 1
        self.weights.apply_mask_()

    def observe(self, outputs: Tensor, labels: Tensor) -> None:
        """Receive the network's outputs on a training batch, for methods that track the training score."""
        with torch.no_grad():
            self.state.observed.add(self.state.task.metric(outputs, labels), len(labels))

    def state_dict(self) -> dict[str, Any]:
        """The state of the plan; save it with the model's and the optimizer's."""
        state, mask = self.state, self.weights.mask
        return {
            "plan": [phase.name for phase in self.plan],
            "cache_keys": [phase.cache_key for phase in self.plan],
            "sparsity": self._sparsity,
            "phase_index": self._phase_index,
            "epoch": state.epoch,
            "step": state.step,
            "total_epoch": self.total_epoch,
            "entered": self._entered,
            "open": self._open,
            "calls": [self.calls.steps, self.calls.penalties],
            "lrs": self._lr.state_dict(),
            "generator": state.generator.get_state(),
            "observed": {"total": state.observed.total.clone(), "count": state.observed.count},
            "memory": state.memory.state_dict(),
            "log": dict(state.log),
            "mask": None if mask is None else mask.pack(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from a saved state; load the model and the optimizer first."""
        if missing := STATE - saved.keys():
            raise OptionError(f"What `sparsifier.state_dict()` gave is wanted; this state has no `{min(missing)}`.")
        known = [phase.name for phase in self.plan]
        if saved["plan"][: len(known)] != known[: len(saved["plan"])]:
            raise OptionError(f"The saved plan is {saved['plan']}; this one is {known}.")
        self._check_sparsity(saved)
        state = self.state
        self._phase_index, state.epoch, state.step = saved["phase_index"], saved["epoch"], saved["step"]
        state.generator.set_state(saved["generator"].cpu())
        self.total_epoch = saved["total_epoch"]
        self._entered, self._open = saved["entered"], saved["open"]
        self.calls = LoopCalls(*saved["calls"])  # the optimizer's are of those to come
        self._lr.load_state_dict(saved["lrs"])
        state.observed.total.copy_(saved["observed"]["total"])
        state.observed.count = saved["observed"]["count"]
        state.memory.load_state_dict(saved["memory"])
        state.log = dict(saved["log"])
        state.epoch_tensor.fill_(state.epoch)
        if saved["mask"] is None:
            self.weights.clear_mask_()
        else:
            shapes = {name: tuple(weight.shape) for name, weight in self.weights.items()}
            self.weights.set_mask_(Mask.unpack(saved["mask"], shapes))
        self._guard.accept()

    def _check_sparsity(self, saved: dict[str, Any]) -> None:
        """A state at another sparsity is taken only as far as its phases are the same at both, such as pre-training."""
        before = saved["sparsity"]
        if before is None or self._sparsity is None or isclose(before, self._sparsity, abs_tol=1e-6):
            return
        begun = zip(self.plan, saved["cache_keys"][: saved["phase_index"] + saved["entered"]], strict=False)
        for phase, cache_key in begun:
            if not phase.pretraining and (cache_key is None or cache_key != phase.cache_key):
                raise OptionError(
                    f"The state was saved at sparsity {before!r}, and phase {phase.name} is not the same at "
                    f"{self._sparsity!r}. Attach with {before!r} to go on with it."
                )

    # Both only while an epoch is open, since the optimizer may be used again after the plan; and only around the whole
    # step of an optimizer whose `step` calls its parent's, for which torch calls the hooks too.
    def _before_step(self, closure: Any = None, *_: Any, **__: Any) -> None:
        if self.phase.around_step is not None and self._open and self._inside_steps == 0:
            check_closure(closure)
            self._around_step = self.phase.around_step(self.state)
            self._around_step.__enter__()
        self._inside_steps += 1

    def _after_step(self) -> None:
        self._inside_steps -= 1
        if not self._open or self._inside_steps:
            return
        self.calls.optimizer_steps += 1
        if self._around_step is not None:
            self._around_step.__exit__(None, None, None)
            self._around_step = None

    def _enter_phase(self) -> None:
        if self.phase.reset_optimizer:
            self.state.optimizer.state.clear()  # reset momentum
        if self.phase.on_enter is not None:
            self.phase.on_enter(self.state)
        self._guard.look(f"On entering phase {self.phase.name}")
        self._entered = True

    def _leave_phase(self) -> None:
        check_acted(self.phase, self.state.step)
        if self.phase.on_exit is not None and self._entered:
            self.phase.on_exit(self.state)
        self._guard.look(f"At the end of phase {self.phase.name}")
        self._phase_index += 1
        self._entered = False
        self.state.epoch = self.state.step = 0


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

    Args:
        model: The model, which is not wrapped; it may be compiled or data-parallel.
        optimizer: Its optimizer. The sparsifier sets the learning rate, in all phases.
        method: What prunes it, such as `ART(sparsity=0.98)`.
        epochs: Length of the main training (ART: of the fine-tuning).
        task: Loss and samples, for methods that score the network.
        lr: A factor on the learning rate as a function of progress through a phase, such as `schedules.cosine`.
        accumulation_steps: Backward passes before each optimizer step.
        trained: Whether the model comes trained, so that pre-training is left out.
        extra_prunable: Further module types with prunable weights, such as `{nn.Bilinear: ("weight",)}`.
        input_shape: Shape of one input, to check for a path from input to output.
        on_collapse: What to do when a mask leaves a layer without weights, or no such path.
        ablation: What to take away from the method's result, to see whether it mattered.

    Returns:
        A `Sparsifier`: iterate over its `epochs()`, add its `penalty()` to the loss and call its `step()`.

    Raises:
        OptionError: An argument cannot be used.
        LoopError: The method needs a task, or another scheduler sets the learning rate.
        ModelError: The model has no prunable weights.

    >>> from hypersparse import Dense
    >>> model = nn.Linear(8, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> attach(model, optimizer, Dense(), epochs=2).weights.total
    16
    """
    _check_arguments(method, epochs, task=task, extra_prunable=extra_prunable, input_shape=input_shape)
    plan = plan_of(method, epochs=epochs, trained=trained, ablation=ablation)
    empty = [phase for phase in plan if epochs == 0 == phase.epochs]
    if lost := [phase.name for phase in empty if phase.on_enter or phase.on_epoch_start]:
        raise OptionError(
            f"With `epochs` 0 the phase `{lost[0]}` of {type(method).__name__} is left out, and with it what it begins "
            "with, such as a choice of weights to keep; pass 1 or more."
        )
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
        sparsity=method.sparsity,
    )


def _check_arguments(method: Any, epochs: Any, *, task: Any, extra_prunable: Any, input_shape: Any) -> None:
    if not isinstance(method, Method):
        raise OptionError(f"`method` is one with its options, such as ART(sparsity=0.98); got {method!r}.")
    if not _is_count(epochs):
        raise OptionError(f"`epochs` counts epochs of the main training, 0 or more; got {epochs}.")
    if task is not None and not hasattr(task, "score"):
        raise OptionError(f"`task` is Task(criterion, loader); got {type(task).__name__}.")
    if extra_prunable is not None and not isinstance(extra_prunable, Mapping):
        raise OptionError(f"`extra_prunable` is {{ModuleType: ('weight',)}}; got {type(extra_prunable).__name__}.")
    if input_shape is not None and not (isinstance(input_shape, Sequence) and all(map(_is_count, input_shape))):
        raise OptionError(f"`input_shape` is that of one input, such as (3, 32, 32); got {input_shape!r}.")


def _is_count(number: Any) -> bool:
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) >= 0

"""`Sparsifier`: a method's plan, driven inside any training loop."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from math import isclose
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.errors import LoopError, OptionError
from hypersparse.learning_rate import LearningRate
from hypersparse.loop_errors import LoopCalls, check_adjusted, check_closure
from hypersparse.methods.base import MISSING_TASK, Phase, TrainingState
from hypersparse.methods.task import Task
from hypersparse.sparsity.collapse import CollapseGuard, OnCollapse
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.schedules import Schedule, constant
from hypersparse.sparsity.weights import PrunableModules, PrunableWeights

# What every saved state has; the first that were written had no `step` and no `generator`.
STATE = frozenset(
    {"plan", "phase_index", "epoch", "total_epoch", "entered", "open", "calls", "lrs"}
    | {"observed", "memory", "log", "mask"}
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
        if task is None and any(phase.needs_task for phase in self.plan):
            raise LoopError(MISSING_TASK)
        self.weights = PrunableWeights(model, extra_prunable=extra_prunable)
        for phase in self.plan:
            if phase.check is not None:
                phase.check(self.weights)
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
        """The mask that holds now; None while all weights are free."""
        return self.weights.mask

    @property
    def learning(self) -> Mask | None:
        """Which weights learn: those that the mask keeps, or more in some phases; None while all do."""
        if self.phase.learning is not None and self._entered:
            return self.phase.learning(self.state)
        return self.mask

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group."""
        return self._lr.now

    @property
    def log(self) -> dict[str, Any]:
        """What the method has to say about the last finished epoch."""
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
        if self.phase.begin is not None:
            self.phase.begin(self.state)
        if self.phase.begin is not None or self.phase.adjust is not None:  # then the mask may be another
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
        over = phase.until(state) if phase.until is not None else False
        self._open = False
        self.total_epoch += 1
        if over or state.epoch + 1 >= phase.epochs:
            self._leave_phase()
        else:
            state.epoch += 1

    def penalty(self) -> Tensor:
        """The penalty of this moment, to be added to the loss (0 in phases without one)."""
        self.calls.penalties += 1
        if self.phase.penalty is None or self.done:
            return torch.zeros((), device=self.weights.device)  # a new one: loops may add to it in place
        return self.phase.penalty(self.state, self.weights.vector()) / self._accumulation_steps

    def step(self) -> None:
        """After `optimizer.step()`: dropped weights become exactly 0.0 again."""
        if not self._open:
            raise LoopError("`sparsifier.step()` belongs inside `for epoch in sparsifier.epochs():`.")
        if self.phase.adjust is not None and self.phase.adjusts_in(self.state.step):
            # Deviation: in a user's loop the optimizer has made its step, which RigL's update replaces.
            self.phase.adjust(self.state)
        self.calls.steps += 1
        self.state.step += 1
        self.weights.apply_mask_()

    def observe(self, outputs: Tensor, labels: Tensor) -> None:
        """Tell the network's outputs on a training batch, for methods that watch the score while training."""
        with torch.no_grad():
            self.state.observed.add(self.state.task.metric(outputs, labels), len(labels))

    def state_dict(self) -> dict[str, Any]:
        """Where the plan stands: save it beside the model and the optimizer, and load all three."""
        state, mask = self.state, self.weights.mask
        return {
            "plan": [phase.name for phase in self.plan],
            "shared": [phase.shared for phase in self.plan],
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
            "memory": deepcopy(state.memory),  # some methods change theirs in place
            "log": dict(state.log),
            "mask": None if mask is None else mask.pack(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; load the model and the optimizer first."""
        if missing := STATE - saved.keys():
            raise OptionError(f"What `sparsifier.state_dict()` gave is wanted; this state has no `{min(missing)}`.")
        known = [phase.name for phase in self.plan]
        if saved["plan"][: len(known)] != known[: len(saved["plan"])]:
            raise OptionError(f"The saved plan is {saved['plan']}; this one is {known}.")
        self._check_sparsity(saved)
        state = self.state
        self._phase_index, state.epoch, state.step = saved["phase_index"], saved["epoch"], saved.get("step", 0)
        if "generator" in saved:  # and `step` above: not in the first checkpoints that were written
            state.generator.set_state(saved["generator"].cpu())
        self.total_epoch = saved["total_epoch"]
        self._entered, self._open = saved["entered"], saved["open"]
        self.calls = LoopCalls(*saved["calls"])  # the optimizer's are of those to come
        self._lr.load_state_dict(saved["lrs"])
        state.observed.total.copy_(saved["observed"]["total"])
        state.observed.count = saved["observed"]["count"]
        state.memory, state.log = deepcopy(saved["memory"]), dict(saved["log"])
        state.epoch_tensor.fill_(state.epoch)
        if saved["mask"] is None:
            self.weights.clear_mask_()
        else:
            shapes = {name: tuple(weight.shape) for name, weight in self.weights.items()}
            self.weights.set_mask_(Mask.unpack(saved["mask"], shapes))
        self._guard.accept()

    def _check_sparsity(self, saved: dict[str, Any]) -> None:
        """A state at another sparsity is taken only as far as its phases are the same at both, such as pre-training."""
        before = saved.get("sparsity")  # not in the states that were written first
        if before is None or self._sparsity is None or isclose(before, self._sparsity, abs_tol=1e-6):
            return
        begun = zip(self.plan, saved["shared"][: saved["phase_index"] + saved["entered"]], strict=False)
        for phase, shared in begun:
            if not phase.pretraining and (shared is None or shared != phase.shared):
                raise OptionError(
                    f"The state was saved at sparsity {before!r}, and phase {phase.name} is not the same at "
                    f"{self._sparsity!r}. Attach with {before!r} to go on with it."
                )

    # Both only while an epoch is open, since the optimizer may be used again after the plan; and only around the whole
    # step of an optimizer whose `step` calls its parent's, for which torch calls the hooks too.
    def _before_step(self, closure: Any = None, *_: Any, **__: Any) -> None:
        if self.phase.before_step is not None and self._open and self._inside_steps == 0:
            check_closure(closure)
            self.phase.before_step(self.state)
        self._inside_steps += 1

    def _after_step(self) -> None:
        self._inside_steps -= 1
        if not self._open or self._inside_steps:
            return
        self.calls.optimizer_steps += 1
        if self.phase.after_step is not None:
            self.phase.after_step(self.state)

    def _enter_phase(self) -> None:
        if self.phase.restart:
            self.state.optimizer.state.clear()  # momentum starts anew
        if self.phase.enter is not None:
            self.phase.enter(self.state)
        self._guard.look(f"On entering phase {self.phase.name}")
        self._entered = True

    def _leave_phase(self) -> None:
        check_adjusted(self.phase, self.state.step)
        if self.phase.leave is not None and self._entered:
            self.phase.leave(self.state)
        self._guard.look(f"At the end of phase {self.phase.name}")
        self._phase_index += 1
        self._entered = False
        self.state.epoch = self.state.step = 0

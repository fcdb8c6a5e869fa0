"""`attach` and `Sparsifier`: a method's plan, driven inside any training loop by the optimizer's hooks."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from hypersparse import plan_state
from hypersparse.attach_checks import (
    check_arguments,
    check_counts,
    check_plan,
    check_sharding,
    check_teacher,
    check_weights,
    check_wrapper,
)
from hypersparse.distributed import Ranks
from hypersparse.errors import LoopError
from hypersparse.exact_zeros import ExactZeros
from hypersparse.gradient_hooks import GradientHooks
from hypersparse.learning_rate import LearningRate
from hypersparse.loop_errors import ADDED_BY_THE_STEP, LoopCalls, check_begun, check_clock, warn_if_cut
from hypersparse.methods.ablation import Ablation
from hypersparse.methods.base import MISSING_TASK, Method, Phase, TrainingState
from hypersparse.methods.phase_plan import epochs_in_words, plan_of, within
from hypersparse.methods.task import Task
from hypersparse.plan_epochs import act, begin_epoch, finish_epoch
from hypersparse.plan_state import Position
from hypersparse.sparsity.collapse import CollapseGuard, OnCollapse
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.layer_names import Pattern
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.schedules import Schedule
from hypersparse.sparsity.selection import PrunableModules
from hypersparse.sparsity.summary import Summary
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.step_hooks import StepHooks, stepping
from hypersparse.techniques.options import Techniques
from hypersparse.techniques.plan import with_techniques

PenaltyMode = Literal["gradient", "loss"]


class Sparsifier:
    """Drives a plan: which phase and epoch it is, and around every optimizer step the penalty and the mask.

    With `penalty=None` the loop adds the penalty, calls `finish_step()` and so applies the mask itself.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: Sequence[Phase],
        *,
        task: Task | None = None,
        lr: Schedule | None = None,
        penalty: PenaltyMode | None = "gradient",
        steps_per_epoch: int | None = None,
        on_done: Callable[["Sparsifier"], None] | None = None,
        weights: PrunableWeights | None = None,
        input_shape: tuple[int, ...] | None = None,
        on_collapse: OnCollapse = "warn",
        sparsity: float | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.plan = list(plan)
        self.ranks = ranks or Ranks.alone()
        if task is None and any(phase.requires.task for phase in self.plan):
            raise LoopError(MISSING_TASK)
        self.weights = PrunableWeights(model) if weights is None else weights
        for phase in self.plan:
            if phase.requires.weights is not None:
                phase.requires.weights(self.weights)
        task = replace(task, ranks=self.ranks) if isinstance(task, Task) else task
        self.state = TrainingState(model, optimizer, self.weights, given_task=task, steps_per_epoch=steps_per_epoch)
        self.guard = CollapseGuard(self.weights, input_shape=input_shape, on_collapse=on_collapse)
        self.sparsity = sparsity  # what the plan is for; a state at another one is refused
        self.learning_rate = LearningRate(optimizer, lr) if lr is not None else None
        self.penalty_mode = penalty
        self.counts_steps = steps_per_epoch is not None  # an epoch is so many steps, whatever the loop does
        self.position = Position()
        self.calls = LoopCalls()  # in this epoch
        self.on_done = on_done
        self.zeros = ExactZeros(self.weights, optimizer)
        self._hooks = StepHooks(self, optimizer)
        perturbed = penalty is not None and any(phase.rules.around_gradient for phase in self.plan)
        self._gradient_hooks = GradientHooks(self, model) if perturbed else None

    @property
    def done(self) -> bool:
        """Whether the whole plan has been run."""
        return self.position.phase_index >= len(self.plan)

    @property
    def is_open(self) -> bool:
        """Whether an epoch has begun and not been finished."""
        return self.position.open

    @property
    def total_epoch(self) -> int:
        """Epochs finished, over all phases."""
        return self.position.total_epoch

    @property
    def phase(self) -> Phase:
        """The phase of the current epoch; after the end, the last one."""
        return self.plan[min(self.position.phase_index, len(self.plan) - 1)]

    @property
    def mask(self) -> Mask | None:
        """The current mask; None while no weight is pruned."""
        return self.weights.mask

    @property
    def is_sparse(self) -> bool:
        """Whether the mask has the plan's sparsity: only then may a network be saved as the best."""
        mask = self.mask
        if mask is None or self.sparsity is None:
            return mask is not None
        return mask.kept <= keep_count(mask.total, self.sparsity)

    @property
    def trainable(self) -> Mask | None:
        """Which weights learn: those that the mask keeps, or more in some phases; None while all do."""
        if self.phase.rules.trainable is not None and self.position.entered:
            return self.phase.rules.trainable(self.state)
        return self.mask

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group."""
        if self.learning_rate is not None:
            return self.learning_rate.now
        return float(self.state.optimizer.param_groups[0]["lr"])

    @property
    def log(self) -> dict[str, Any]:
        """The method's log entries of the last finished epoch."""
        return self.position.log

    def epochs(self) -> Iterator[int]:
        """Iterate over the epochs of the plan, instead of `range(epochs)`."""
        try:
            yield from self._epochs()
        except GeneratorExit:  # the loop was left by `break`, `return` or an error
            warn_if_cut(self)
            raise

    def _epochs(self) -> Iterator[int]:
        while self.counts_steps and not self.done:
            yield self.total_epoch
        if self.is_open:  # saved at the end of a loop's body, so that epoch only remains to be finished
            self.finish_epoch()
        while begin_epoch(self):
            yield self.total_epoch
            if self.is_open:
                self.finish_epoch()

    def begin_epoch(self) -> bool:
        """Enter the next epoch, and its phase; False when the plan is done. An open epoch goes on."""
        check_clock(self.counts_steps)
        return begin_epoch(self)

    def finish_epoch(self) -> None:
        """After the last step of an epoch: ask the method whether its phase is over."""
        check_clock(self.counts_steps)
        finish_epoch(self)

    def penalty(self) -> Tensor:
        """With `penalty="loss"`: the current penalty, to be added to the loss; 0 in phases without one."""
        if self.penalty_mode == "gradient":
            raise LoopError(ADDED_BY_THE_STEP)
        self.calls.penalties += 1
        if self.phase.rules.penalty is None or self.done:
            return torch.zeros((), device=self.weights.device)  # a new one: loops may add to it in place
        return self.phase.rules.penalty(self.state, self.weights.vector())

    def distillation_loss(self, inputs: Any, outputs: Any) -> Tensor:
        """With the technique `distill`: the term to add to the loss of a batch; 0 in phases without it."""
        self.calls.distillations += 1
        if self.extra_loss is None:
            return torch.zeros((), device=self.weights.device)
        term: Tensor = self.extra_loss(inputs, outputs)
        return term

    @property
    def extra_loss(self) -> nn.Module | None:
        """The term that the phase adds to the loss of (inputs, outputs)."""
        if self.done or self.phase.rules.extra_loss is None:
            return None
        return self.phase.rules.extra_loss(self.state)

    def averaged(self) -> AbstractContextManager[None]:
        """With the technique `ema`: inside the block the model is the averaged network, as it will be in the result."""
        if self.done or not self.position.entered or self.phase.rules.around_scoring is None:
            return nullcontext()
        return self.phase.rules.around_scoring(self.state)

    def leave_gradient(self) -> None:
        """Before the optimizer steps: the gradients are there."""
        if self._gradient_hooks is not None:
            self._gradient_hooks.leave()

    def observe(self, outputs: Tensor, labels: Tensor) -> None:
        """Receive the network's outputs on a training batch, for methods that track the training score."""
        with torch.no_grad():
            self.state.observed.add(self.state.task.metric(outputs, labels), len(labels))

    def detach(self) -> None:
        """Remove the hooks from the optimizer; the weights stay as they are, and no mask holds any more."""
        self._hooks.remove()
        if self._gradient_hooks is not None:
            self._gradient_hooks.remove()
        warn_if_cut(self)

    def summary(self) -> Summary:
        """A table of the model's weights: which are prunable, how dense they are, why the others stay; and epochs."""
        return replace(self.weights.summary(), epochs=epochs_in_words(self.plan))

    def state_dict(self) -> dict[str, Any]:
        """The state of the plan; save it with the model's and the optimizer's."""
        return plan_state.saved_state(self)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from a saved state; load the model and the optimizer first."""
        plan_state.load_(self, saved)

    # What the hooks call. The optimizer may also be used outside the plan's epochs, where only the mask holds.

    def before_step(self) -> None:
        """Before an optimizer step: enter an epoch if it is steps that make epochs."""
        if self.penalty_mode is None:
            return
        if self.learning_rate is not None and self.is_open:
            self.learning_rate.check()
        if self.counts_steps:
            begin_epoch(self)
        elif self.total_epoch == 0 and not self.is_open and not self.done:
            check_begun(self.state.optimizer)

    def after_optimizer(self) -> None:
        """After an optimizer step, while the weights are as the optimizer has left them."""
        if self.penalty_mode is not None and self.calls.steps == 0:  # the first of an epoch
            self.zeros.find_copies()

    def after_step(self) -> None:
        """After an optimizer step."""
        if self.penalty_mode is None:
            return
        if self.is_open:
            self.finish_step()
        else:
            self.weights.apply_mask_()
        self.zeros.after_step(self.phase)
        if self.counts_steps and self.is_open and self.calls.steps == self.state.steps_per_epoch:
            finish_epoch(self)

    def finish_step(self) -> None:
        """Do what the method does after this step, count the step, and set dropped weights to exactly 0.0 again."""
        if self.phase.on_step is not None and self.phase.on_step.is_due(self.state.step):
            # Deviation: in a user's loop the optimizer has made its step, which RigL's update replaces.
            act(self, self.phase.on_step.action)
        self.calls.steps += 1
        self.state.step += 1
        self.weights.apply_mask_()


def attach(
    model: nn.Module,
    optimizer: Optimizer,
    method: Method,
    *,
    epochs: int,
    task: Task | None = None,
    lr: Schedule | None = None,
    penalty: PenaltyMode = "gradient",
    steps_per_epoch: int | None = None,
    max_steps: int | None = None,
    on_done: Callable[[Sparsifier], None] | None = None,
    trained: bool = False,
    skip: Pattern | Iterable[Pattern] = (),
    only: Pattern | Iterable[Pattern] | None = None,
    extra_prunable: PrunableModules | None = None,
    densities: Mapping[Pattern, float] | None = None,
    min_density: float | None = None,
    input_shape: tuple[int, ...] | None = None,
    on_collapse: OnCollapse = "warn",
    ablation: Ablation | None = None,
    process_group: distributed.ProcessGroup | None = None,
    techniques: Techniques | None = None,
    teacher: nn.Module | None = None,
) -> Sparsifier:
    """Make a model sparse inside your own training loop.

    Args:
        model: The model, which is not wrapped; it may be compiled or data-parallel.
        optimizer: Its optimizer. Hooks around its steps add the penalty's gradient and apply the mask.
        method: What prunes it, such as `ART(sparsity=0.98)`.
        epochs: Length of the main training (ART: of the fine-tuning).
        task: Loss and samples, for methods that score the network.
        lr: A factor on the learning rate as a function of progress through a phase, such as `schedules.cosine`.
            Without one the learning rate is yours.
        penalty: `gradient` adds the penalty's gradient in the optimizer's step; `loss` leaves it to the loop to add
            `penalty()` to its loss.
        steps_per_epoch: So many optimizer steps are an epoch of the plan; the loop then needs no `epochs()`.
        max_steps: The whole plan takes at most so many steps: ART prunes early enough to fine-tune within them.
        on_done: Called with the sparsifier when the plan is done.
        trained: Whether the model comes trained, so that pre-training is left out.
        skip: Layers that stay dense, by names, globs such as `"blocks.*.mlp"`, or module types.
        only: Prune no other layers than these.
        extra_prunable: Further module types with prunable weights, such as `{nn.LSTM: ("weight_*",)}`.
        densities: Shares of weights that layers keep exactly, such as `{"head": 0.5}`; the others share the rest.
        min_density: The least share that each of the other layers keeps.
        input_shape: Shape of one input, to check for a path from input to output.
        on_collapse: What to do when a mask leaves a layer without weights, or no such path.
        ablation: What to take away from the method's result, to see whether it mattered.
        process_group: The processes that train this model, where torch.distributed is initialised; by default all.
        techniques: Averaged weights, S2-SAM, distillation or factored weights, such as `Techniques(ema=0.999)`.
        teacher: The teacher of `Techniques(distill=...)`; without one the model's own averaged pre-training.

    Returns:
        A `Sparsifier`: iterate over its `epochs()`, or pass `steps_per_epoch`.

    Raises:
        OptionError: An argument cannot be used.
        LoopError: The method needs a task, with `lr` another scheduler sets the learning rate, or the optimizer is
            another model's.
        ModelError: The model has no prunable weights.

    >>> from hypersparse import Dense
    >>> model = nn.Linear(8, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> attach(model, optimizer, Dense(), epochs=2).weights.total
    16
    """
    check_arguments(method, task=task, penalty=penalty, extra_prunable=extra_prunable, input_shape=input_shape)
    check_counts(epochs=epochs, steps_per_epoch=steps_per_epoch, max_steps=max_steps)
    check_teacher(techniques := techniques or Techniques(), teacher)
    change = partial(with_techniques, techniques=techniques, trained=trained, teacher=teacher)
    plan = plan_of(method, epochs=epochs, trained=trained, ablation=ablation, change=change)
    check_plan(method, plan, epochs=epochs, steps_per_epoch=steps_per_epoch)
    if max_steps is not None and steps_per_epoch is not None:
        steps_per_epoch = min(steps_per_epoch, max_steps)
        plan = within(plan, max_steps // steps_per_epoch)
    check_wrapper(model)
    weights = PrunableWeights(model, extra_prunable=extra_prunable, skip=skip, only=only)
    check_sharding(method, weights, ablation=ablation, penalty=penalty, techniques=techniques)
    optimizer = stepping(optimizer)
    check_weights(weights, optimizer)
    if densities or min_density is not None:
        weights.set_limits_(method.sparsity, densities=densities, min_density=min_density)
    if advice := weights.selection.advice():
        warnings.warn(advice, stacklevel=2)
    return Sparsifier(
        model,
        optimizer,
        plan,
        task=task,
        lr=lr,
        penalty=penalty,
        steps_per_epoch=steps_per_epoch,
        on_done=on_done,
        weights=weights,
        input_shape=input_shape if weights.shard_group is None else None,  # paths need whole layers
        on_collapse=on_collapse,
        sparsity=method.sparsity,
        ranks=Ranks(process_group),
    )

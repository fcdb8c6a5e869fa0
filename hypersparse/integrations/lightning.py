"""`SparsityCallback` for Lightning: makes the module of a `Trainer` sparse."""

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hypersparse.distributed.gathered import gathered_state, load_gathered_
from hypersparse.errors import LoopError, OptionError
from hypersparse.extras import needed
from hypersparse.integrations.tracker import scalars
from hypersparse.integrations.trainer import SparsityWatch, attach_within
from hypersparse.methods.base import Method
from hypersparse.methods.task import Task
from hypersparse.plurals import how_many
from hypersparse.sparsifier import Sparsifier

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

_strategies = needed("lightning.pytorch.strategies", "lightning", "SparsityCallback")
_callbacks = needed("lightning.pytorch.callbacks", "lightning", "SparsityCallback")
Callback: Any = _callbacks.Callback
TRIED_EPOCHS = 10  # of the plan that a `fast_dev_run` begins with; with one GMP has no time


class SparsityCallback(Callback):  # type: ignore[misc]  # Lightning is an extra, which mypy does not read
    """Makes the module of a `lightning.Trainer` sparse; the module and the rest of the script stay as they are.

    The plan fits the trainer's `max_epochs` or `max_steps`. Its state is part of Lightning's checkpoints.

    Args:
        method: What prunes the module, such as `GMP(sparsity=0.95)`.
        epochs: Length of the main training; by default all of the trainer's epochs that the plan leaves for it. ART
            decides itself when to prune, and needs the length of its fine-tuning.
        task: Loss and samples, for methods that score the network.
        steps_per_epoch: Optimizer steps in an epoch, where the trainer does not know. That is so for loaders without a
            length, and for manual optimization with other than one step for every batch.
        options: Further arguments of `hypersparse.attach`, such as `trained=True`.
    """

    def __init__(
        self,
        method: Method,
        *,
        epochs: int | None = None,
        task: Task | None = None,
        steps_per_epoch: int | None = None,
        **options: Any,
    ) -> None:
        self.method, self.epochs, self.task, self.options = method, epochs, task, options
        self.steps_per_epoch = steps_per_epoch
        self.sparsifier: Sparsifier | None = None  # since the first `fit`
        self._saved: dict[str, Any] = {}
        self._steps_before_epoch = 0
        self._watch: SparsityWatch | None = None

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Attach the method; the optimizer state and the data are loaded by now."""
        if len(trainer.optimizers) != 1:
            raise OptionError(
                f"SparsityCallback prunes what one optimizer trains, and {type(pl_module).__name__} has "
                f"{len(trainer.optimizers)}; call hypersparse.attach for one of them in `on_train_start`."
            )
        _check_strategy(trainer)
        per_epoch = self._steps_of_an_epoch(trainer)
        resumes = bool(self._saved and trainer.global_step)
        self.sparsifier = attach_within(
            pl_module,
            trainer.optimizers[0],
            self.method,
            epochs=self.epochs or TRIED_EPOCHS if trainer.fast_dev_run else self.epochs,
            steps=_steps_of(trainer, per_epoch, begun=0 if resumes else trainer.global_step),
            steps_per_epoch=per_epoch,
            task=_in_precision_of(trainer, self.task),
            **self.options,
        )
        if resumes:
            load_gathered_(self.sparsifier, self._saved)
        self._watch = SparsityWatch(self.sparsifier)

    def on_train_epoch_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Note the start of an epoch."""
        self._steps_before_epoch = trainer.global_step

    def on_train_batch_end(self, trainer: "Trainer", *_: Any) -> None:
        """Mask averages of the weights. From the first sparse step on, the best dense network no longer counts."""
        assert self._watch is not None
        assert self.sparsifier is not None
        if (mask := self.sparsifier.mask) is not None:
            for average in _averages(trainer):
                mask.apply_to_(average)
        if self._watch.has_just_reached_it():
            _reset_best(trainer)

    def on_train_epoch_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Log the sparsity and the values that the method reports."""
        assert self.sparsifier is not None
        mask = self.sparsifier.mask
        values = {**scalars(self.sparsifier.log), "sparsity": mask.sparsity if mask is not None else 0.0}
        pl_module.log_dict(values, sync_dist=True)
        if trainer.current_epoch == 0 and not pl_module.automatic_optimization and not trainer.fast_dev_run:
            self._check_steps(trainer.global_step - self._steps_before_epoch, trainer)

    def on_train_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Keep the state for the next `fit`."""
        self._saved = self.state_dict()

    def teardown(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        """Detach from the optimizer, and check whether another callback changed the weights at the end."""
        if self.sparsifier is not None and stage == "fit":
            with warnings.catch_warnings():
                if trainer.fast_dev_run:  # which leaves the plan at its beginning
                    warnings.simplefilter("ignore")
                self.sparsifier.detach()
            self.sparsifier.zeros.check()

    def state_dict(self) -> dict[str, Any]:
        """The plan's state, for Lightning's checkpoints."""
        return {} if self.sparsifier is None else gathered_state(self.sparsifier)

    def on_load_checkpoint(
        self, trainer: "Trainer", pl_module: "LightningModule", checkpoint: Mapping[str, Any]
    ) -> None:
        """Keep the state of a checkpoint until training starts."""
        if trainer.state.fn == "fit":
            self._saved = checkpoint["callbacks"].get(self.state_key, {})

    def _steps_of_an_epoch(self, trainer: "Trainer") -> int:
        if self.steps_per_epoch is not None:
            return self.steps_per_epoch
        if trainer.num_training_batches == inf:
            raise OptionError(
                "The length of the training data is unknown; pass SparsityCallback(..., steps_per_epoch=N), after how "
                "many optimizer steps an epoch of the plan ends."
            )
        return ceil(int(trainer.num_training_batches) / int(trainer.accumulate_grad_batches))

    def _check_steps(self, steps: int, trainer: "Trainer") -> None:
        expected = self._steps_of_an_epoch(trainer)
        if steps != expected and trainer.is_last_batch:
            raise LoopError(
                f"The first epoch had {how_many(steps, 'optimizer step')} instead of {expected}, one for every batch; "
                f"pass SparsityCallback(..., steps_per_epoch={steps})."
            )


def _steps_of(trainer: "Trainer", per_epoch: int, *, begun: int) -> int | None:
    """The largest number of optimizer steps that the trainer still makes; a `fast_dev_run` only tries the plan."""
    bounds = [trainer.max_steps] if trainer.max_steps > 0 else []
    epochs = [trainer.max_epochs] if trainer.max_epochs not in (None, -1) else []
    if epochs:  # an epoch after the last one of averaging makes no steps: it only measures batch norm's statistics
        epochs += [one.swa_end + 1 for one in _callbacks_of(trainer, "StochasticWeightAveraging")]
    bounds += [min(epochs) * per_epoch] if epochs else []
    return min(bounds) - begun if bounds and not trainer.fast_dev_run else None


def _check_strategy(trainer: "Trainer") -> None:
    """Raise an error for trainers whose weights or steps cannot be followed."""
    if isinstance(trainer.strategy, _strategies.FSDPStrategy):
        raise OptionError(
            "FSDPStrategy flattens the weights of each rank, so that a layer's weights cannot be told apart; use "
            "ModelParallelStrategy and call `fully_shard` in `configure_model`."
        )
    if isinstance(trainer.strategy, _strategies.DeepSpeedStrategy):
        raise OptionError("DeepSpeed steps its own copy of the weights; use `ddp` or ModelParallelStrategy instead.")
    scheduled = _callbacks_of(trainer, "GradientAccumulationScheduler")
    if trainer.max_steps <= 0 and any(len(set(one.scheduling.values())) > 1 for one in scheduled):
        raise OptionError(
            "With GradientAccumulationScheduler epochs differ in their number of optimizer steps, in which a plan is "
            "counted; set the trainer's `max_steps`."
        )


def _callbacks_of(trainer: "Trainer", kind: str) -> list[Any]:
    """The trainer's callbacks of a Lightning class."""
    return [callback for callback in trainer.callbacks if isinstance(callback, getattr(_callbacks, kind))]


def _averages(trainer: "Trainer") -> list[nn.Module]:
    """The averages that replace the weights at the end."""
    found = [one._average_model for one in _callbacks_of(trainer, "StochasticWeightAveraging")]
    found += [getattr(one._average_model, "module", None) for one in _callbacks_of(trainer, "WeightAveraging")]
    return [average for average in found if average is not None]


def _in_precision_of(trainer: "Trainer", task: Task | None) -> Task | None:
    """The task with the device and autocast of the trainer's steps."""
    if task is None:
        return None
    precision = trainer.precision_plugin

    def forward(model: nn.Module, inputs: Any) -> Any:
        context: AbstractContextManager[None] = precision.forward_context()
        with context:
            return task.forward(model, inputs)

    return replace(task, forward=forward, unpack=lambda batch: precision.convert_input(task.unpack(batch)))


def _reset_best(trainer: "Trainer") -> None:
    """Reset "save the best" and early stopping: the best so far was another, dense network.

    Lightning removes those checkpoints as sparse ones replace them.
    """
    for callback in trainer.callbacks:
        if isinstance(callback, _callbacks.ModelCheckpoint) and callback.monitor is not None:
            callback.best_model_score = callback.kth_value = worst = _worst(callback.mode)
            callback.best_k_models = dict.fromkeys(callback.best_k_models, worst)
        elif isinstance(callback, _callbacks.EarlyStopping):
            callback.wait_count, callback.best_score = 0, _worst(callback.mode)


def _worst(mode: str) -> Tensor:
    return torch.tensor(inf if mode == "min" else -inf)

"""`SparsityCallback` for the `Trainer` of Transformers."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from hypersparse.distributed.shards import is_sharded
from hypersparse.errors import OptionError
from hypersparse.extras import needed
from hypersparse.integrations.pretrained import from_pretrained, save_pretrained, write_card
from hypersparse.integrations.trainer import SparsityWatch, attach_within
from hypersparse.methods.base import Method
from hypersparse.methods.task import Task, accuracy
from hypersparse.sparsifier import Sparsifier

__all__ = ["SparsityCallback", "from_pretrained", "save_pretrained"]

_trainer_callback = needed("transformers.trainer_callback", "transformers", "SparsityCallback")
TrainerCallback: Any = _trainer_callback.TrainerCallback
ExportableState: Any = _trainer_callback.ExportableState


class SparsityCallback(TrainerCallback, ExportableState):  # type: ignore[misc]  # an extra, which mypy does not read
    """Makes the model sparse that a `transformers.Trainer` trains; its scheduler stays as it is.

    The plan fits the trainer's `num_train_epochs` or `max_steps`. Its state is part of the trainer's checkpoints. At
    the end the model, a sparse file and a model card are written to the trainer's `output_dir`.

    Args:
        method: What prunes the model, such as `GMP(sparsity=0.95)`.
        epochs: Length of the main training; by default all of the trainer's epochs that the plan leaves for it. ART
            decides itself when to prune, and needs the length of its fine-tuning.
        task: Loss and samples, for methods that score the network. By default the training data, with the model's own
            loss, and the accuracy where its outputs are one class for each sample.
        steps_per_epoch: Optimizer steps in an epoch, for data without a length.
        options: Further arguments of `hypersparse.attach`, such as `trained=True`.
    """

    def __init__(
        self,
        method: Method | None,
        *,
        epochs: int | None = None,
        task: Task | None = None,
        steps_per_epoch: int | None = None,
        **options: Any,
    ) -> None:
        if method is None:  # as `state` below says
            raise OptionError(
                "`restore_callback_states_from_checkpoint` makes callbacks of what a checkpoint says, and a method is "
                "not in it; leave it False: SparsityCallback goes on from the checkpoint without."
            )
        self.method, self.epochs, self.task, self.options = method, epochs, task, options
        self.steps_per_epoch = steps_per_epoch
        self.sparsifier: Sparsifier | None = None
        self._loader: Any = None  # of the default task
        self._watch: SparsityWatch | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any, optimizer: Any, train_dataloader: Any, **_: Any
    ) -> None:
        """Attach the method; the model and optimizer state of a checkpoint are loaded by now."""
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {}).get("saved", "")
        self._loader = _in_order(train_dataloader, args.per_device_eval_batch_size)
        self.sparsifier = attach_within(
            model,
            optimizer,
            self.method,
            epochs=self.epochs,
            steps=state.max_steps - (0 if saved else state.global_step),
            steps_per_epoch=self.steps_per_epoch or _steps_of_an_epoch(train_dataloader, args),
            task=self.task or _task(self._loader),
            **self.options,
        )
        if is_sharded(self.sparsifier.weights):  # of whose state rank 0 alone, which has a part of it, is asked
            raise OptionError(
                "The trainer has sharded the weights, and its checkpoints cannot hold a plan for them; use DDP, or "
                "call hypersparse.attach in a loop of Accelerate."
            )
        if saved and state.global_step:
            self.sparsifier.load_state_dict(_unpacked(saved))
        self._watch = SparsityWatch(self.sparsifier)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """From the first sparse step on, the best dense model no longer counts."""
        assert self._watch is not None
        if self._watch.has_just_reached_it():
            state.best_metric = state.best_global_step = state.best_model_checkpoint = None

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, Any], **_: Any) -> None:
        """Add the sparsity to the printed values and to the trainer's history."""
        if self.sparsifier is not None:
            mask = self.sparsifier.mask
            logs["sparsity"] = state.log_history[-1]["sparsity"] = mask.sparsity if mask is not None else 0.0

    def on_train_end(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        """Write the model, a sparse file and a model card."""
        assert self.sparsifier is not None
        self.sparsifier.detach()
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        save_pretrained(model, folder, input_shape=_image_shape(model, self._loader))
        last: dict[str, Any] = {}
        for entry in state.log_history:
            last |= {name: value for name, value in entry.items() if name.startswith(("eval_", "train_"))}
        recipe = {
            "epochs": state.epoch,
            "optimizer steps": state.global_step,
            "learning rate": args.learning_rate,
            "scheduler": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
            "batch size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
            "seed": args.seed,
        }
        write_card(folder, model, self.sparsifier.weights, method=self.method, recipe=recipe, metrics=last)

    def state(self) -> dict[str, Any]:
        """The plan's state as text, for the trainer's checkpoints."""
        saved = "" if self.sparsifier is None else _packed(self.sparsifier.state_dict())
        return {"args": {"method": None}, "attributes": {"saved": saved}}


def _steps_of_an_epoch(loader: Any, args: Any) -> int:
    try:
        return ceil(len(loader) / int(args.gradient_accumulation_steps))
    except TypeError:
        raise OptionError(
            "The length of the training data is unknown; pass SparsityCallback(..., steps_per_epoch=N), after how many "
            "optimizer steps an epoch of the plan ends."
        ) from None


def _in_order(loader: Any, batch_size: int) -> DataLoader[Any] | None:
    """The training data in file order, so that scoring does not change the trainer's loader and random numbers."""
    dataset = getattr(loader, "dataset", None)
    if dataset is None or isinstance(dataset, IterableDataset):
        return None
    generator = torch.Generator()  # else a loader draws from torch's
    return DataLoader(dataset, batch_size=batch_size, collate_fn=loader.collate_fn, generator=generator)


def _task(loader: DataLoader[Any] | None) -> Task | None:
    """The model's own loss on the training data; without a length to it, methods that score need a task."""
    if loader is None:
        return None
    return Task(lambda outputs, _: outputs.loss, loader, metric=_metric, unpack=_unpack, forward=_forward)


def _unpack(batch: Mapping[str, Any]) -> tuple[Any, Any]:
    return batch, batch.get("labels", next(iter(batch.values())))


def _forward(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    device = next(model.parameters()).device
    return model(**{name: part.to(device) if isinstance(part, Tensor) else part for name, part in inputs.items()})


def _metric(outputs: Any, labels: Tensor) -> Tensor:
    logits = getattr(outputs, "logits", None)
    if logits is not None and logits.dim() == 2 and labels.dim() == 1 and not labels.is_floating_point():
        return accuracy(logits, labels)
    loss: Tensor = outputs.loss
    return -loss.float()


def _image_shape(model: Any, loader: DataLoader[Any] | None) -> tuple[int, ...] | None:
    if loader is None or getattr(model, "main_input_name", None) != "pixel_values":
        return None
    return tuple(next(iter(loader))["pixel_values"].shape[1:])


def _packed(state: dict[str, Any]) -> str:
    buffer = BytesIO()
    torch.save(state, buffer)
    return b64encode(buffer.getvalue()).decode()


def _unpacked(text: str) -> Any:
    return torch.load(BytesIO(b64decode(text)), weights_only=True)

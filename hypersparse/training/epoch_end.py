"""The end of an epoch: check its loss, evaluate the network, let the method act, and log it."""

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch

from hypersparse.distributed import average_statistics_
from hypersparse.errors import DivergedError
from hypersparse.storage.schemas import Entry
from hypersparse.training.evaluate import evaluate

if TYPE_CHECKING:
    from hypersparse.training.loop import Training


def finish_epoch(training: "Training") -> Entry:
    """Evaluate, let the method act at the epoch's end, and append the epoch to the log."""
    check_loss(training)
    training.epoch_loss.loss.sum_over_(training.ranks)
    training.sparsifier.state.observed.sum_over_(training.ranks)
    average_statistics_(training.model, training.ranks)
    sparsifier, phase = training.sparsifier, training.sparsifier.phase
    kept = sparsifier.mask.kept if sparsifier.mask else sparsifier.weights.total
    stage = "sparse" if kept < sparsifier.weights.total else "penalized" if phase.rules.penalty else "dense"
    said: dict[str, Any] = {
        "epoch": sparsifier.total_epoch,
        "phase": phase.name,
        "phase_epoch": sparsifier.state.epoch,
        "stage": stage,
        "lr": sparsifier.lr,
        "loss": training.epoch_loss.loss.value(),
        "train_accuracy": sparsifier.state.observed.value(),
        "kept": kept,
        "total": sparsifier.weights.total,
        **training.flop_counter.epoch(sparsifier, images=training.epoch_loss.loss.count, steps=len(training.batches)),
    }
    with training.machine.autocast(), training.recorder.epoch(sparsifier) if training.recorder else nullcontext():
        with sparsifier.averaged():
            said |= measure(training)
        sparsifier.finish_epoch()
    seconds = training.epoch_seconds + time.monotonic() - training.began
    said = {**sparsifier.log, **said, **training.flop_counter.scoring_of_epoch(), "seconds": seconds}
    entry = cast("Entry", said)
    training.epoch_seconds = 0.0
    training.entries.append(entry)
    if training.ranks.first:
        training.run.check_lock()
        training.run.append_log(entry)
    return entry


def measure(training: "Training") -> dict[str, float]:
    """Accuracy and loss on the test images and on held-out ones."""
    images, run, ranks = training.images, training.compiled_eval.run, training.ranks
    test = evaluate(training.model, images.test, run, ranks=ranks)
    if training.recorder:
        training.recorder.tested(test.hits)
    found = {"test_accuracy": test.accuracy, "test_loss": test.loss}
    if images.validation is not None:
        found["validation_accuracy"] = evaluate(training.model, images.validation, run, ranks=ranks).accuracy
    return found


def check_loss(training: "Training") -> None:
    """Raise an error if the loss or the weights are not finite, before they are saved."""
    step = min(training.ranks.gather(float(training.epoch_loss.first_bad)))
    if step == torch.inf:
        # The last step may have had a finite loss and spoilt the weights.
        if torch.stack([parameter.isfinite().all() for parameter in training.model.parameters()]).all():
            return
        step = float(training.epoch_loss.index) - 1
    epoch, phase = training.sparsifier.total_epoch, training.sparsifier.phase.name
    there = epoch > 0 or training.run.has_checkpoint()
    kept = f"the last good checkpoint is kept in {training.run.path}" if there else "nothing was worth keeping yet"
    raise DivergedError(
        f"The loss or a weight stopped being finite in step {int(step)} of epoch {epoch} ({phase}); {kept}. "
        f"Try a lower learning rate (--set training.lr={training.recipe.training.lr / 10:g}), "
        "a weaker penalty, or --precision fp32."
    )

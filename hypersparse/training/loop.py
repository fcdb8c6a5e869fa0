"""`train`: the training loop."""

import copy
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.distributed import Ranks, average_statistics_
from hypersparse.errors import DivergedError, OptionError, RunError
from hypersparse.methods.base import Phase
from hypersparse.methods.task import Task
from hypersparse.recipe import Recipe
from hypersparse.sparsifier import Sparsifier
from hypersparse.sparsity.connectivity import find_paths
from hypersparse.sparsity.flops import forward_cost
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.checkpoint import CheckpointWriter
from hypersparse.storage.phase_cache import PhaseCache
from hypersparse.storage.record import write_record
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, Result
from hypersparse.storage.weights_io import check_digest, load_weights_, save_weights
from hypersparse.training import optimizers
from hypersparse.training.callbacks import Callback
from hypersparse.training.compiled_eval import CompiledEval
from hypersparse.training.concurrency.cuda_streams import CAPTURE_LOCK
from hypersparse.training.engines import EpochLoss, Step, build_forward_backward, build_step
from hypersparse.training.evaluate import evaluate
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.flop_counter import FlopCounter, inference_cost, total_cost
from hypersparse.training.loaders import bring_images
from hypersparse.training.machine import Machine
from hypersparse.training.network import build_network, channels_last_
from hypersparse.training.recorder import Recorder
from hypersparse.training.result import describe, make_result
from hypersparse.training.resume import resume_, state_of, unless_past
from hypersparse.training.sparsifier_driver import SparsifierDriver
from hypersparse.training.stop import Stopped, StopRequest

STEPS_BETWEEN_QUESTIONS = 16  # whether to stop or save, where several ranks have to agree
# Weights times pixels under which one CPU thread is used unless asked otherwise. On the digits, two threads on two idle
# cores take 22 s instead of 30 s, but when something else keeps one core busy they wait for each other: 179 s.
# The bits of a result depend on the number of threads, so it also makes small runs the same on every machine.
SMALL_NETWORK = 10_000_000


def train(
    recipe: Recipe,
    seed: int = 0,
    machine: Machine | None = None,
    folder: str | Path = "run",
    *,
    dataset: Dataset | None = None,
    data_folders: Sequence[Path] = (),
    callback: Callback | None = None,
    stop: StopRequest | None = None,
    phase_cache: Path | None = None,
    record: bool = True,
    ranks: Ranks | None = None,
) -> Result:
    """Train a recipe with a seed in a folder, or resume it there, and return the result.

    Raises `Stopped` if `stop` asks for it. A finished run is not trained again. `phase_cache` is a folder with phases
    that several runs share, such as the pre-training for six sparsities. `record` also writes `record.npz`,
    which does not change the result and costs one pass over the training images per epoch. A run that is past the
    phase after which the recipe ends continues to its end. Several `ranks` share each batch; all of them call this, and
    rank 0 alone reads and writes the folder.
    """
    machine, ranks = machine or Machine(), ranks or Ranks.alone()
    run = RunFolder(folder)
    with machine.active() as device, ExitStack() as lock:
        with ranks.together():
            lock.enter_context(run.locked() if ranks.first else nullcontext())
        until, result = ranks.from_first(lambda: _found(recipe, seed, run))
        if result is not None:
            return result
        recipe = replace(recipe, until=until)
        with CAPTURE_LOCK.building():  # it seeds the generator that all threads share
            with ranks.together():
                dataset = dataset or data.load(recipe.data.name, data_folders, options=recipe.data.options)
                training = Training(
                    recipe, seed, machine, device, dataset, run, phase_cache, record=record, ranks=ranks
                )
            resume_(training)
            training.compiled_eval.prepare(training.images)
        if ranks.first:  # only now, so that a failed start neither creates a run nor deletes a result
            run.write_recipe(recipe, seed)
            run.result_file.unlink(missing_ok=True)
            run.record_file.unlink(missing_ok=True)
        return training.run_plan(callback or Callback(), stop or StopRequest())


def _found(recipe: Recipe, seed: int, run: RunFolder) -> tuple[str | None, Result | None]:
    """The phase after which a recipe ends in a folder, and the result of a finished run."""
    run.check(recipe, seed)
    result = run.result()
    if result is not None and is_complete(recipe, result["until"]):
        return recipe.until, result
    return unless_past(recipe, run).until, None


def is_complete(recipe: Recipe, ended_after: str | None) -> bool:
    """Whether a run that ended after this phase has reached the end of the recipe."""
    names = [phase.name for phase in replace(recipe, until=None).plan()]
    if ended_after not in (None, *names):
        raise RunError(
            f"A result of {recipe.label} ends with `{ended_after}`, which is no phase of it; delete its result.json "
            "and run again to rebuild it."
        )
    asked, there = (names.index(name) if name else len(names) for name in (recipe.until, ended_after))
    return there >= asked


class Training:
    """One run in memory: network, data, plan and progress."""

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        machine: Machine,
        device: torch.device,
        dataset: Dataset,
        run: RunFolder,
        phase_cache: Path | None = None,
        *,
        record: bool = True,
        ranks: Ranks | None = None,
    ) -> None:
        self.recipe, self.seed, self.machine, self.run = recipe, seed, machine, run
        self.ranks = ranks = ranks or Ranks.alone()
        torch.manual_seed(seed)
        model = build_network(recipe, shape=dataset.shape, classes=len(dataset.classes))
        if recipe.init_from and ranks.first and not run.has_checkpoint():
            check_digest(recipe.init_from, recipe.init_digest)
            load_weights_(model, recipe.init_from)
        self.model = _shared(model.to(device), ranks, machine)
        if machine.captures():
            channels_last_(self.model)
        weights = PrunableWeights(self.model)  # raises an error without any, before the optimizer does
        if machine.threads is None and weights.total * math.prod(dataset.shape[1:]) < SMALL_NETWORK:
            torch.set_num_threads(1)
        self.images = bring_images(recipe, seed, dataset, device, machine, ranks)
        self.batches = self.images.batches
        optimizer = optimizers.build(self.model.parameters(), recipe.training, device)
        self.compiled_eval = CompiledEval(self.model, machine)
        recorded = record and ranks.first
        self.recorder = (
            Recorder(run.history, recipe.method, weights, self.images, self.compiled_eval) if recorded else None
        )
        self.flop_counter = FlopCounter(
            forward_cost(self.model, weights, dataset.shape), weights, self.compiled_eval.run
        )
        self.input_shape, self.classes = dataset.shape, dataset.classes
        self.sparsifier = self.attach(optimizer, classes=len(dataset.classes))
        self.driver = SparsifierDriver(self.sparsifier, FlatMemory(self.sparsifier.weights))
        if isinstance(optimizer, optimizers.FlatSGD):
            looked_at = any(
                phase.rules.around_step for phase in self.sparsifier.plan
            )  # they see gradients before the step
            optimizer.use_flat(self.driver.memory, add_penalty=not looked_at)
        self.epoch_loss = EpochLoss(device)
        self.forward_backward = build_forward_backward(
            self.driver, machine, ranks=ranks, batch=(self.batches.batch_size, *dataset.shape)
        )
        self.step: tuple[Phase, bool, Step] | None = None  # of the phase at hand, with a mask or without
        self.phase_cache = (  # what several ranks train has other bits
            PhaseCache(phase_cache, recipe, seed, describe(machine), record=record)
            if phase_cache and not ranks.several
            else None
        )
        self.entries: list[Entry] = []
        self.epoch_seconds = 0.0  # spent in this epoch before a restart
        self.began = 0.0  # when its steps did, in this process

    def attach(self, optimizer: Optimizer, *, classes: int) -> Sparsifier:
        """The recipe's plan for this network."""
        task = Task(
            functional.cross_entropy,
            self.images.scoring,
            on_scores=self.on_scores,
            forward=self.flop_counter.run,
            train_loader=self.images.initial_scoring,
            classes=classes,
        )
        sparsifier = Sparsifier(
            self.model,
            optimizer,
            self.recipe.plan(teacher=self.teacher()),
            task=task,
            lr=self.recipe.training.lr_schedule(),
            penalty=None,
            input_shape=self.input_shape,
            on_collapse=self.machine.on_collapse,
            ranks=self.ranks,
        )
        if any(phase.requires.steps for phase in sparsifier.plan):  # others go by epochs, as the stored runs did
            sparsifier.state.steps_per_epoch = len(self.batches)
        return sparsifier

    def teacher(self) -> nn.Module | None:
        """The network of a given teacher's file; None where the run's own is the teacher, or nobody is."""
        techniques = self.recipe.techniques
        if not techniques.given_teacher:
            return None
        check_digest(techniques.teacher, techniques.teacher_digest)
        teacher = copy.deepcopy(self.model)
        load_weights_(teacher, techniques.teacher)
        return teacher

    def run_plan(self, callback: Callback, stop: StopRequest) -> Result:
        """Train the remaining epochs, then write the final network and the result."""
        run, seconds = self.run, self.machine.checkpoint_seconds
        writer = CheckpointWriter(run.checkpoint_file, run.state_file, seconds, check=run.check_lock)
        self.ranks.copy_first_([*self.model.parameters(), *self.model.buffers()])
        callback.started(self.sparsifier, self.entries, len(self.batches))
        try:
            while self.begin_epoch():
                self.train_epoch(self.step_of_phase(), callback, stop, writer)
                phase = self.sparsifier.phase
                with CAPTURE_LOCK.working():
                    callback.finished_epoch(self.finish_epoch())
                    state = state_of(self)
                self.submit(writer, state)
                self.keep_phase_end(phase, state)
                if self.agreed(stop.requested()) and not self.sparsifier.done:
                    raise Stopped(stop.reason)
        finally:
            writer.close()
            self.batches.close()
        with CAPTURE_LOCK.working():
            return self.finish()

    def begin_epoch(self) -> bool:
        """Enter the next epoch; False when the plan is done."""
        with CAPTURE_LOCK.working():
            self.model.train()
            began = self.sparsifier.begin_epoch()
            if began and self.recorder and self.sparsifier.state.epoch == 0 and self.batches.position == 0:
                with self.machine.autocast():
                    self.recorder.start(self.sparsifier)
            return began

    def keep_phase_end(self, phase: Phase, state: dict[str, Any]) -> None:
        """Store the end of a phase in the phase cache after its last epoch."""
        plan = self.sparsifier.plan
        if self.phase_cache and (self.sparsifier.phase is not phase or self.sparsifier.done):
            recorded = self.recorder.epochs if self.recorder else None
            self.phase_cache.save(plan[: plan.index(phase) + 1], state, self.entries, recorded)

    def step_of_phase(self) -> Step:
        """The step of the current phase, rebuilt when the phase changes."""
        phase, masked = self.sparsifier.phase, self.sparsifier.mask is not None
        if self.step is None or self.step[0] is not phase or self.step[1] != masked:
            self.step = None  # frees the last one's memory first
            built = build_step(self.driver, self.batches, self.epoch_loss, self.machine, self.forward_backward)
            self.step = phase, masked, built
        return self.step[2]

    def train_epoch(self, step: Step, callback: Callback, stop: StopRequest, writer: CheckpointWriter) -> None:
        """Train the remaining steps of an epoch."""
        if self.batches.position == 0:
            self.epoch_loss.reset()
        self.began = saved = time.monotonic()
        for number in self.batches.numbers():
            step(number)
            callback.stepped(self.batches.position)
            if self.batches.position == len(self.batches):
                continue
            if self.ranks.several and self.batches.position % STEPS_BETWEEN_QUESTIONS:
                continue
            now = time.monotonic()
            late = self.ranks.first and now - saved > max(self.machine.checkpoint_seconds, 1.0)
            stopped = stop.requested()
            if self.agreed(stopped or late):
                with CAPTURE_LOCK.working():
                    self.check_loss()
                    self.submit(writer, state_of(self))
                saved = now
                if self.agreed(stopped):
                    raise Stopped(stop.reason)

    def finish_epoch(self) -> Entry:
        """Evaluate, let the method act at the epoch's end, and append the epoch to the log."""
        self.check_loss()
        self.join_ranks()
        sparsifier, phase = self.sparsifier, self.sparsifier.phase
        kept = sparsifier.mask.kept if sparsifier.mask else sparsifier.weights.total
        stage = "sparse" if kept < sparsifier.weights.total else "penalized" if phase.rules.penalty else "dense"
        said: dict[str, Any] = {
            "epoch": sparsifier.total_epoch,
            "phase": phase.name,
            "phase_epoch": sparsifier.state.epoch,
            "stage": stage,
            "lr": sparsifier.lr,
            "loss": self.epoch_loss.loss.value(),
            "train_accuracy": sparsifier.state.observed.value(),
            "kept": kept,
            "total": sparsifier.weights.total,
            **self.flop_counter.epoch(sparsifier, images=self.epoch_loss.loss.count, steps=len(self.batches)),
        }
        with self.machine.autocast(), self.recorder.epoch(sparsifier) if self.recorder else nullcontext():
            with sparsifier.averaged():
                said |= self.measure()
            sparsifier.finish_epoch()
        seconds = self.epoch_seconds + time.monotonic() - self.began
        said = {**sparsifier.log, **said, **self.flop_counter.scoring_of_epoch(), "seconds": seconds}
        entry = cast("Entry", said)
        self.epoch_seconds = 0.0
        self.entries.append(entry)
        if self.ranks.first:
            self.run.check_lock()
            self.run.append_log(entry)
        return entry

    def join_ranks(self) -> None:
        """Sum the ranks' losses and scores at the end of an epoch."""
        self.epoch_loss.loss.sum_over_(self.ranks)
        self.sparsifier.state.observed.sum_over_(self.ranks)
        average_statistics_(self.model, self.ranks)

    def agreed(self, wanted: bool) -> bool:
        """Whether the value is true on one of the ranks."""
        return any(self.ranks.sum(wanted))

    def submit(self, writer: CheckpointWriter, state: dict[str, Any]) -> None:
        """Have rank 0 write a checkpoint."""
        if self.ranks.first:
            writer.submit(state)

    def on_scores(self, scores: Tensor) -> None:
        """Receive per-sample scores that the method asked for."""
        self.flop_counter.on_scores(scores)
        if self.recorder:
            self.recorder.on_scores(scores)

    def measure(self) -> dict[str, float]:
        """Accuracy and loss on the test images and on held-out ones."""
        test = evaluate(self.model, self.images.test, self.compiled_eval.run, ranks=self.ranks)
        if self.recorder:
            self.recorder.tested(test.hits)
        found = {"test_accuracy": test.accuracy, "test_loss": test.loss}
        if self.images.validation is not None:
            held_out = evaluate(self.model, self.images.validation, self.compiled_eval.run, ranks=self.ranks)
            found["validation_accuracy"] = held_out.accuracy
        return found

    def check_loss(self) -> None:
        """Raise an error if the loss or the weights are not finite, before they are saved."""
        step = min(self.ranks.gather(float(self.epoch_loss.first_bad)))
        if step == torch.inf:
            # The last step may have had a finite loss and spoilt the weights.
            if torch.stack([parameter.isfinite().all() for parameter in self.model.parameters()]).all():
                return
            step = float(self.epoch_loss.index) - 1
        epoch, phase = self.sparsifier.total_epoch, self.sparsifier.phase.name
        there = epoch > 0 or self.run.has_checkpoint()
        kept = f"the last good checkpoint is kept in {self.run.path}" if there else "nothing was worth keeping yet"
        raise DivergedError(
            f"The loss or a weight stopped being finite in step {int(step)} of epoch {epoch} ({phase}); {kept}. "
            f"Try a lower learning rate (--set training.lr={self.recipe.training.lr / 10:g}), "
            "a weaker penalty, or --precision fp32."
        )

    def finish(self) -> Result:
        """Evaluate the final network, and write it."""
        with self.machine.autocast():
            at_end = self.measure()
        return self.ranks.from_first(lambda: self.write_result(at_end))

    def write_result(self, at_end: dict[str, float]) -> Result:
        """Write the final network and, last, the result."""
        self.run.check_lock()
        weights = self.sparsifier.weights
        paths = find_paths(self.model, weights.mask or Mask.all_kept(weights), self.input_shape)
        result: dict[str, Any] = make_result(self.recipe, self.seed, self.machine, self.entries, weights)
        result["classes"] = list(self.classes)
        result["machine"] |= {"ranks": self.ranks.size} if self.ranks.several else {}
        result |= {"effective_kept": paths.effective_kept, "effective_sparsity": paths.effective_sparsity}
        result |= {**total_cost(self.entries), **inference_cost(self.flop_counter.cost, result["kept_by_layer"])}
        metadata = {"recipe": self.recipe.to_toml(), "seed": str(self.seed)}
        result["final_bytes"] = save_weights(self.run.final_file, weights, metadata)
        result["dense_bytes"] = sum(tensor.nbytes for tensor in self.model.state_dict().values())
        result["at_end"] = at_end
        if self.recorder:
            write_record(self.run.record_file, self.recorder.record(self.entries, weights.mask))
        self.run.write_result(finished := cast("Result", result))
        if self.recipe.until is None:
            self.run.delete_checkpoints()
        return finished


def _shared(model: nn.Module, ranks: Ranks, machine: Machine) -> nn.Module:
    """The network for several ranks: on GPUs the norms of a batch are over all of it."""
    if not ranks.several:
        return model
    if machine.captures():
        raise OptionError("Steps are captured for one process only; several take `engine` compiled or eager.")
    if next(model.parameters()).is_cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return model

"""`train`: the training loop."""

import copy
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.distributed import Ranks
from hypersparse.errors import OptionError
from hypersparse.methods.base import Phase
from hypersparse.methods.task import Task
from hypersparse.recipe import Recipe
from hypersparse.sparsifier import Sparsifier
from hypersparse.sparsity.flops import forward_cost
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.checkpoint import CheckpointWriter
from hypersparse.storage.phase_cache import PhaseCache
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, Result
from hypersparse.storage.weights_io import check_digest, load_weights_
from hypersparse.training import optimizers
from hypersparse.training.callbacks import Callback
from hypersparse.training.compiled_eval import CompiledEval
from hypersparse.training.concurrency.cuda_streams import CAPTURE_LOCK
from hypersparse.training.engines import EpochLoss, Step, build_forward_backward, build_step
from hypersparse.training.epoch_end import check_loss, finish_epoch, measure
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.flop_counter import FlopCounter
from hypersparse.training.loaders import bring_images
from hypersparse.training.machine import Machine
from hypersparse.training.network import build_network, channels_last_
from hypersparse.training.recorder import Recorder
from hypersparse.training.result import describe, write_result
from hypersparse.training.resume import outcome_in, resume_, state_of
from hypersparse.training.sparsifier_driver import SparsifierDriver
from hypersparse.training.stop import Stopped, StopRequest

STEPS_BETWEEN_QUESTIONS = 16  # whether to stop or save, where several ranks have to agree


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
        until, result = ranks.from_first(lambda: outcome_in(run, recipe, seed))
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
        machine.limit_threads_(weights.total, dataset.shape)
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
                    callback.finished_epoch(finish_epoch(self))
                    state = state_of(self)
                self.submit(writer, state)
                self.keep_phase_end(phase, state)
                if self.agreed(stop.requested()) and not self.sparsifier.done:
                    raise Stopped(stop.reason)
        finally:
            writer.close()
            self.batches.close()
        with CAPTURE_LOCK.working():
            with self.machine.autocast():
                at_end = measure(self)
            return self.ranks.from_first(lambda: write_result(self, at_end))

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
                    check_loss(self)
                    self.submit(writer, state_of(self))
                saved = now
                if self.agreed(stopped):
                    raise Stopped(stop.reason)

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


def _shared(model: nn.Module, ranks: Ranks, machine: Machine) -> nn.Module:
    """The network for several ranks: on GPUs the norms of a batch are over all of it."""
    if not ranks.several:
        return model
    if machine.captures():
        raise OptionError("Steps are captured for one process only; several take `engine` compiled or eager.")
    if next(model.parameters()).is_cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return model

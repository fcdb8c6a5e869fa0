"""Our own steps, timed where they are used: in `Training`, one run alone or several side by side."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from hypersparse.bench.timing import Span, Timing, finish, forget_peak, peak_bytes, seconds_of, time_steps
from hypersparse.bench.workloads import LR, PHASES, SPARSITY, Cell, Effort, Workload
from hypersparse.data.batches import Batches
from hypersparse.data.dataset import Dataset, Split
from hypersparse.recipe import Recipe, resolve
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.cuda_streams import own_stream, side_by_side
from hypersparse.training.loop import Training
from hypersparse.training.machine import Machine
from hypersparse.training.step import CapturedStep

SCALED_PASSES, SCALED_SECONDS = 3, 2.0  # over a part of the images, where that is scaled
TEST_IMAGES = 64  # never scored on here, but a data set has some


@dataclass(frozen=True)
class Spans:
    """What one run timed in a phase."""

    begin: Span
    steps: Span
    scoring: Span


def measure(cell: Cell, effort: Effort, machine: Machine) -> list[Timing]:
    """Time every phase of a cell. Steps are built one after another; the timed parts begin together."""
    workload = cell.workload
    with machine.active() as device, tempfile.TemporaryDirectory() as folder:
        dataset = random_dataset(workload, effort.images_of(workload), device)
        recipe = recipe_of(workload, effort.batch_size)
        trainings = [
            Training(recipe, seed, machine, device, dataset, RunFolder(f"{folder}/{seed}")) for seed in range(cell.runs)
        ]
        return [measure_phase(phase, trainings, cell, effort) for phase in workload.phases]


def measure_phase(phase: str, trainings: Sequence[Training], cell: Cell, effort: Effort) -> Timing:
    """Build the steps of a phase, time them, and go on to the next phase."""
    device = trainings[0].sparsifier.weights.device
    forget_peak(device)
    began = time.perf_counter()
    for training in trainings:
        with own_stream(device) if cell.runs > 1 else nullcontext():
            build(training, cell.engine)
            training.scorer.prepare(training.images)
    finish(device)
    compile_seconds = time.perf_counter() - began
    share = cell.workload.images / effort.images_of(cell.workload)
    spans = timed_together(trainings, effort, share)
    memory = peak_bytes(device)
    if phase != PHASES[-1]:
        for training in trainings:
            with training.machine.autocast():
                training.sparsifier.finish_epoch()
    return Timing(
        phase=phase,
        step_seconds=seconds_of([each.steps for each in spans]),
        begin_seconds=seconds_of([each.begin for each in spans]),
        scoring_seconds=seconds_of([each.scoring for each in spans]),
        compile_seconds=compile_seconds,
        memory_bytes=memory,
        steps=min(each.steps.times for each in spans),
    )


def build(training: Training, engine: str) -> None:
    """Begin the phase and take its first step, which is when a network is compiled."""
    training.sparsifier.begin_epoch()
    training.model.train()
    step = training.step_of_phase()
    if engine == "cudagraph" and not isinstance(step, CapturedStep):
        raise RuntimeError("the step could not be captured")
    step(next(numbers(training.batches)))


def timed_together(trainings: Sequence[Training], effort: Effort, share: float) -> list[Spans]:
    """Time one phase of each run: alone as a user would run it, several in a thread and a stream each."""
    barrier = threading.Barrier(len(trainings))
    failures: list[BaseException] = []

    def guarded(training: Training) -> Spans:
        try:
            return timed(training, effort, share, barrier.wait)
        except threading.BrokenBarrierError:
            raise
        except BaseException as error:  # the others must not wait for ever
            failures.append(error)
            barrier.abort()
            raise

    if len(trainings) == 1:
        return [guarded(trainings[0])]
    device = trainings[0].sparsifier.weights.device
    try:
        return side_by_side([partial(guarded, training) for training in trainings], device)
    except threading.BrokenBarrierError:
        raise failures[0] from None


def timed(training: Training, effort: Effort, share: float, together: Callable[[], object]) -> Spans:
    """Warm up, wait for the others, and time the beginning of an epoch, its steps and the scoring at its end."""
    step, batches = training.step_of_phase(), training.batches
    device = training.sparsifier.weights.device
    endless = numbers(batches)
    for _ in range(effort.warm_up_steps - 1):  # the first was taken to build it
        step(next(endless))
    finish(device)
    together()
    began = time.perf_counter()
    batches.load_state_dict(batches.state_dict())  # draw this epoch's order, crops and flips anew
    endless = numbers(batches)
    endless = chain([next(endless)], endless)
    finish(device)
    begin = Span(began, time.perf_counter())
    together()
    steps = time_steps(lambda: step(next(endless)), effort.steps, device, effort.limit_seconds)
    return Spans(begin, steps, scored(training, share, together))


def scored(training: Training, share: float, together: Callable[[], object]) -> Span:
    """Time how the method scores the pruned copy after an epoch, where its phase does.

    The data set is `share` times as large as the images at hand. Pruning takes the same time for any number of
    images, so that only the forward pass over them is scaled.
    """
    phase, state = training.sparsifier.phase, training.sparsifier.state
    device = training.sparsifier.weights.device
    if phase.stop_when is None:
        return Span(0.0, 0.0)
    with training.machine.autocast():
        if device.type == "cuda":
            phase.stop_when(state)  # libraries choose their algorithms the first time
            finish(device)
        together()
        began = time.perf_counter()
        phase.stop_when(state)
        finish(device)
        ended = time.perf_counter()
        if share == 1:
            return Span(began, ended)
        passes = time_steps(lambda: state.task.score(state.model), SCALED_PASSES, device, SCALED_SECONDS)
        forward = seconds_of([passes])
    return Span(began, began + max(ended - began - forward, 0.0) + forward * share)


def numbers(batches: Batches) -> Iterator[int]:
    """Batch numbers as in the training loop, epoch after epoch."""
    while True:
        yield from batches.numbers()


def random_dataset(workload: Workload, count: int, device: torch.device) -> Dataset:
    """Random images on the device, shared by all runs of a cell."""
    classes = tuple(str(number) for number in range(workload.classes))
    half, quarter = (0.5,) * workload.shape[0], (0.25,) * workload.shape[0]

    def split(count: int) -> Split:
        return Split(random_pixels((count, *workload.shape), device), random_labels(count, workload.classes, device))

    return Dataset("random", split(count), split(TEST_IMAGES), classes, half, quarter)


def random_pixels(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Bytes, the same in every run."""
    generator = torch.Generator(device).manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)


def random_labels(count: int, classes: int, device: torch.device) -> Tensor:
    """Labels, the same in every run."""
    generator = torch.Generator(device).manual_seed(1)
    return torch.randint(0, classes, (count,), device=device, generator=generator)


def recipe_of(workload: Workload, batch_size: int) -> Recipe:
    """The paper's recipe with one epoch for each phase."""
    return resolve(
        {
            "data": {"name": "cifar10"},  # for its augmentation; the images are random
            "model": {"name": workload.model},
            "training": {"batch_size": batch_size, "lr": LR},
            "method": {"sparsity": SPARSITY, "pretrain_epochs": 1, "max_regularized_epochs": 1},
        }
    )

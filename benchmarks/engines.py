"""Timing of this package's training engines inside `Training`, for one run or several concurrent runs."""

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

from benchmarks.timing import Span, Timing, peak_bytes, reset_peak_memory, span_seconds, time_steps, wait_for_stream
from benchmarks.workloads import LR, PHASES, SPARSITY, Effort, TrainingCase, Workload
from hypersparse.data.batches import ShuffledBatches
from hypersparse.data.dataset import Dataset, Split
from hypersparse.recipe import Recipe, resolve
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.cuda_streams import own_stream, run_concurrently
from hypersparse.training.engines import CapturedStep
from hypersparse.training.loop import Training
from hypersparse.training.machine import CAPTURED, Machine

SCALED_PASSES, SCALED_SECONDS = 3, 2.0  # timed passes over a part of the images, if their time is scaled
TEST_IMAGES = 64  # not scored here, but a data set needs some


@dataclass(frozen=True)
class PhaseSpans:
    """The timed parts of one run in a phase."""

    begin: Span
    steps: Span
    scoring: Span


def measure(case: TrainingCase, effort: Effort, machine: Machine) -> list[Timing]:
    """Time every phase of a case. Runs build their steps one after another and start the timed parts together."""
    workload = case.workload
    with machine.active() as device, tempfile.TemporaryDirectory() as folder:
        dataset = random_dataset(workload, effort.images_of(workload), device)
        recipe = benchmark_recipe(workload, effort.batch_size)
        trainings = [
            Training(recipe, seed, machine, device, dataset, RunFolder(f"{folder}/{seed}")) for seed in range(case.runs)
        ]
        return [measure_phase(phase, trainings, case, effort) for phase in workload.phases]


def measure_phase(phase: str, trainings: Sequence[Training], case: TrainingCase, effort: Effort) -> Timing:
    """Build the steps of a phase, time them, and advance to the next phase."""
    device = trainings[0].sparsifier.weights.device
    reset_peak_memory(device)
    began = time.perf_counter()
    for training in trainings:
        with own_stream(device) if case.runs > 1 else nullcontext():
            build_step(training, case.engine)
            training.compiled_eval.prepare(training.images)
    wait_for_stream(device)
    compile_seconds = time.perf_counter() - began
    image_factor = case.workload.images / effort.images_of(case.workload)
    spans = time_concurrently(trainings, effort, image_factor)
    memory = peak_bytes(device)
    if phase != PHASES[-1]:
        for training in trainings:
            with training.machine.autocast():
                training.sparsifier.finish_epoch()
    return Timing(
        phase=phase,
        step_seconds=span_seconds([each.steps for each in spans]),
        begin_seconds=span_seconds([each.begin for each in spans]),
        scoring_seconds=span_seconds([each.scoring for each in spans]),
        compile_seconds=compile_seconds,
        memory_bytes=memory,
        steps=min(each.steps.times for each in spans),
    )


def build_step(training: Training, engine: str) -> None:
    """Begin the phase and take its first step, which compiles the network."""
    training.sparsifier.begin_epoch()
    training.model.train()
    step = training.step_of_phase()
    if engine in CAPTURED and not isinstance(step, CapturedStep):
        raise RuntimeError("the step could not be captured")
    step(next(batch_numbers(training.batches)))


def time_concurrently(trainings: Sequence[Training], effort: Effort, image_factor: float) -> list[PhaseSpans]:
    """Time one phase of each run. Several runs have a thread and a CUDA stream each."""
    barrier = threading.Barrier(len(trainings))
    failures: list[BaseException] = []

    def time_or_abort(training: Training) -> PhaseSpans:
        try:
            return time_phase(training, effort, image_factor, barrier.wait)
        except threading.BrokenBarrierError:
            raise
        except BaseException as error:  # the other runs must not wait forever
            failures.append(error)
            barrier.abort()
            raise

    if len(trainings) == 1:
        return [time_or_abort(trainings[0])]
    device = trainings[0].sparsifier.weights.device
    try:
        return run_concurrently([partial(time_or_abort, training) for training in trainings], device)
    except threading.BrokenBarrierError:
        raise failures[0] from None


def time_phase(training: Training, effort: Effort, image_factor: float, barrier: Callable[[], object]) -> PhaseSpans:
    """Warm up, wait for the other runs, then time the start of an epoch, its steps and the scoring at its end."""
    step, batches = training.step_of_phase(), training.batches
    device = training.sparsifier.weights.device
    numbers = batch_numbers(batches)
    for _ in range(effort.warm_up_steps - 1):  # `build_step` took the first
        step(next(numbers))
    wait_for_stream(device)
    barrier()
    began = time.perf_counter()
    batches.load_state_dict(batches.state_dict())  # draws the order, crops and flips again
    numbers = batch_numbers(batches)
    numbers = chain([next(numbers)], numbers)
    wait_for_stream(device)
    begin = Span(began, time.perf_counter())
    barrier()
    steps = time_steps(lambda: step(next(numbers)), effort.steps, device, effort.limit_seconds)
    return PhaseSpans(begin, steps, time_scoring(training, image_factor, barrier))


def time_scoring(training: Training, image_factor: float, barrier: Callable[[], object]) -> Span:
    """Time the scoring of the pruned copy after an epoch; a phase without scoring takes no time.

    The data set has `image_factor` times as many images as are in memory. Only the forward pass is scaled by it, as
    the time for pruning does not depend on the number of images.
    """
    phase, state = training.sparsifier.phase, training.sparsifier.state
    device = training.sparsifier.weights.device
    if phase.stop_when is None:
        return Span(0.0, 0.0)
    with training.machine.autocast():
        if device.type == "cuda":
            phase.stop_when(state)  # libraries select their algorithms in the first call
            wait_for_stream(device)
        barrier()
        began = time.perf_counter()
        phase.stop_when(state)
        wait_for_stream(device)
        ended = time.perf_counter()
        if image_factor == 1:
            return Span(began, ended)
        passes = time_steps(lambda: state.task.score(state.model), SCALED_PASSES, device, SCALED_SECONDS)
        forward = span_seconds([passes])
    return Span(began, began + max(ended - began - forward, 0.0) + forward * image_factor)


def batch_numbers(batches: ShuffledBatches) -> Iterator[int]:
    """Batch numbers as in the training loop, epoch after epoch."""
    while True:
        yield from batches.numbers()


def random_dataset(workload: Workload, count: int, device: torch.device) -> Dataset:
    """Random images on the device, shared by all runs of a case."""
    classes = tuple(str(number) for number in range(workload.classes))
    half, quarter = (0.5,) * workload.shape[0], (0.25,) * workload.shape[0]

    def split(count: int) -> Split:
        return Split(random_pixels((count, *workload.shape), device), random_labels(count, workload.classes, device))

    return Dataset("random", split(count), split(TEST_IMAGES), classes, half, quarter)


def random_pixels(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Random uint8 pixels, the same in every run."""
    generator = torch.Generator(device).manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)


def random_labels(count: int, classes: int, device: torch.device) -> Tensor:
    """Random labels, the same in every run."""
    generator = torch.Generator(device).manual_seed(1)
    return torch.randint(0, classes, (count,), device=device, generator=generator)


def benchmark_recipe(workload: Workload, batch_size: int) -> Recipe:
    """The paper's recipe with one epoch for each phase."""
    return resolve(
        {
            "data": {"name": "cifar10"},  # for its augmentation; the images are random
            "model": {"name": workload.model},
            "training": {"batch_size": batch_size, "lr": LR},
            "method": {"sparsity": SPARSITY, "pretrain_epochs": 1, "max_regularized_epochs": 1},
        }
    )

"""Timing of `reference_loop.py`, a reimplementation of the authors' training loop, phase by phase."""

import time

import numpy as np
import torch

from benchmarks.reference_loop import ReferenceLoop, TransformedImages
from benchmarks.timing import Span, Timing, peak_bytes, reset_peak_memory, span_seconds, time_steps, wait_for_stream
from benchmarks.workloads import LR, SPARSITY, Effort, TrainingCase, Workload
from hypersparse import models
from hypersparse.training.machine import Machine

LARGE_STEPS = 30  # for images of 64x64 pixels, which the workers load slowly


def measure(case: TrainingCase, effort: Effort, device: str) -> list[Timing]:
    """Time every phase. Convolutions use TF32 on a GPU, PyTorch's default, as in the authors' code.

    The authors' code starts its workers again for every pass over the data. The time to the first batch is therefore
    measured on its own and counted once per pass. An epoch has one pass, or two if a pruned copy is scored.
    """
    steps = effort.steps if case.workload.shape[1] <= 32 else min(effort.steps, LARGE_STEPS)
    machine = Machine(device=device, precision="tf32", engine="eager", threads=effort.threads)
    with machine.active() as place:
        loop = build(case.workload, effort.batch_size, place)
        return [measure_phase(phase, loop, case.workload, effort, steps, place) for phase in case.workload.phases]


def build(workload: Workload, batch_size: int, device: torch.device) -> ReferenceLoop:
    """The loop on as many random images as the data set has."""
    channels, height, width = workload.shape
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (workload.images, height, width, channels), dtype=np.uint8)
    labels = random.integers(0, workload.classes, workload.images).tolist()
    data = TransformedImages(pixels, labels, [0.5] * channels, [0.25] * channels)
    torch.manual_seed(0)
    model = models.build(workload.model, shape=workload.shape, classes=workload.classes)
    return ReferenceLoop(model, data, batch_size=batch_size, sparsity=SPARSITY, lr=LR, device=device)


def measure_phase(
    phase: str, loop: ReferenceLoop, workload: Workload, effort: Effort, steps: int, device: torch.device
) -> Timing:
    """Time one phase: the start of the workers, the steps, and the scoring after a regularized epoch."""
    reset_peak_memory(device)
    if phase == "masked":
        loop.prune()
    begin_seconds, span = time_steps_of_phase(phase, loop, effort, steps, device)
    seconds = scoring_seconds(loop, workload, effort, steps, device) if phase == "regularized" else 0.0
    return Timing(phase, span_seconds([span]), begin_seconds, seconds, 0.0, peak_bytes(device), span.times)


def time_steps_of_phase(
    phase: str, loop: ReferenceLoop, effort: Effort, steps: int, device: torch.device
) -> tuple[float, Span]:
    """Seconds to the first batch, and the steps after the warm-up; stops the workers."""
    began = time.perf_counter()
    batches = loop.batches()
    batch = next(batches)
    begin_seconds = time.perf_counter() - began
    loop.step(phase, batch)
    for _ in range(effort.warm_up_steps - 1):
        loop.step(phase, next(batches))
    wait_for_stream(device)
    return begin_seconds, time_steps(lambda: loop.step(phase, next(batches)), steps, device, effort.limit_seconds)


def scoring_seconds(loop: ReferenceLoop, workload: Workload, effort: Effort, steps: int, device: torch.device) -> float:
    """Time copying, pruning, starting the workers, and scoring; scaled from a part of the images to all."""
    began = time.perf_counter()
    pruned, _ = loop.pruned_copy()
    batches = loop.batches()
    batch = next(batches)
    begin_seconds = time.perf_counter() - began
    for _ in range(effort.warm_up_steps if device.type == "cuda" else 0):
        loop.score(pruned, batch)
    wait_for_stream(device)
    span = time_steps(lambda: loop.score(pruned, next(batches)), steps, device, effort.limit_seconds)
    return begin_seconds + span_seconds([span]) * effort.steps_per_epoch(workload)

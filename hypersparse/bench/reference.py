"""The re-making of the original loop, found in the checkout's `benchmarks` folder and timed phase by phase."""

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

import hypersparse
from hypersparse import models
from hypersparse.bench.timing import Span, Timing, finish, forget_peak, peak_bytes, seconds_of, time_steps
from hypersparse.bench.workloads import LR, SPARSITY, Cell, Effort, Workload
from hypersparse.training.machine import Machine

FILE = Path(hypersparse.__file__).parents[1] / "benchmarks" / "reference_loop.py"
MISSING = (
    "The reference loop is not part of an installed package: run the bench from a checkout, "
    "where it lies in benchmarks/reference_loop.py, to see how much faster the engines are."
)
LARGE_STEPS = 30  # of images of 64x64 pixels, which the workers are slow to make


class Loop(Protocol):
    """What is asked of `benchmarks/reference_loop.py`."""

    def batches(self) -> Iterator[Any]:
        """A pass over the training images; starts the workers."""

    def step(self, phase: str, batch: Any) -> None:
        """Train on one batch."""

    def pruned_copy(self) -> tuple[nn.Module, Any]:
        """A pruned deep copy."""

    def score(self, model: nn.Module, batch: Any) -> None:
        """Score a network on a batch."""

    def prune(self) -> None:
        """Go on with the pruned copy."""


def load() -> ModuleType | None:
    """The reference's module, or None where only the package is installed."""
    spec = importlib.util.spec_from_file_location("hypersparse_reference_loop", FILE)
    if not FILE.is_file() or spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(cell: Cell, effort: Effort, module: ModuleType, device: str) -> list[Timing]:
    """Time every phase. Convolutions are in TF32 on a GPU, as in the original: it is PyTorch's default.

    The original starts its workers anew for every pass. A hundred steps must not carry that for a whole epoch, so
    the time to the first batch is taken apart and counted once a pass: once an epoch, twice where a pruned copy
    is scored.
    """
    steps = effort.steps if cell.workload.shape[1] <= 32 else min(effort.steps, LARGE_STEPS)
    machine = Machine(device=device, precision="tf32", engine="eager", threads=effort.threads)
    with machine.active() as place:
        loop = build(cell.workload, effort.batch_size, module, place)
        return [measure_phase(phase, loop, cell.workload, effort, steps, place) for phase in cell.workload.phases]


def build(workload: Workload, batch_size: int, module: ModuleType, device: torch.device) -> Loop:
    """The loop on random images, as many as the data set has."""
    channels, height, width = workload.shape
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (workload.images, height, width, channels), dtype=np.uint8)
    labels = random.integers(0, workload.classes, workload.images).tolist()
    data = module.TransformedImages(pixels, labels, [0.5] * channels, [0.25] * channels)
    torch.manual_seed(0)
    model = models.build(workload.model, shape=workload.shape, classes=workload.classes)
    loop: Loop = module.ReferenceLoop(model, data, batch_size=batch_size, sparsity=SPARSITY, lr=LR, device=device)
    return loop


def measure_phase(
    phase: str, loop: Loop, workload: Workload, effort: Effort, steps: int, device: torch.device
) -> Timing:
    """Time one phase: a start of the workers, steps, and after a regularized epoch the scoring."""
    forget_peak(device)
    if phase == "masked":
        loop.prune()
    begin_seconds, span = timed_steps(phase, loop, effort, steps, device)
    scored = scoring_seconds(loop, workload, effort, steps, device) if phase == "regularized" else 0.0
    return Timing(phase, seconds_of([span]), begin_seconds, scored, 0.0, peak_bytes(device), span.times)


def timed_steps(phase: str, loop: Loop, effort: Effort, steps: int, device: torch.device) -> tuple[float, Span]:
    """Seconds to the first batch, and the steps after the warm-up; the workers end with it."""
    began = time.perf_counter()
    batches = loop.batches()
    batch = next(batches)
    begin_seconds = time.perf_counter() - began
    loop.step(phase, batch)
    for _ in range(effort.warm_up_steps - 1):
        loop.step(phase, next(batches))
    finish(device)
    return begin_seconds, time_steps(lambda: loop.step(phase, next(batches)), steps, device, effort.limit_seconds)


def scoring_seconds(loop: Loop, workload: Workload, effort: Effort, steps: int, device: torch.device) -> float:
    """Copy, prune, start the workers, and score a part of the images, scaled to all of them."""
    began = time.perf_counter()
    pruned, _ = loop.pruned_copy()
    batches = loop.batches()
    batch = next(batches)
    begin_seconds = time.perf_counter() - began
    for _ in range(effort.warm_up_steps if device.type == "cuda" else 0):
        loop.score(pruned, batch)
    finish(device)
    span = time_steps(lambda: loop.score(pruned, next(batches)), steps, device, effort.limit_seconds)
    return begin_seconds + seconds_of([span]) * effort.steps_per_epoch(workload)

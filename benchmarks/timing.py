"""Timings, and reading the clock and the memory of a device."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Protocol

import torch


class Case(Protocol):
    """What is measured at a time."""

    @property
    def title(self) -> str:
        """The description shown while it runs."""


class BenchCallback(Protocol):
    """Receives the progress of a benchmark."""

    def began(self, case: Case) -> None:
        """A case begins."""

    def ended(self, case: Case, seconds: float) -> None:
        """A case was measured, or skipped after 0 seconds."""


@dataclass(frozen=True)
class Timing:
    """The timing of one phase of a case; of all its concurrent runs together."""

    phase: str
    step_seconds: float
    begin_seconds: float  # per epoch: drawing its order, or starting the workers
    scoring_seconds: float  # per epoch: scoring the pruned copy on the whole data set
    compile_seconds: float  # per phase: building the steps
    memory_bytes: int | None
    steps: int


@dataclass(frozen=True)
class Span:
    """Start, end and number of repetitions of a timed operation."""

    began: float
    ended: float
    times: int = 1


def span_seconds(spans: Sequence[Span]) -> float:
    """Seconds per repetition, from the first start to the last end.

    >>> span_seconds([Span(1.0, 3.0), Span(1.5, 4.0)])
    3.0
    """
    return (max(span.ended for span in spans) - min(span.began for span in spans)) / min(span.times for span in spans)


def time_steps(step: Callable[[], object], times: int, device: torch.device, limit: float = math.inf) -> Span:
    """Time a number of steps.

    On a GPU the steps are timed together, with one synchronization at the end. On a CPU each step is timed, and fewer
    steps if their total exceeds `limit` seconds. The median is used, as other programs would distort the mean.
    """
    began = time.perf_counter()
    if device.type == "cuda":
        for _ in range(times):
            step()
        wait_for_stream(device)
        return Span(began, time.perf_counter(), times)
    ends = [began]
    while len(ends) <= times and ends[-1] - began < limit:
        step()
        ends.append(time.perf_counter())
    seconds = median(end - start for start, end in pairwise(ends))
    return Span(began, began + seconds * (len(ends) - 1), len(ends) - 1)


def wait_for_stream(device: torch.device) -> None:
    """Wait for the work on this thread's CUDA stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak memory of a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """Peak memory since the last reset; None for a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def free_memory(device: torch.device) -> None:
    """Free the memory of the last case."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()

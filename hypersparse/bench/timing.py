"""What was timed, and how the clock and the memory of a device are read."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch


@dataclass(frozen=True)
class Timing:
    """One phase of one cell; of all its runs together, where several run at once."""

    phase: str
    step_seconds: float
    begin_seconds: float  # once an epoch: drawing its order, or starting the workers
    scoring_seconds: float  # once an epoch: scoring the pruned copy on the whole data set
    compile_seconds: float  # once a phase: building the steps
    memory_bytes: int | None
    steps: int


@dataclass(frozen=True)
class Span:
    """From when to when something ran, and how many times."""

    began: float
    ended: float
    times: int = 1


def seconds_of(spans: Sequence[Span]) -> float:
    """From the first beginning to the last end, for one time of each.

    >>> seconds_of([Span(1.0, 3.0), Span(1.5, 4.0)])
    3.0
    """
    return (max(span.ended for span in spans) - min(span.began for span in spans)) / min(span.times for span in spans)


def time_steps(step: Callable[[], object], times: int, device: torch.device, limit: float = math.inf) -> Span:
    """Time a number of steps.

    A GPU is waited for once, at the end. On a CPU each step is timed, fewer if they take more than `limit`
    seconds together, and the median counts: what else runs on its cores would spoil a mean.
    """
    began = time.perf_counter()
    if device.type == "cuda":
        for _ in range(times):
            step()
        finish(device)
        return Span(began, time.perf_counter(), times)
    ends = [began]
    while len(ends) <= times and ends[-1] - began < limit:
        step()
        ends.append(time.perf_counter())
    seconds = median(end - start for start, end in pairwise(ends))
    return Span(began, began + seconds * (len(ends) - 1), len(ends) - 1)


def finish(device: torch.device) -> None:
    """Wait until the work of this thread's stream is done."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def forget_peak(device: torch.device) -> None:
    """Count the device's peak memory from now on."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """The device's peak memory since then; None for a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def clean_up(device: torch.device) -> None:
    """Give back what the last cell held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()

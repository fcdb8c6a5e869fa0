"""A short trial that finds the number of concurrent runs with the highest throughput."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier

import torch

from hypersparse.data.dataset import Dataset
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.cuda_streams import own_stream, run_concurrently
from hypersparse.training.loop import Training
from hypersparse.training.machine import Machine

COUNTS = (1, 2, 3, 5, 8, 12)
STEPS = 30
WARM_UP = 5
WORTH_IT = 1.05  # the least speedup of more runs, since each takes memory
SHARE_OF_MEMORY = 0.8


def best_concurrency(recipe: Recipe, machine: Machine, device: torch.device, dataset: Dataset, *, most: int) -> int:
    """The best number of concurrent runs, at most `most`; 1 on a CPU."""
    if device.type != "cuda":
        return 1
    best, fastest = 1, 0.0
    trainings: list[Training] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in sorted({*(number for number in COUNTS if number < most), most}):
            if not _fits(count, len(trainings), device):
                break
            trainings += [
                begun(recipe, seed, machine, device, dataset, Path(folder)) for seed in range(len(trainings), count)
            ]
            rate = count / seconds_a_step(trainings, device)
            if rate < WORTH_IT * fastest:
                break
            best, fastest = count, rate
    return best


def seconds_an_epoch(recipe: Recipe, machine: Machine, dataset: Dataset) -> float:
    """Seconds of one epoch without scoring, from a few steps of the first phase."""
    with machine.active() as device, tempfile.TemporaryDirectory() as folder:
        training = begun(recipe, 0, machine, device, dataset, Path(folder))
        return len(training.batches) * seconds_a_step([training], device, steps=WARM_UP)


def begun(
    recipe: Recipe, seed: int, machine: Machine, device: torch.device, dataset: Dataset, folder: Path
) -> Training:
    """A run in its first epoch with its step built; it writes nothing."""
    with own_stream(device):
        quiet = replace(machine, on_collapse="ignore")  # the runs themselves will say it
        training = Training(recipe, seed, quiet, device, dataset, RunFolder(folder), record=False)
        training.begin_epoch()
        training.step_of_phase()
    return training


def seconds_a_step(trainings: Sequence[Training], device: torch.device, *, steps: int = STEPS) -> float:
    """Wall time of one step of all runs, trained concurrently."""
    together = Barrier(len(trainings))

    def work(training: Training) -> tuple[float, float]:
        step = training.step_of_phase()
        for number in range(WARM_UP):
            step(number % len(training.batches))
        _wait(device)
        together.wait()
        began = time.perf_counter()
        for number in range(steps):
            step(number % len(training.batches))
        _wait(device)
        return began, time.perf_counter()

    times = run_concurrently([partial(work, training) for training in trainings], device)
    return (max(end for _, end in times) - min(began for began, _ in times)) / steps


def _fits(count: int, there: int, device: torch.device) -> bool:
    """Whether memory suffices for `count` runs, from what the existing ones use."""
    free, _ = torch.cuda.mem_get_info(device)
    taken = torch.cuda.memory_reserved(device)
    return not there or taken / there * count < SHARE_OF_MEMORY * (free + taken)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()

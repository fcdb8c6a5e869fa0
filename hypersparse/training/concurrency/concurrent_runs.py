"""Concurrent runs on one device: a thread and a stream each on a GPU, a process each on a CPU.

One run of a small network leaves most of a GPU idle; captured steps of several runs fill it. Runs share only the data
set on the device and the phases on disk, so that each has the same result as alone.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import nn

from hypersparse.data.dataset import Dataset
from hypersparse.errors import RunError
from hypersparse.recipe import Recipe
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.phase_cache import PhaseCache
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Result
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.autotune import best_concurrency
from hypersparse.training.concurrency.cuda_streams import run_concurrently
from hypersparse.training.concurrency.processes import Processes
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine, cores, is_small
from hypersparse.training.memory import is_streamed
from hypersparse.training.network import build_network
from hypersparse.training.result import describe
from hypersparse.training.resume import is_complete
from hypersparse.training.stop import Stopped, StopRequest

CPU = torch.device("cpu")
SECONDS_BETWEEN_LOOKS = 0.5  # for a phase that another run is training
log = logging.getLogger("hypersparse")


@dataclass(frozen=True)
class Job:
    """A run to train: recipe, seed, folder and callback."""

    recipe: Recipe
    seed: int
    folder: Path
    callback: Callback | None = None


Outcome = Result | Exception  # a run's result, or the reason why there is none
Ended = Callable[[Job, Outcome], None]


def train_together(
    jobs: Sequence[Job],
    machine: Machine,
    dataset: Dataset,
    *,
    concurrency: int | None = None,
    stop: StopRequest | None = None,
    phase_cache: Path | None = None,
    record: bool = True,
    ended: Ended | None = None,
) -> list[Outcome]:
    """Train several runs on one data set, `concurrency` of them at a time; by default a short trial finds the best.

    Results are in the order of the jobs, with an exception for a run that failed or was stopped; the others continue. A
    run whose first phases another run is training waits for them if there is a `phase_cache`. `ended` is called for
    every run that was started, in its thread.
    """
    stop = stop or StopRequest()
    with machine.active() as device:
        dataset = dataset if is_streamed(dataset, machine) else dataset.to(device)
        count = _concurrency(concurrency, unfinished(jobs), machine, device, dataset)
        several = count > 1 and device.type == "cpu"
        asked: dict[str, Any] = {"stop": stop, "phase_cache": phase_cache, "record": record}
        with Processes(count, machine, dataset) if several else nullcontext() as processes:

            def train_one(job: Job) -> Result:
                own = {**asked, "callback": job.callback}
                if processes:
                    return processes.train(job.recipe, job.seed, job.folder, **own)
                return train(job.recipe, job.seed, machine, job.folder, dataset=dataset, **own)

            threads = processes.threads if processes else torch.get_num_threads()
            caches = (
                _caches(jobs, machine, dataset, phase_cache, record=record, threads=threads) if phase_cache else None
            )
            return work_through(jobs, train_one, count=count, caches=caches, stop=stop, ended=ended, device=device)


def work_through(
    jobs: Sequence[Job],
    train_one: Callable[[Job], Result],
    *,
    count: int,
    caches: Sequence[PhaseCache] | None,
    stop: StopRequest,
    ended: Ended | None = None,
    device: torch.device = CPU,
) -> list[Outcome]:
    """Train the jobs in order, `count` at a time in a thread each; returns their outcomes in the same order."""
    queue = _Queue(jobs, caches)
    outcomes: dict[int, Outcome] = {}

    def work() -> None:
        while (number := queue.take(stop)) is not None:
            try:
                outcomes[number] = train_one(jobs[number])
            except Exception as error:
                outcomes[number] = error
            finally:
                queue.ended(number)
            if ended:
                ended(jobs[number], outcomes[number])

    run_concurrently([work] * count, device)
    return [outcomes.get(number, Stopped(stop.reason)) for number in range(len(jobs))]


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    """The jobs without a finished run."""
    return [job for job in jobs if not is_finished(job)]


def is_finished(job: Job) -> bool:
    """Whether a run has reached the end of its recipe."""
    try:
        result = RunFolder(job.folder).result()
        return result is not None and is_complete(job.recipe, result["until"])
    except RunError:  # damaged; training reports it
        return False


def is_failure(outcome: Outcome) -> TypeGuard[Exception]:
    """Whether a run failed."""
    return isinstance(outcome, Exception) and not isinstance(outcome, Stopped)


def _concurrency(
    asked: int | None, jobs: Sequence[Job], machine: Machine, device: torch.device, dataset: Dataset
) -> int:
    most = max(1, min(len(jobs), asked or len(jobs)))
    if most == 1:
        return 1
    if device.type == "cpu":
        return most if asked else min(most, cores()) if _is_small(jobs[0].recipe, dataset) else 1
    if machine.chosen_engine() == "compiled" or any(_draws(job.recipe, dataset) for job in jobs):
        log.warning("These runs are trained one after another: dropout and the compiled engine cannot share a process.")
        return 1
    return most if asked else best_concurrency(jobs[0].recipe, machine, device, dataset, most=most)


def _network(recipe: Recipe, dataset: Dataset) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return build_network(recipe, shape=dataset.shape, classes=len(dataset.classes))


def _is_small(recipe: Recipe, dataset: Dataset) -> bool:
    """Whether one core suffices for a run, so that several runs share a CPU."""
    return is_small(PrunableWeights(_network(recipe, dataset)).total, dataset.shape)


def _draws(recipe: Recipe, dataset: Dataset) -> bool:
    """Whether training draws random numbers, such as for dropout: all threads share one generator."""
    modules = _network(recipe, dataset).modules()
    return any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in modules)


def _caches(
    jobs: Sequence[Job], machine: Machine, dataset: Dataset, phase_cache: Path, *, record: bool, threads: int
) -> list[PhaseCache]:
    """The phase cache of each job, with the number of threads that will train it."""
    found = describe(machine)
    used: dict[str, int] = {}  # threads, by model
    caches = []
    for job in jobs:
        model = json.dumps(job.recipe.to_mapping()["model"], sort_keys=True)
        if model not in used:
            used[model] = 1 if machine.threads is None and _is_small(job.recipe, dataset) else threads
        there = found | {"threads": used[model]}
        caches.append(PhaseCache(phase_cache, job.recipe, job.seed, there, record=record))
    return caches


class _Queue:
    """The waiting jobs. A job whose first phases are being trained waits for them."""

    def __init__(self, jobs: Sequence[Job], caches: Sequence[PhaseCache] | None) -> None:
        self._jobs, self._caches, self._waiting = jobs, caches, list(range(len(jobs)))
        self._changed = threading.Condition()
        self._making: dict[Path, int] = {}  # which job is training a phase

    def take(self, stop: StopRequest) -> int | None:
        """The next job to train; None if none is left or a stop was requested."""
        with self._changed:
            while self._waiting and not stop.requested():
                for number in self._waiting:
                    phase_cache = self._missing_phases(number)
                    if self._making.keys().isdisjoint(phase_cache):
                        self._waiting.remove(number)
                        self._making |= dict.fromkeys(phase_cache, number)
                        return number
                self._changed.wait(SECONDS_BETWEEN_LOOKS)
        return None

    def ended(self, number: int) -> None:
        """A job has ended; another one may train the phases that it did not finish."""
        with self._changed:
            self._making = {phase: maker for phase, maker in self._making.items() if maker != number}
            self._changed.notify_all()

    def _missing_phases(self, number: int) -> list[Path]:
        job = self._jobs[number]
        folder = RunFolder(job.folder)
        if self._caches is None or folder.has_checkpoint() or folder.result_file.exists():
            return []
        return self._caches[number].missing(job.recipe.plan())

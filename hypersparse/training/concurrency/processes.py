"""Runs in separate processes that share the cores of a CPU."""

import multiprocessing
import signal
import warnings
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from pathlib import Path
from types import TracebackType

import torch

from hypersparse.data.dataset import Dataset
from hypersparse.errors import RunError
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Result
from hypersparse.training.callbacks import Callback, LogReader
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine, cores
from hypersparse.training.stop import StopRequest

SECONDS_BETWEEN_LOOKS = 0.3  # into a run's log, for who is told


class Processes:
    """Processes that train runs on one data set."""

    def __init__(self, count: int, machine: Machine, dataset: Dataset) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit locks of torch's threads
        self._machine, self._stop = machine, context.Event()
        self.threads = machine.threads or max(1, cores() // count)
        self._pool = ProcessPoolExecutor(count, context, _begin, (dataset, self._stop, self.threads))

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def train(
        self,
        recipe: Recipe,
        seed: int,
        folder: Path,
        *,
        callback: Callback | None,
        stop: StopRequest,
        phase_cache: Path | None,
        record: bool,
    ) -> Result:
        """Train a run in one of the processes; its epochs are reported as they appear in its log."""
        reader = LogReader(RunFolder(folder), callback)
        told = (recipe.to_toml(), recipe.imported)
        future = self._pool.submit(_train, told, seed, self._machine, folder, phase_cache, record)
        while not wait([future], SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED).done:
            if stop.requested():
                self._stop.set()
            reader.tell()
        reader.tell()
        try:
            return future.result()
        except BrokenProcessPool:
            raise RunError(
                f"A process that trained runs was killed, perhaps for want of memory; {folder} can go on from its "
                "checkpoint: give the same command again, with fewer --jobs."
            ) from None


class _ParentStop(StopRequest):
    """A stop request of the parent process."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self._event = event

    def requested(self) -> bool:
        if self._event.is_set():
            self.stop("the parent process asked for it")
        return super().requested()


_dataset: Dataset | None = None  # of this process, once it is one of several
_stop: StopRequest | None = None


def _begin(dataset: Dataset, event: Event, threads: int) -> None:
    global _dataset, _stop
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; the parent is asked, and asks
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    _dataset, _stop = dataset, _ParentStop(event)


def _train(
    told: tuple[str, frozenset[str]], seed: int, machine: Machine, folder: Path, phase_cache: Path | None, record: bool
) -> Result:
    text, own_code = told
    made = Recipe.from_toml(text, own_code=own_code)
    return train(made, seed, machine, folder, dataset=_dataset, stop=_stop, phase_cache=phase_cache, record=record)

"""`RayCluster`: the runs of a sweep on the machines of a Ray cluster.

Ray selects the machine of a run and notices when a worker dies. Everything else is as on one machine. Run folders are
on a path that all machines share. A run resumes from its checkpoint there, and progress is read from its log.
"""

import json
import logging
import socket
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.errors import HypersparseError, OptionError, RunError
from hypersparse.extras import needed
from hypersparse.recipe import Recipe
from hypersparse.storage.phase_cache import PhaseCache
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Result
from hypersparse.training.callbacks import LogReader
from hypersparse.training.concurrency.concurrent_runs import Ended, Job, Outcome, work_through
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine, cores
from hypersparse.training.result import describe
from hypersparse.training.stop import Stopped, StopRequest

SECONDS_BETWEEN_LOOKS = 0.5  # into a run's log, and of a worker whether to stop
CHECKPOINT_SECONDS = 2.0  # a cluster's machine is lost more easily than one's own; that may cost an epoch, not 20 s
SECONDS_TO_ANSWER = 10.0
TRIES = 3  # of a run whose worker dies before it got an epoch further
OBJECT_STORE = 80 << 20  # bytes, of a Ray that is started here; only results pass through it, and Ray wants 75 MB
log = logging.getLogger("hypersparse")


class RayCluster:
    """A cluster to train runs on: the one at `address`, or without one this machine's cores and GPUs.

    A run takes one core and `gpus` GPUs, by default one if the cluster has any. With 0.5 or less several runs share a
    GPU. `concurrency` is the number of runs submitted at a time, by default as many as the cluster can hold at the
    start.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        folders: Sequence[Path] = (),
        address: str | None = None,
        gpus: float | None = None,
        concurrency: int | None = None,
    ) -> None:
        self._ray = needed("ray", "ray", "`--executor ray`")
        if machine.device not in ("auto", "cpu", "cuda"):
            raise OptionError(f"Ray hands out GPUs itself: `--device` is auto, cpu or cuda; got {machine.device}.")
        if gpus is not None and gpus <= 0:
            raise OptionError(
                f"`--gpus-per-run` is above 0, such as 1 or 0.25; got {gpus:g}. For none: `--device cpu`."
            )
        if gpus and machine.device == "cpu":
            raise OptionError(f"`--gpus-per-run {gpus:g}` and `--device cpu` contradict each other; leave one out.")
        self._machine = replace(machine, checkpoint_seconds=min(machine.checkpoint_seconds, CHECKPOINT_SECONDS))
        self._address, self._asked_gpus, self._concurrency = address, gpus, concurrency
        self._folders = tuple(folder.absolute() for folder in folders)
        self._began = False

    def __enter__(self) -> "RayCluster":
        _check_address(self._address)
        if self._ray.is_initialized():
            return self
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self._address:
                self._ray.init(address=self._address, **quiet)
            else:
                here = {"num_cpus": cores(), "object_store_memory": OBJECT_STORE, "include_dashboard": False}
                self._ray.init(address="local", **here, **quiet)
        except Exception as error:  # Ray raises that itself where it is slow to start
            reason = str(error).partition("\n")[0]
            raise RunError(
                f"Ray could not be used at {self._address or 'this machine'} ({reason}). Has it another version, "
                "or another token (RAY_AUTH_TOKEN_PATH)? Without `--ray-address` this machine is used."
            ) from None
        self._began = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._began:
            self._ray.shutdown()
            self._began = False

    @cached_property
    def gpus(self) -> float:
        """The GPUs of one run."""
        there = float(self._ray.cluster_resources().get("GPU", 0))
        wanted = self._asked_gpus or (1.0 if self._machine.device == "cuda" else min(1.0, there))
        if self._machine.device == "cpu":
            return 0.0
        if wanted > there:
            raise OptionError(
                f"A run takes {wanted:g} of the cluster's GPUs, of which there are {there:g}; start its machines "
                "first, or use `--device cpu`."
            )
        return wanted

    @cached_property
    def places(self) -> int:
        """The number of runs that the cluster can hold now."""
        there = self._ray.cluster_resources()
        by_gpu = there.get("GPU", 0) / self.gpus if self.gpus else there["CPU"]
        return max(1, int(min(there["CPU"], by_gpu)))

    def train(self, jobs: Sequence[Job], *, phase_cache: Path, stop: StopRequest, ended: Ended) -> list[Outcome]:
        """Train the jobs in order on the cluster."""
        if not jobs or stop.requested():
            return [Stopped(stop.reason) for _ in jobs]
        phase_cache = phase_cache.absolute()
        described = self._remote(_describe).remote(self._machine)
        stopper = self._ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Stopper).remote()
        found = self._ray.get(described)
        if isinstance(found, Exception):
            raise found
        machine = self._machine
        caches = [PhaseCache(phase_cache, job.recipe, job.seed, found) for job in jobs]
        task = self._remote(_train)

        def train_one(job: Job) -> Result:
            told = (job.recipe.to_toml(), job.recipe.imported)
            sent = (told, job.seed, machine, job.folder.absolute(), phase_cache, self._folders, stopper)
            return self._watch(job, lambda: task.remote(*sent), stopper, stop)

        count = min(len(jobs), self._concurrency or self.places)
        return work_through(jobs, train_one, count=count, caches=caches, stop=stop, ended=ended)

    def _remote(self, function: Any) -> Any:
        # Not Ray's own retries: they are counted over the whole run, however far it got in between.
        return self._ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=0)(function)

    def _watch(self, job: Job, send: Any, stopper: Any, stop: StopRequest) -> Result:
        """Submit a run and report its epochs; if its worker dies, submit it again from its checkpoint."""
        reader = LogReader(RunFolder(job.folder), job.callback)
        tries, before = 0, -1
        while True:
            answer = send()
            while not self._ray.wait([answer], timeout=SECONDS_BETWEEN_LOOKS)[0]:
                if stop.requested():
                    stopper.stop.remote(stop.reason)
                reader.tell()
            reader.tell()
            try:
                outcome = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError:  # an error in our own code: trying again would not help
                raise
            except self._ray.exceptions.RayError as error:
                tries, before = (1 if reader.told > before else tries + 1), reader.told
                _check_tries(tries, job, error, stop)
                continue
            if isinstance(outcome, Exception):
                raise outcome
            found: Result = outcome
            return found


def _check_address(address: str | None) -> None:
    """Check that a server listens at the address; Ray itself takes minutes to notice."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if address in (None, "auto", "local"):
        return
    if not (colon and host and port.isdigit()):
        raise OptionError(f"`--ray-address` is HOST:PORT such as 10.0.0.1:6379, or auto; got {address}.")
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise RunError(
            f"Nobody answers at {address} ({error}); start a cluster there with `ray start --head`, "
            "or leave `--ray-address` out to use this machine."
        ) from None


def _check_tries(tries: int, job: Job, error: Exception, stop: StopRequest) -> None:
    """Whether to resubmit a run whose worker died."""
    kind = type(error).__name__
    if stop.requested():
        raise Stopped(stop.reason)
    if tries >= TRIES:
        raise RunError(
            f"The worker died {TRIES} times without getting an epoch further ({kind}), perhaps for want of memory; "
            f"{job.folder} can go on from its checkpoint: give the same command again, with fewer --jobs."
        ) from error
    log.warning("A worker died (%s); %s goes on from its checkpoint.", kind, job.folder)


class _Stopper:
    """An actor that workers ask whether to stop."""

    def __init__(self) -> None:
        self._reason: str | None = None

    def stop(self, reason: str) -> None:
        """Tell all workers to stop."""
        self._reason = reason

    def reason(self) -> str | None:
        """The reason to stop, or None."""
        return self._reason


class _RemoteStop(StopRequest):
    """A worker's stop request: it asks the actor from time to time, without waiting for the answer."""

    def __init__(self, stopper: Any) -> None:
        super().__init__()
        self._ray = needed("ray", "ray", "A worker")
        self._stopper, self._answer, self._at = stopper, stopper.reason.remote(), time.monotonic()

    def requested(self) -> bool:
        now = time.monotonic()
        if now - self._at > SECONDS_BETWEEN_LOOKS and self._ray.wait([self._answer], timeout=0)[0]:
            try:
                reason = self._ray.get(self._answer)
            except self._ray.exceptions.RayError:  # its machine is gone; Ray starts it again elsewhere
                reason = None
            if reason:
                self.stop(reason)
            self._answer, self._at = self._stopper.reason.remote(), now
        return super().requested()


def _describe(machine: Machine) -> dict[str, Any] | Exception:
    """The environment in which workers train."""
    _begin(machine)
    try:
        with machine.active():
            return describe(machine)
    except HypersparseError as error:
        return error


def _train(
    told: tuple[str, frozenset[str]],
    seed: int,
    machine: Machine,
    folder: Path,
    phase_cache: Path,
    folders: tuple[Path, ...],
    stopper: Any,
) -> Result | Exception:
    """Train a run on a worker. Expected errors are returned, since Ray wraps raised ones in its own text."""
    _begin(machine)
    stop = _RemoteStop(stopper)
    try:
        text, own_code = told
        made = Recipe.from_toml(text, own_code=own_code)
        dataset = _load(made.data.name, json.dumps(made.data.options, sort_keys=True), folders)
        return train(made, seed, machine, folder, dataset=dataset, stop=stop, phase_cache=phase_cache)
    except (HypersparseError, Stopped) as error:
        return error


def _begin(machine: Machine) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(machine.threads or 1)  # a run has one core; the same bits on every machine


@lru_cache(maxsize=1)  # one data set at a time in a worker's memory
def _load(name: str, options: str, folders: tuple[Path, ...]) -> Dataset:
    return data.load(name, folders, options=json.loads(options))

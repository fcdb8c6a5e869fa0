"""How fast networks predict: every engine in turns, in one process, on the same images."""

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hypersparse.bench.benchmark_networks import SHAPE, Subject, subject
from hypersparse.bench.inference_engines import DENSE, Contender, make, torch_threads
from hypersparse_runtime.compile_kernel import KernelError
from hypersparse_runtime.library import load_kernel

KEYS = ("model", "sparsity", "engine", "batch", "threads", "milliseconds", "speedup", "bytes", "max_difference")
TURN_SECONDS = 0.004  # that an engine runs before the next has its turn, one call at least
MOST_CALLS = 20  # in a turn
SETTLE_SECONDS = (
    0.12  # before each turn with several threads: an engine's own go on spinning after a call, and take a core
)
WRONG = 1e-3  # off by more of PyTorch's largest output an engine computes something else
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A network in one setting."""

    model: str
    sparsity: float
    batch: int
    threads: int

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.model} {100 * self.sparsity:g} %, batch {self.batch}, {threads}"


class Watcher(Protocol):
    """Is told how far the bench is."""

    def began(self, case: Case) -> None:
        """A case begins."""

    def ended(self, case: Case, seconds: float) -> None:
        """A case is measured."""


@dataclass
class Times:
    """Of one engine: seconds of each call by the clock and by the process's use of the CPU."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class InferenceBench:
    """Measures cases one after another."""

    def __init__(self, engines: Sequence[str], rounds: int, masks: Path | None) -> None:
        self.engines, self.rounds, self.masks = engines, rounds, masks
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.wrong: list[str] = []  # sentences on engines that compute something else
        self._subject: Subject | None = None
        self._peak = peak_gflops()

    def run(self, cases: Sequence[Case], watcher: Watcher) -> None:
        """All cases; what an engine cannot do is noted and left out."""
        for case in cases:
            watcher.began(case)
            began = time.perf_counter()
            with warnings.catch_warnings(), torch_threads(case.threads):
                warnings.simplefilter("ignore")
                self._measure(case)
            watcher.ended(case, time.perf_counter() - began)

    def _measure(self, case: Case) -> None:
        if self._subject is None or (self._subject.model, self._subject.sparsity) != (case.model, case.sparsity):
            self._subject = subject(case.model, case.sparsity, self.masks)
        images = np.random.default_rng(0).normal(size=(case.batch, *SHAPE)).astype(np.float32)
        made, memory = {}, {}
        for engine in self.engines:
            before = resident_bytes()
            try:
                made[engine] = make(engine, self._subject, batch=case.batch, threads=case.threads)
                made[engine].predict(images)
            except Exception as error:
                made.pop(engine, None)
                reason = str(error).strip().splitlines()
                self.notes.append(f"{engine} left out of {case.title}: {reason[0] if reason else type(error).__name__}")
                continue
            memory[engine] = max(0, resident_bytes() - before)
        pause = SETTLE_SECONDS if case.threads > 1 else 0.0
        times = in_turns(list(made.values()), images, self.rounds, pause=pause)
        wanted = self._wanted(images)
        rows = [
            self._row(case, each, times[each.engine], memory[each.engine], wanted, images) for each in made.values()
        ]
        right = [row for row in rows if row["max_difference"] <= WRONG]
        add_speedups_(right)
        self.wrong += [
            f"{row['engine']} is wrong on {case.title}: off by {row['max_difference']:.0e} of PyTorch's largest output."
            for row in rows
            if row not in right
        ]
        self.rows += rows

    def _wanted(self, images: NDArray[np.float32]) -> NDArray[Any]:
        assert self._subject is not None
        return make("torch", self._subject, batch=len(images), threads=1).predict(images)

    def _row(
        self, case: Case, made: Contender, times: Times, memory: int, wanted: NDArray[Any], images: NDArray[np.float32]
    ) -> Row:
        assert self._subject is not None
        # One thread's own time is not longer for other programs on the machine; of several, some only wait.
        seconds = float(np.median(times.cpu if case.threads == 1 else times.wall))
        difference = np.abs(made.predict(images) - wanted).max() / np.abs(wanted).max()
        low, high = np.quantile(times.cpu if case.threads == 1 else times.wall, [0.1, 0.9])
        gflops = 2e-9 * made.products * case.batch / seconds
        return {
            "model": case.model,
            "sparsity": case.sparsity,
            "engine": made.engine,
            "batch": case.batch,
            "threads": case.threads,
            "milliseconds": 1e3 * seconds,
            "speedup": None,
            "bytes": made.file_bytes,
            "max_difference": float(difference),
            "milliseconds_low": 1e3 * float(low),
            "milliseconds_high": 1e3 * float(high),
            "wall_milliseconds": 1e3 * float(np.median(times.wall)),
            "speedup_low": None,
            "memory_bytes": memory,
            "products": made.products,
            "roofline_share": None if self._peak is None else gflops / (self._peak * case.threads),
            "mask": self._subject.mask,
            "calls": len(times.wall),
            "note": made.note,
        }


def in_turns(
    contenders: Sequence[Contender], images: NDArray[np.float32], rounds: int, *, pause: float = 0.0
) -> dict[str, Times]:
    """Time every engine a few calls at a time, so that all of them see the same disturbances."""
    times = {each.engine: Times() for each in contenders}
    calls = {each.engine: _calls(each, images) for each in contenders}
    for _ in range(rounds):
        for each in contenders:
            kept = times[each.engine]
            if pause:
                time.sleep(pause)
                each.predict(images)  # a core that has slept is slow
            for _ in range(calls[each.engine]):
                wall, cpu = time.perf_counter(), time.process_time()
                each.predict(images)
                kept.cpu.append(time.process_time() - cpu)
                kept.wall.append(time.perf_counter() - wall)
    return times


def _calls(contender: Contender, images: NDArray[np.float32]) -> int:
    began = time.process_time()
    contender.predict(images)
    return int(min(MOST_CALLS, max(1, TURN_SECONDS / max(time.process_time() - began, 1e-9))))


def add_speedups_(rows: Sequence[Row]) -> None:
    """How many times as fast as the better dense engine of the same case, by medians and by quiet calls."""
    for kind, ratio in (("milliseconds", "speedup"), ("milliseconds_low", "speedup_low")):
        dense = [row[kind] for row in rows if row["engine"] in DENSE]
        for row in rows:
            row[ratio] = min(dense) / row[kind] if dense else None


def plan_cases(
    models: Sequence[str], sparsities: Sequence[float], batches: Sequence[int], threads: Sequence[int]
) -> Iterator[Case]:
    """Every setting of a network before the next network."""
    for model in models:
        for sparsity in sparsities:
            for batch in batches:
                for count in threads:
                    yield Case(model, sparsity, batch, count)


def peak_gflops() -> float | None:
    """What one core could do at most; None where there is no kernel to measure it with."""
    try:
        kernel = load_kernel()
    except KernelError:
        return None
    return max(kernel.peak_gflops(level) for level in range(len(kernel.levels)))


def resident_bytes() -> int:
    """Of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

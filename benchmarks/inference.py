"""The inference benchmark: all engines take turns in one process, on the same images."""

import gc
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inference_engines import DENSE, InferenceEngine, build_engine, torch_threads
from benchmarks.networks import BenchmarkNetwork, load_or_generate
from benchmarks.timing import BenchCallback
from hypersparse_runtime.compile_kernel import KernelError
from hypersparse_runtime.kernel_library import load_kernel

KEYS = ("model", "sparsity", "engine", "batch", "threads", "milliseconds", "speedup", "bytes", "max_difference")
TURN_SECONDS = 0.004  # of calls per turn of an engine, at least one call
MAX_CALLS = 20  # per turn
# Pause before each turn with several threads: the threads of some engines spin after a call and occupy a core.
SETTLE_SECONDS = 0.12
MIN_ROUNDS = 2  # of a case, however little time is left for it
TOLERANCE = 1e-3  # largest accepted error, relative to PyTorch's largest output
InferenceRow = dict[str, Any]


@dataclass(frozen=True)
class InferenceCase:
    """A network, a batch size and a number of threads."""

    model: str
    sparsity: float
    batch: int
    threads: int

    @property
    def title(self) -> str:
        """The description shown while it runs."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.model} {100 * self.sparsity:g} %, batch {self.batch}, {threads}"


@dataclass
class CallTimes:
    """Seconds of each call of an engine: wall-clock time and CPU time of the process."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class InferenceBench:
    """Measures cases one after another; `rows` holds the results.

    With `seconds`, cases share that time: each has fewer rounds, and after it the others are left out.
    """

    def __init__(self, engines: Sequence[str], rounds: int, masks: Path, *, seconds: float = math.inf) -> None:
        self.engines, self.rounds, self.masks, self.seconds = engines, rounds, masks, seconds
        self.rows: list[InferenceRow] = []
        self.notes: list[str] = []
        self.wrong: list[str] = []  # messages about engines with wrong outputs
        self._network: BenchmarkNetwork | None = None
        self._peak = peak_gflops()

    def run(self, cases: Sequence[InferenceCase], callback: BenchCallback) -> None:
        """Measure all cases; an engine that fails on a case is noted and skipped."""
        end = time.perf_counter() + self.seconds
        for number, case in enumerate(cases):
            began = time.perf_counter()
            if began > end:
                self.notes.append(f"{len(cases) - number} of {len(cases)} cases were left out: the time is over.")
                return
            callback.began(case)
            with warnings.catch_warnings(), torch_threads(case.threads):
                warnings.simplefilter("ignore")
                self._measure(case, until=began + (end - began) / (len(cases) - number))
            gc.collect()  # closes the engines' sessions, whose threads would wait beside the next case's
            callback.ended(case, time.perf_counter() - began)

    def _measure(self, case: InferenceCase, *, until: float) -> None:
        if self._network is None or (self._network.model, self._network.sparsity) != (case.model, case.sparsity):
            self._network = load_or_generate(case.model, case.sparsity, self.masks)
        images = self._network.inputs(case.batch)
        made, memory = {}, {}
        for engine in self.engines:
            before = resident_bytes()
            try:
                made[engine] = build_engine(engine, self._network, batch=case.batch, threads=case.threads)
                made[engine].predict(images)
            except Exception as error:
                made.pop(engine, None)
                reason = str(error).strip().splitlines()
                self.notes.append(f"{engine} skipped for {case.title}: {reason[0] if reason else type(error).__name__}")
                continue
            memory[engine] = max(0, resident_bytes() - before)
        pause = SETTLE_SECONDS if case.threads > 1 else 0.0
        times = time_in_turns(list(made.values()), images, self.rounds, pause=pause, until=until)
        expected = self._torch_outputs(images)
        rows = [
            self._row(case, each, times[each.engine], memory[each.engine], expected, images) for each in made.values()
        ]
        correct = [row for row in rows if row["max_difference"] <= TOLERANCE]
        add_speedups_(correct)
        self.wrong += [
            f"{row['engine']} is wrong on {case.title}: off by {row['max_difference']:.0e} of PyTorch's largest output."
            for row in rows
            if row not in correct
        ]
        self.rows += rows

    def _torch_outputs(self, images: NDArray[np.float32]) -> NDArray[Any]:
        assert self._network is not None
        return build_engine("torch", self._network, batch=len(images), threads=1).predict(images)

    def _row(
        self,
        case: InferenceCase,
        made: InferenceEngine,
        times: CallTimes,
        memory: int,
        expected: NDArray[Any],
        images: NDArray[np.float32],
    ) -> InferenceRow:
        assert self._network is not None
        # CPU time does not include other programs. With several threads it also counts those that only wait.
        seconds = float(np.median(times.cpu if case.threads == 1 else times.wall))
        difference = np.abs(made.predict(images) - expected).max() / np.abs(expected).max()
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
            "mask": self._network.mask,
            "calls": len(times.wall),
            "note": made.note,
        }


def time_in_turns(
    engines: Sequence[InferenceEngine],
    images: NDArray[np.float32],
    rounds: int,
    *,
    pause: float = 0.0,
    until: float = math.inf,
) -> dict[str, CallTimes]:
    """Time a few calls per engine in turns, so that all engines see the same disturbances.

    After the time `until` of `time.perf_counter` no round begins, except the first ones.
    """
    times = {each.engine: CallTimes() for each in engines}
    calls = {each.engine: _calls(each, images) for each in engines}
    for number in range(rounds):
        if number >= MIN_ROUNDS and time.perf_counter() > until:
            break
        for each in engines:
            kept = times[each.engine]
            if pause:
                time.sleep(pause)
                each.predict(images)  # a core is slow after a pause
            for _ in range(calls[each.engine]):
                wall, cpu = time.perf_counter(), time.process_time()
                each.predict(images)
                kept.cpu.append(time.process_time() - cpu)
                kept.wall.append(time.perf_counter() - wall)
    return times


def _calls(engine: InferenceEngine, images: NDArray[np.float32]) -> int:
    began = time.process_time()
    engine.predict(images)
    return int(min(MAX_CALLS, max(1, TURN_SECONDS / max(time.process_time() - began, 1e-9))))


def add_speedups_(rows: Sequence[InferenceRow]) -> None:
    """Set the speed-up over the better dense engine of the same case, by medians and by 10 % quantiles."""
    for kind, ratio in (("milliseconds", "speedup"), ("milliseconds_low", "speedup_low")):
        dense = [row[kind] for row in rows if row["engine"] in DENSE]
        for row in rows:
            row[ratio] = min(dense) / row[kind] if dense else None


def plan_cases(
    models: Sequence[str], sparsities: Sequence[float], batches: Sequence[int], threads: Sequence[int]
) -> Iterator[InferenceCase]:
    """All combinations; those of one network follow each other."""
    for model in models:
        for sparsity in sparsities:
            for batch in batches:
                for count in threads:
                    yield InferenceCase(model, sparsity, batch, count)


def peak_gflops() -> float | None:
    """The measured peak of one core; None if the kernel is missing."""
    try:
        kernel = load_kernel()
    except KernelError:
        return None
    return max(kernel.peak_gflops(level) for level in range(len(kernel.levels)))


def resident_bytes() -> int:
    """Resident memory of this process; 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

"""The inference benchmark: all engines take turns in one process, on the same images."""

import gc
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.inference_engines import (
    DENSE,
    MASKLESS,
    OURS,
    SHRUNK,
    InferenceEngine,
    build_engine,
    torch_threads,
)
from benchmarks.networks import BenchmarkNetwork, load_or_generate
from benchmarks.timing import BenchCallback
from benchmarks.turns import SETTLE_SECONDS, CallTimes, time_in_turns
from hypersparse_runtime.compile_kernel import KernelError
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.lowering import dense_products

KEYS = ("model", "sparsity", "engine", "batch", "threads", "milliseconds", "speedup", "bytes", "max_difference")
MIN_ROUNDS = 2  # cases share the time by what so many take
SHORT_SECONDS = 3  # of rounds in every case
ENOUGH_SECONDS = 15  # of a short case, where the long ones leave so much
CHECKED = 8  # images of a batch whose outputs are compared with PyTorch's
TOLERANCE = 1e-3  # largest accepted error, relative to PyTorch's largest output
# What a case takes is estimated before it begins, and again with the speed of cases that were measured.
BUILD_SECONDS = 0.5  # of an engine
PRODUCT_SECONDS = 2.5e-11  # of a dense engine; 1.6e-11 to 3.6e-11 were measured on one core of AMD Zen 4
CAUTION = 1.3  # times the estimate: a case without time for it is left out
TRIAL_SHARE, TRIAL_CALLS = 0.25, 8  # with more products the sparse runtime tries dense engines, with so many calls
InferenceRow = dict[str, Any]


@dataclass(frozen=True)
class LoadedEngine:
    """An engine with a network, after its first call."""

    made: InferenceEngine
    network: BenchmarkNetwork
    difference: float  # of its outputs from PyTorch's
    memory_bytes: int


@dataclass(frozen=True)
class InferenceCase:
    """A network at some sparsities, a batch size and a number of threads."""

    model: str
    sparsities: tuple[float, ...]
    batch: int
    threads: int

    @property
    def title(self) -> str:
        """The description shown while it runs."""
        return setting(self.model, None, self.batch, self.threads)


class InferenceCallback(BenchCallback, Protocol):
    """Receives the progress of the inference benchmark."""

    def expects(self, seconds: float) -> None:
        """All cases that are left take at most this time."""


class InferenceBench:
    """Measures cases one after another; `rows` holds the results.

    All engines and sparsities of a case take turns. An engine that takes as long with any mask runs with the first one
    only, and its row has no sparsity.

    With `seconds`, cases share that time: each has fewer rounds, and a case that does not fit in is left out.
    """

    def __init__(self, engines: Sequence[str], rounds: int, masks: Path, *, seconds: float = math.inf) -> None:
        self.engines, self.rounds, self.masks, self.seconds = engines, rounds, masks, seconds
        self.rows: list[InferenceRow] = []
        self.notes: list[str] = []
        self.wrong: list[str] = []  # messages about engines with wrong outputs
        self._networks: dict[tuple[str, float], BenchmarkNetwork] = {}
        self._peak = peak_gflops()
        self._rates: dict[tuple[int, int], float] = {}  # seconds per product, by batch and threads

    def run(self, cases: Sequence[InferenceCase], callback: InferenceCallback) -> None:
        """Measure all cases; an engine that fails on a case is noted and skipped."""
        end = time.perf_counter() + self.seconds
        for model, sparsity in dict.fromkeys((case.model, each) for case in cases for each in case.sparsities):
            self._networks[model, sparsity] = load_or_generate(model, sparsity, self.masks)
        for number, case in enumerate(cases):
            began = time.perf_counter()
            left, needed = end - began, CAUTION * self.estimate(case, 1)
            callback.expects(min(left, sum(self.estimate(each, self.rounds) for each in cases[number:])))
            callback.began(case)
            if needed > left:
                self.notes.append(f"{case.title} was left out: it takes up to {needed:.0f} s of {max(left, 0):.0f}.")
            else:
                share = share_of_first([self.estimate(each, MIN_ROUNDS) for each in cases[number:]], left)
                with warnings.catch_warnings(), torch_threads(case.threads):
                    warnings.simplefilter("ignore")
                    self._measure(case, until=began + share)
                gc.collect()  # closes the engines' sessions
            callback.ended(case, time.perf_counter() - began)

    def estimate(self, case: InferenceCase, rounds: int) -> float:
        """Seconds that a case takes with so many rounds, by its products."""
        networks = self._networks_of(case)
        engines = list(self._engines_of(networks))
        products = sum(products_of(engine, network) for engine, network in engines)
        tried = sum(each.dense_products for each in networks if is_tried(each)) if OURS in self.engines else 0
        known = [rate for (batch, _), rate in self._rates.items() if batch == case.batch]
        rate = self._rates.get((case.batch, case.threads), max(known, default=PRODUCT_SECONDS))
        images = (1 + rounds) * products + TRIAL_CALLS * tried
        return len(engines) * BUILD_SECONDS + SHORT_SECONDS + rate * case.batch * images

    def _networks_of(self, case: InferenceCase) -> list[BenchmarkNetwork]:
        return [self._networks[case.model, sparsity] for sparsity in case.sparsities]

    def _engines_of(self, networks: Sequence[BenchmarkNetwork]) -> Iterator[tuple[str, BenchmarkNetwork]]:
        for engine in self.engines:
            for network in networks[:1] if engine in MASKLESS else networks:
                if engine != SHRUNK or network.shrunk is not network.graph:
                    yield engine, network

    def _measure(self, case: InferenceCase, *, until: float) -> None:
        images = self._networks[case.model, case.sparsities[0]].inputs(case.batch)
        loaded = list(self._loaded(case, images))
        pause = SETTLE_SECONDS if case.threads > 1 else 0.0
        until = max(until, time.perf_counter() + SHORT_SECONDS)
        times = time_in_turns([each.made for each in loaded], images, self.rounds, pause=pause, until=until)
        rows = [self._row(case, each, taken) for each, taken in zip(loaded, times, strict=True)]
        if products := sum(row["products"] for row in rows):
            spent = sum(row["wall_milliseconds"] for row in rows)
            self._rates[case.batch, case.threads] = 1e-3 * spent / products / case.batch
        correct = [row for row in rows if row["max_difference"] <= TOLERANCE]
        add_speedups_(correct)
        self.wrong += [
            f"{row['engine']} is wrong on {title_of(row)}: "
            f"off by {row['max_difference']:.0e} of PyTorch's largest output."
            for row in rows
            if row not in correct
        ]
        self.rows += rows

    def _loaded(self, case: InferenceCase, images: NDArray[np.float32]) -> Iterator[LoadedEngine]:
        checked = np.unique(np.linspace(0, case.batch - 1, CHECKED).astype(int))
        networks = self._networks_of(case)
        expected = {each.sparsity: torch_outputs(each, images[checked]) for each in networks}
        for engine, network in self._engines_of(networks):
            before = resident_bytes()
            try:
                made = build_engine(engine, network, batch=case.batch, threads=case.threads)
                outputs = made.predict(images)[checked]
            except Exception as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                title = setting(case.model, network.sparsity, case.batch, case.threads)
                self.notes.append(f"{engine} skipped for {title}: {reason}")
                continue
            wanted = expected[network.sparsity]
            difference = float(np.abs(outputs - wanted).max() / np.abs(wanted).max())
            yield LoadedEngine(made, network, difference, max(0, resident_bytes() - before))

    def _row(self, case: InferenceCase, loaded: LoadedEngine, times: CallTimes) -> InferenceRow:
        made, network, any_mask = loaded.made, loaded.network, loaded.made.engine in MASKLESS
        # CPU time does not include other programs. With several threads it also counts those that only wait.
        taken = times.cpu if case.threads == 1 else times.wall
        low, seconds, high = (float(each) for each in np.quantile(taken, [0.1, 0.5, 0.9]))
        gflops = 2e-9 * made.products * case.batch / seconds
        return {
            "model": case.model,
            "sparsity": None if any_mask else network.sparsity,
            "engine": made.engine,
            "batch": case.batch,
            "threads": case.threads,
            "milliseconds": 1e3 * seconds,
            "speedup": None,
            "bytes": made.file_bytes,
            "max_difference": loaded.difference,
            "milliseconds_low": 1e3 * low,
            "milliseconds_high": 1e3 * high,
            "wall_milliseconds": 1e3 * float(np.median(times.wall)),
            "speedup_low": None,
            "memory_bytes": loaded.memory_bytes,
            "products": made.products,
            "roofline_share": None if self._peak is None else gflops / (self._peak * case.threads),
            "mask": "any" if any_mask else network.mask,
            "calls": len(times.wall),
            "note": made.note,
        }


def share_of_first(estimates: Sequence[float], left: float) -> float:
    """The seconds of the first of these cases, when so many are left for all.

    >>> share_of_first([3, 30, 60], 210)  # 15 of 105: short cases get more, where that is possible
    30.0
    >>> share_of_first([3, 30, 60], 62)
    2.0
    """
    generous = [max(each, ENOUGH_SECONDS) for each in estimates]
    weights = generous if sum(generous) <= left else estimates
    return left * weights[0] / sum(weights)


def products_of(engine: str, network: BenchmarkNetwork) -> int:
    """Multiplications per input of an engine; the sparse runtime may run a network dense."""
    if engine == OURS and not is_tried(network):
        return network.sparse_products
    return dense_products(network.shrunk) if engine == SHRUNK else network.dense_products


def is_tried(network: BenchmarkNetwork) -> bool:
    """Whether the sparse runtime times dense engines too when it loads the network."""
    return network.sparse_products > TRIAL_SHARE * network.dense_products


def torch_outputs(network: BenchmarkNetwork, images: NDArray[np.float32]) -> NDArray[Any]:
    """PyTorch's outputs."""
    return build_engine("torch", network, batch=len(images), threads=1).predict(images)


def setting(model: str, sparsity: float | None, batch: int, threads: int) -> str:
    """The words for what is measured.

    >>> setting("vgg19", 0.98, 64, 1)
    'vgg19 98 %, batch 64, 1 thread'
    """
    share = "" if sparsity is None else f" {100 * sparsity:g} %"
    return f"{model}{share}, batch {batch}, {threads} thread{'s' if threads > 1 else ''}"


def title_of(row: InferenceRow) -> str:
    """The words for what a row is about."""
    return setting(row["model"], row["sparsity"], row["batch"], row["threads"])


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
        for batch in batches:
            for count in threads:
                yield InferenceCase(model, tuple(sparsities), batch, count)


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

"""The training benchmark: measures cases within a time limit and returns one row per case and phase."""

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from benchmarks import engines, reference
from benchmarks.roofline import Peaks, TrainingWork, count_work, epoch_roofline_seconds, peaks_of
from benchmarks.timing import BenchCallback, Timing, free_memory
from benchmarks.workloads import REFERENCE, Effort, TrainingCase, Workload
from hypersparse.training.machine import Machine

KEYS = ("model", "phase", "engine", "runs", "seconds_per_epoch", "speedup", "floor_share", "memory_bytes")
Precision = Literal["fp32", "tf32", "bf16"]
TrainingRow = dict[str, Any]


@dataclass
class TrainingReport:
    """Result rows, and notes about cases that were not measured."""

    rows: list[TrainingRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peaks: dict[str, Peaks] = field(default_factory=dict)  # by precision


class Bench:
    """Measures cases on one device, in one precision, within a number of minutes."""

    def __init__(self, device: torch.device, precision: Precision, effort: Effort, minutes: float) -> None:
        self.device, self.precision, self.effort = device, precision, effort
        self.limit_seconds = 60 * minutes
        self.began = time.monotonic()
        self.report = TrainingReport()
        self._work: dict[str, TrainingWork] = {}
        self._spent: dict[tuple[str, int], float] = {}  # seconds of the last case with this engine and number of runs
        self._compiled: Workload | None = None

    def run(self, cases: Sequence[TrainingCase], callback: BenchCallback) -> TrainingReport:
        """Measure the cases in order; skipped cases are listed in the notes."""
        with _collect_notes(self.report.notes):
            for case in cases:
                callback.began(case)
                began = time.monotonic()
                self._measure_in_time(case)
                callback.ended(case, time.monotonic() - began)
        add_speedups_(self.report.rows)
        return self.report

    def _measure_in_time(self, case: TrainingCase) -> None:
        remaining = self.limit_seconds - (time.monotonic() - self.began)
        if remaining <= self._expected_seconds(case):
            self.report.notes.append(f"Skipped for lack of time: {case.title}. Raise --minutes to measure it.")
            return
        began = time.monotonic()
        try:
            timings = self._timings(case)
        except RuntimeError as error:  # out of memory, or a step that cannot be captured
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.report.notes.append(f"Not measured: {case.title}: {reason}")
            return
        finally:
            free_memory(self.device)
        self._spent[case.engine, case.runs] = time.monotonic() - began
        self.report.rows += [self._row(case, timing) for timing in timings]

    def _expected_seconds(self, case: TrainingCase) -> float:
        """Seconds of the last case with this engine and number of runs, else the most of this engine's."""
        others = [seconds for (engine, _), seconds in self._spent.items() if engine == case.engine]
        return self._spent.get((case.engine, case.runs), max(others, default=0.0))

    def _timings(self, case: TrainingCase) -> list[Timing]:
        if case.engine == REFERENCE:
            return reference.measure(case, self.effort, str(self.device))
        if case.workload != self._compiled:
            torch.compiler.reset()  # otherwise a second shape would be compiled as dynamic, unlike in a real run
            self._compiled = case.workload
        machine = Machine(
            device=str(self.device),
            precision=self.precision,
            engine=case.engine,  # type: ignore[arg-type]  # one of the machine's
            threads=self.effort.threads,
        )
        return engines.measure(case, self.effort, machine)

    def _row(self, case: TrainingCase, timing: Timing) -> TrainingRow:
        workload, effort = case.workload, self.effort
        precision = self._precision_of(case)
        steps = effort.steps_per_epoch(workload)
        wall = timing.begin_seconds + timing.step_seconds * steps + timing.scoring_seconds
        work, peaks = self._work_of(workload), self._peaks(precision)
        least = epoch_roofline_seconds(work, workload, timing.phase, precision, peaks, effort)
        return {
            "model": workload.label,
            "phase": timing.phase,
            "engine": case.engine,
            "runs": case.runs,
            "seconds_per_epoch": wall / case.runs,
            "speedup": None,
            "floor_share": least * case.runs / wall,
            "memory_bytes": timing.memory_bytes,
            "wall_seconds_per_epoch": wall,
            "step_seconds": timing.step_seconds,
            "begin_seconds": timing.begin_seconds,
            "scoring_seconds": timing.scoring_seconds,
            "compile_seconds": timing.compile_seconds,
            "steps_timed": timing.steps,
            "steps_per_epoch": steps,
            "batch_size": effort.batch_size,
            "images_scored": self._images_scored(case, timing),
            "precision": precision,
            "device": device_name(self.device, effort.threads),
            "scaled": True,
            "quick": effort.quick,
        }

    def _images_scored(self, case: TrainingCase, timing: Timing) -> int:
        if timing.phase != "regularized":
            return 0
        effort = self.effort
        return timing.steps * effort.batch_size if case.engine == REFERENCE else effort.images_of(case.workload)

    def _precision_of(self, case: TrainingCase) -> str:
        if case.engine != REFERENCE:
            return self.precision
        return "tf32" if self.device.type == "cuda" else "fp32"

    def _work_of(self, workload: Workload) -> TrainingWork:
        if workload.label not in self._work:
            self._work[workload.label] = count_work(workload)
        return self._work[workload.label]

    def _peaks(self, precision: str) -> Peaks:
        if precision not in self.report.peaks:
            with Machine(device=str(self.device), threads=self.effort.threads).active() as device:
                self.report.peaks[precision] = peaks_of(device, precision)
        return self.report.peaks[precision]


def add_speedups_(rows: Sequence[TrainingRow]) -> None:
    """Set the speed-up over the reference with the same model and phase; None without one."""
    reference_seconds = {
        (row["model"], row["phase"]): row["seconds_per_epoch"] for row in rows if row["engine"] == REFERENCE
    }
    for row in rows:
        seconds = reference_seconds.get((row["model"], row["phase"]))
        row["speedup"] = None if seconds is None else seconds / row["seconds_per_epoch"]


def device_name(device: torch.device, threads: int | None) -> str:
    """The name of a device, with the threads of a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = threads or torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' if threads > 1 else ''}"


def peaks_sentence(precision: str, peaks: Peaks) -> str:
    """A sentence with the peaks that the roofline uses."""
    return (
        f"Peaks in {precision}: {peaks.flops / 1e12:.3g} TFLOP/s and {peaks.bytes_per_second / 1e12:.3g} TB/s, "
        f"{peaks.source}."
    )


class _NoteHandler(logging.Handler):
    """Collects what the engines log, such as why a step could not be captured."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """Add a message once."""
        if (sentence := record.getMessage()) not in self.notes:
            self.notes.append(sentence)


@contextmanager
def _collect_notes(notes: list[str]) -> Iterator[None]:
    """Collect log messages as notes and drop warnings: methods warn that nothing is learned from random images."""
    log, handler = logging.getLogger("hypersparse"), _NoteHandler(notes)
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate

"""`bench_train`: measure all cells within a time, and make rows of them."""

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, Protocol

import torch

from hypersparse.bench import engines, reference
from hypersparse.bench.roofline import Peaks, Work, count_work, epoch_floor, peaks_of
from hypersparse.bench.timing import Timing, clean_up
from hypersparse.bench.workloads import REFERENCE, Cell, Effort, Workload
from hypersparse.training.machine import Machine

KEYS = ("model", "phase", "engine", "runs", "seconds_per_epoch", "speedup", "floor_share", "memory_bytes")
Precision = Literal["fp32", "tf32", "bf16"]
Row = dict[str, Any]


class Watcher(Protocol):
    """Who is told how the bench goes."""

    def began(self, cell: Cell) -> None:
        """A cell begins."""

    def ended(self, cell: Cell, seconds: float) -> None:
        """A cell is measured, or was skipped after 0 seconds."""


@dataclass
class Report:
    """Rows, and sentences about what is not among them."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peaks: dict[str, Peaks] = field(default_factory=dict)  # by precision


class Bench:
    """Measures cells on one device, in one precision, within some minutes."""

    def __init__(self, device: torch.device, precision: Precision, effort: Effort, minutes: float) -> None:
        self.device, self.precision, self.effort = device, precision, effort
        self.limit_seconds = 60 * minutes
        self.began = time.monotonic()
        self.report = Report()
        self.module = reference.load()
        self._work: dict[str, Work] = {}
        self._spent: dict[tuple[str, int], float] = {}  # seconds of the last cell with an engine and number of runs
        self._compiled: Workload | None = None

    def run(self, cells: Sequence[Cell], watcher: Watcher) -> Report:
        """Measure the cells in order; those that time does not allow for are said in the notes."""
        if self.module is None:
            self.report.notes.append(reference.MISSING)
            cells = [cell for cell in cells if cell.engine != REFERENCE]
        with _quiet(self.report.notes):
            for cell in cells:
                watcher.began(cell)
                began = time.monotonic()
                self._measure_in_time(cell)
                watcher.ended(cell, time.monotonic() - began)
        add_speedups_(self.report.rows)
        return self.report

    def _measure_in_time(self, cell: Cell) -> None:
        left = self.limit_seconds - (time.monotonic() - self.began)
        if left <= self._expected_seconds(cell):
            self.report.notes.append(f"Skipped for lack of time: {cell.title}. Raise --minutes to measure it.")
            return
        began = time.monotonic()
        try:
            timings = self._timings(cell, self.module)
        except RuntimeError as error:  # out of memory, or a step that cannot be captured
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.report.notes.append(f"Not measured: {cell.title}: {reason}")
            return
        finally:
            clean_up(self.device)
        self._spent[cell.engine, cell.runs] = time.monotonic() - began
        self.report.rows += [self._row(cell, timing) for timing in timings]

    def _expected_seconds(self, cell: Cell) -> float:
        """As long as the last such cell took; a first one with more runs, at least as long as with fewer."""
        others = [seconds for (engine, _), seconds in self._spent.items() if engine == cell.engine]
        return self._spent.get((cell.engine, cell.runs), max(others, default=0.0))

    def _timings(self, cell: Cell, module: ModuleType | None) -> list[Timing]:
        if cell.engine == REFERENCE:
            assert module is not None
            return reference.measure(cell, self.effort, module, str(self.device))
        if cell.workload != self._compiled:
            torch.compiler.reset()  # a second shape would be compiled for any shape, as in no real run
            self._compiled = cell.workload
        machine = Machine(
            device=str(self.device),
            precision=self.precision,
            engine=cell.engine,  # type: ignore[arg-type]  # one of the machine's
            threads=self.effort.threads,
        )
        return engines.measure(cell, self.effort, machine)

    def _row(self, cell: Cell, timing: Timing) -> Row:
        workload, effort = cell.workload, self.effort
        precision = self._precision_of(cell)
        steps = effort.steps_per_epoch(workload)
        wall = timing.begin_seconds + timing.step_seconds * steps + timing.scoring_seconds
        floor = epoch_floor(self._work_of(workload), workload, timing.phase, precision, self._peaks(precision), effort)
        return {
            "model": workload.label,
            "phase": timing.phase,
            "engine": cell.engine,
            "runs": cell.runs,
            "seconds_per_epoch": wall / cell.runs,
            "speedup": None,
            "floor_share": floor * cell.runs / wall,
            "memory_bytes": timing.memory_bytes,
            "wall_seconds_per_epoch": wall,
            "step_seconds": timing.step_seconds,
            "begin_seconds": timing.begin_seconds,
            "scoring_seconds": timing.scoring_seconds,
            "compile_seconds": timing.compile_seconds,
            "steps_timed": timing.steps,
            "steps_per_epoch": steps,
            "batch_size": effort.batch_size,
            "images_scored": self._images_scored(cell, timing),
            "precision": precision,
            "device": device_name(self.device, effort.threads),
            "scaled": True,
            "quick": effort.quick,
        }

    def _images_scored(self, cell: Cell, timing: Timing) -> int:
        if timing.phase != "regularized":
            return 0
        effort = self.effort
        return timing.steps * effort.batch_size if cell.engine == REFERENCE else effort.images_of(cell.workload)

    def _precision_of(self, cell: Cell) -> str:
        if cell.engine != REFERENCE:
            return self.precision
        return "tf32" if self.device.type == "cuda" else "fp32"

    def _work_of(self, workload: Workload) -> Work:
        if workload.label not in self._work:
            self._work[workload.label] = count_work(workload)
        return self._work[workload.label]

    def _peaks(self, precision: str) -> Peaks:
        if precision not in self.report.peaks:
            with Machine(device=str(self.device), threads=self.effort.threads).active() as device:
                self.report.peaks[precision] = peaks_of(device, precision)
        return self.report.peaks[precision]


def add_speedups_(rows: Sequence[Row]) -> None:
    """The reference's seconds over each row's, of the same model and phase; None where there is no reference."""
    slow = {(row["model"], row["phase"]): row["seconds_per_epoch"] for row in rows if row["engine"] == REFERENCE}
    for row in rows:
        seconds = slow.get((row["model"], row["phase"]))
        row["speedup"] = None if seconds is None else seconds / row["seconds_per_epoch"]


def device_name(device: torch.device, threads: int | None) -> str:
    """What a person calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = threads or torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' if threads > 1 else ''}"


def peaks_sentence(precision: str, peaks: Peaks) -> str:
    """The floors' peaks in words."""
    return (
        f"Peaks in {precision}: {peaks.flops / 1e12:.3g} TFLOP/s and {peaks.bytes_per_second / 1e12:.3g} TB/s, "
        f"{peaks.source}."
    )


class _Notes(logging.Handler):
    """Keeps what the engines log, such as why a step could not be captured."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """Note a sentence once."""
        if (sentence := record.getMessage()) not in self.notes:
            self.notes.append(sentence)


@contextmanager
def _quiet(notes: list[str]) -> Iterator[None]:
    """What is logged becomes a note. Warnings are dropped: random images teach nothing, and methods say so."""
    log, handler = logging.getLogger("hypersparse"), _Notes(notes)
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate

"""The terminal during the training of a grid of runs."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType

from hypersparse.cli.console import Console, table
from hypersparse.cli.display import TerminalView
from hypersparse.cli.formats import duration
from hypersparse.recipe import Recipe, own_code_of
from hypersparse.runs.forecast import epochs_ahead
from hypersparse.runs.recipe_names import names
from hypersparse.runs.remaining_epochs import Expected
from hypersparse.storage.schemas import Entry
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome, is_failure, is_finished
from hypersparse.training.machine import Machine


class _Counted(Callback):
    def __init__(self, grid: "Grid", job: Job) -> None:
        self._grid, self._job = grid, job

    def finished_epoch(self, entry: Entry) -> None:
        """Count it."""
        self._grid.count(self._job, entry)


class Grid(TerminalView):
    """Variants down, sparsities across: finished seeds, and the epochs of running ones.

    `rest` holds the remaining epochs of each folder before training begins, and `expected` the lengths of phases.
    """

    def __init__(self, console: Console, jobs: Sequence[Job], rest: Mapping[Path, int], expected: Expected) -> None:
        super().__init__(console, per_second=2)
        self.jobs = jobs
        self.began: float | None = None  # start of the first epoch; compilation before it happens once
        self.epochs: dict[Path, int] = {}
        self.trained = 0  # epochs since then
        recipes, own_code = [job.recipe.to_mapping() for job in jobs], own_code_of(job.recipe for job in jobs)
        folders = [job.folder for job in jobs]
        self.rows = dict(zip(folders, names(recipes, "model", "data", own_code=own_code), strict=True))
        self.names = dict(zip(folders, names(recipes, "sparsity", "model", "data", own_code=own_code), strict=True))
        self.lengths = {job.folder: _lengths(job.recipe, expected) for job in jobs}
        self.rest = dict(rest)
        self._done: set[Path] = set()
        self._failed: set[Path] = set()

    def callback(self, job: Job) -> _Counted:
        """The callback of one of the runs."""
        return _Counted(self, job)

    def count(self, job: Job, entry: Entry) -> None:
        """An epoch of a run is done."""
        self.epochs[job.folder] = entry["epoch"] + 1
        if not entry.get("shared"):  # shared epochs take no time
            self.trained += 1
            self.began = self.began or time.monotonic() - entry["seconds"]
        self.rest[job.folder] = self._ahead(job, entry)
        expected = sum(self.lengths[job.folder].values())
        if self.plain and self.epochs[job.folder] in (1, max(1, expected // 2), expected):
            name = f"{self.names[job.folder]} · seed {job.seed}"
            self.console.say(f"{name}  {entry['phase']} epoch {entry['epoch']}  {self.left()}")

    def ended(self, job: Job, outcome: Outcome) -> None:
        """A run has ended; a failed one no longer counts for the time left."""
        if is_failure(outcome):
            self._failed.add(job.folder)

    def left(self) -> str:
        """The time left, from the epochs trained so far."""
        going = [job.folder for job in self.jobs if job.folder not in self._failed and not self.done(job)]
        rest = sum(self.rest[folder] for folder in going)
        if not rest:
            return "nearly done"
        if self.began is None or self.trained <= 5:
            return "time left not known yet"
        return f"about {duration((time.monotonic() - self.began) * rest / self.trained)} left"

    def _ahead(self, job: Job, entry: Entry) -> int:
        """The expected epochs of a run after this one."""
        lengths = self.lengths[job.folder]
        if entry["phase"] not in lengths:  # a run beyond the requested phase trains to its end
            return 0
        place = list(lengths).index(entry["phase"])
        now, *later = list(lengths.values())[place:]
        return max(0, now - int(entry["phase_epoch"]) - 1) + sum(later)

    def done(self, job: Job) -> bool:
        """Whether a run is finished; one that ended `until` an earlier phase may have to continue."""
        if job.folder not in self._done and is_finished(job):
            self._done.add(job.folder)  # so that its file is not read again
        return job.folder in self._done

    def render(self) -> RenderableType:
        """The current grid."""
        columns = sorted({_sparsity(job) for job in self.jobs})
        rows = [[row, *(self._cell(row, column) for column in columns)] for row in dict.fromkeys(self.rows.values())]
        return table("", *columns, rows=rows, caption=self.left(), caption_justify="center")

    def _cell(self, row: str, column: str) -> str:
        own = [job for job in self.jobs if self.rows[job.folder] == row and _sparsity(job) == column]
        done = [job for job in own if self.done(job)]
        failed = [job for job in own if job.folder in self._failed]
        running = [self.epochs[job.folder] for job in own if job.folder in self.epochs and job not in (*done, *failed)]
        shown = f"{len(done)}/{len(own)}" if own else ""
        shown += f" ({len(failed)} failed)" if failed else ""
        return shown + "".join(f" epoch {epoch}" for epoch in running)


def forecast(
    console: Console, jobs: Sequence[Job], machine: Machine, runs_dir: Path, *, results: Path | None = None
) -> Grid:
    """The grid of these runs, with the time left estimated from finished runs."""
    rest, expected = epochs_ahead(jobs, machine, runs_dir, results=results)
    return Grid(console, jobs, rest, expected)


def _lengths(recipe: Recipe, expected: Expected) -> dict[str, int]:
    """Epochs by phase."""
    return {phase.name: expected(recipe, phase) for phase in recipe.plan()}


def _sparsity(job: Job) -> str:
    sparsity = job.recipe.method.sparsity
    return "" if sparsity is None else f"{100 * sparsity:g} %"

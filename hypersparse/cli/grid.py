"""What a person sees while a grid of runs is trained."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from hypersparse.cli.console import Console
from hypersparse.cli.display import TerminalView
from hypersparse.cli.formats import duration
from hypersparse.recipe import Recipe, own_code_of
from hypersparse.runs.forecast import epochs_ahead
from hypersparse.runs.recipe_names import names
from hypersparse.runs.remaining_epochs import Expected
from hypersparse.sparsifier import Sparsifier
from hypersparse.storage.schemas import Entry
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome, is_failure, is_finished
from hypersparse.training.machine import Machine


class _Counted:
    def __init__(self, grid: "Grid", job: Job) -> None:
        self._grid, self._job = grid, job

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Nothing to show yet."""

    def stepped(self, step: int) -> None:
        """Too small to show."""

    def finished_epoch(self, entry: Entry) -> None:
        """Count it."""
        self._grid.count(self._job, entry)


class Grid(TerminalView):
    """Variants of methods down, sparsities across: how many seeds are done, and the epochs of those under way.

    `rest` is how many epochs are left of each folder before training begins, and `expected` how long phases are.
    """

    def __init__(self, console: Console, jobs: Sequence[Job], rest: Mapping[Path, int], expected: Expected) -> None:
        super().__init__(console, per_second=2)
        self.jobs = jobs
        self.began: float | None = None  # the first epoch; what was compiled before it comes once
        self.epochs: dict[Path, int] = {}
        self.trained = 0  # epochs, since it began
        recipes, own_code = [job.recipe.to_mapping() for job in jobs], own_code_of(job.recipe for job in jobs)
        folders = [job.folder for job in jobs]
        self.rows = dict(zip(folders, names(recipes, "model", "data", own_code=own_code), strict=True))
        self.names = dict(zip(folders, names(recipes, "sparsity", "model", "data", own_code=own_code), strict=True))
        self.lengths = {job.folder: _lengths(job.recipe, expected) for job in jobs}
        self.rest = dict(rest)
        self._done: set[Path] = set()
        self._failed: set[Path] = set()

    def callback(self, job: Job) -> _Counted:
        """Who is told about one of the runs."""
        return _Counted(self, job)

    def count(self, job: Job, entry: Entry) -> None:
        """An epoch of a run is done."""
        self.epochs[job.folder] = entry["epoch"] + 1
        if not entry.get("shared"):  # those of a common beginning cost nothing
            self.trained += 1
            self.began = self.began or time.monotonic() - entry["seconds"]
        self.rest[job.folder] = self._ahead(job, entry)
        expected = sum(self.lengths[job.folder].values())
        if self.plain and self.epochs[job.folder] in (1, max(1, expected // 2), expected):
            name = f"{self.names[job.folder]} · seed {job.seed}"
            line = f"{name}  {entry['phase']} epoch {entry['epoch']}  {self.left()}"
            self.console.print(line, highlight=False, soft_wrap=True)

    def ended(self, job: Job, outcome: Outcome) -> None:
        """A run has ended; one that failed is not waited for any more."""
        if is_failure(outcome):
            self._failed.add(job.folder)

    def left(self) -> str:
        """How much time is left, going by the epochs that were trained so far."""
        going = [job.folder for job in self.jobs if job.folder not in self._failed and not self.done(job)]
        rest = sum(self.rest[folder] for folder in going)
        if not rest:
            return "nearly done"
        if self.began is None or self.trained <= 5:
            return "time left not known yet"
        return f"about {duration((time.monotonic() - self.began) * rest / self.trained)} left"

    def _ahead(self, job: Job, entry: Entry) -> int:
        """Epochs that a run is expected to train after this one."""
        lengths = self.lengths[job.folder]
        if entry["phase"] not in lengths:  # past the phase that was asked for, such a run goes on to its end
            return 0
        place = list(lengths).index(entry["phase"])
        now, *later = list(lengths.values())[place:]
        return max(0, now - int(entry["phase_epoch"]) - 1) + sum(later)

    def done(self, job: Job) -> bool:
        """Whether a run is finished; one that ended with an earlier phase before may have to go on."""
        if job.folder not in self._done and is_finished(job):
            self._done.add(job.folder)  # for good: its file need not be read again
        return job.folder in self._done

    def render(self) -> RenderableType:
        """The grid now."""
        columns = sorted({_sparsity(job) for job in self.jobs})
        table = Table("", *columns, box=None, pad_edge=False, header_style="dim", caption=self.left())
        for row in dict.fromkeys(self.rows.values()):
            cells = [self._cell(row, column) for column in columns]
            table.add_row(row, *cells)
        return table

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
    """The grid of these runs, with the time they have left by those that are finished."""
    rest, expected = epochs_ahead(jobs, machine, runs_dir, results=results)
    return Grid(console, jobs, rest, expected)


def _lengths(recipe: Recipe, expected: Expected) -> dict[str, int]:
    """Epochs by phase; none has the name of another."""
    return {phase.name: expected(recipe, phase) for phase in recipe.plan()}


def _sparsity(job: Job) -> str:
    sparsity = job.recipe.method.sparsity
    return "" if sparsity is None else f"{100 * sparsity:g} %"

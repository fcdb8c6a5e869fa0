"""The terminal during the training of a grid of runs."""

from dataclasses import dataclass

from rich.console import RenderableType

from hypersparse.cli.console import Console, table
from hypersparse.cli.display import TerminalView
from hypersparse.cli.formats import duration
from hypersparse.cli.results import names_of
from hypersparse.recipe import own_code_of
from hypersparse.runs.recipe_names import names
from hypersparse.runs.time_left import TimeLeft
from hypersparse.storage.schemas import Entry
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome


@dataclass(frozen=True)
class _Counted(Callback):
    grid: "Grid"
    job: Job

    def finished_epoch(self, entry: Entry) -> None:
        """Count it."""
        self.grid.count(self.job, entry)


class Grid(TerminalView):
    """Variants down, sparsities across: finished seeds, and the epochs of running ones."""

    def __init__(self, console: Console, time_left: TimeLeft) -> None:
        super().__init__(console, per_second=2)
        self.time_left, self.jobs = time_left, time_left.jobs
        recipes, own_code = [job.recipe.to_mapping() for job in self.jobs], own_code_of(job.recipe for job in self.jobs)
        folders = [job.folder for job in self.jobs]
        self.rows = dict(zip(folders, names(recipes, "model", "data", own_code=own_code), strict=True))
        self.names = dict(zip(folders, names_of(self.jobs), strict=True))

    def callback(self, job: Job) -> _Counted:
        """The callback of one of the runs."""
        return _Counted(self, job)

    def count(self, job: Job, entry: Entry) -> None:
        """An epoch of a run is done."""
        self.time_left.count(job, entry)
        expected = self.time_left.epochs_of(job)
        if self.plain and entry["epoch"] + 1 in (1, max(1, expected // 2), expected):
            self.console.say(f"{self.names[job.folder]}  {entry['phase']} epoch {entry['epoch']}  {self.left()}")

    def ended(self, job: Job, outcome: Outcome) -> None:
        """A run has ended."""
        self.time_left.ended(job, outcome)

    def left(self) -> str:
        """The time left in words."""
        seconds = self.time_left.seconds()
        if seconds is None:
            return "time left not known yet"
        return f"about {duration(seconds)} left" if seconds else "nearly done"

    def render(self) -> RenderableType:
        """The current grid."""
        columns = sorted({_sparsity(job) for job in self.jobs})
        rows = [[row, *(self._cell(row, column) for column in columns)] for row in dict.fromkeys(self.rows.values())]
        return table("", *columns, rows=rows, caption=self.left(), caption_justify="center")

    def _cell(self, row: str, column: str) -> str:
        own = [job for job in self.jobs if self.rows[job.folder] == row and _sparsity(job) == column]
        done = [job for job in own if self.time_left.is_done(job)]
        failed = [job for job in own if job.folder in self.time_left.failed]
        epochs = self.time_left.epochs
        running = [epochs[job.folder] for job in own if job.folder in epochs and job not in (*done, *failed)]
        shown = f"{len(done)}/{len(own)}" if own else ""
        shown += f" ({len(failed)} failed)" if failed else ""
        return shown + "".join(f" epoch {epoch}" for epoch in running)


def _sparsity(job: Job) -> str:
    sparsity = job.recipe.method.sparsity
    return "" if sparsity is None else f"{100 * sparsity:g} %"

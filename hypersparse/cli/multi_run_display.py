"""What a person sees while several runs go on side by side, and at their end."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hypersparse.cli.console import Console
from hypersparse.cli.display import TerminalView, metrics
from hypersparse.cli.formats import count, duration
from hypersparse.recipe import own_code_of
from hypersparse.runs.recipe_names import names
from hypersparse.sparsifier import Sparsifier
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, Result, Summary
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome, is_failure

COLUMNS = ("", "phase", "epoch", "pruned", "test", "kept", "s/epoch")


class Row:
    """One of the runs, as it is told about it."""

    def __init__(self, several: "SeveralRuns", label: str, folder: Path) -> None:
        self.several, self.label, self.run = several, label, RunFolder(folder)
        self.entries: list[Entry] = []
        self.began = False
        self.step, self.steps = 0, 1

    def started(self, sparsifier: Sparsifier, entries: Sequence[Entry], steps: int) -> None:
        """Training begins, or goes on after these epochs."""
        self.began, self.entries, self.steps = True, list(entries), steps

    def stepped(self, step: int) -> None:
        """A step of the current epoch is done."""
        self.step = step

    def finished_epoch(self, entry: Entry) -> None:
        """An epoch is done."""
        self.began = True  # not said before by a run in another process
        self.entries.append(entry)
        self.step = 0
        self.several.say(self, entry)

    def cells(self) -> list[str]:
        """The run now."""
        done = self.done
        if not self.entries:
            state = "done" if done else "begins" if self.began else "waits"
            return [self.label, state, *[""] * (len(COLUMNS) - 2)]
        found = metrics(self.entries[-1])
        state = "done" if done else self.entries[-1]["phase"]
        epoch = f"{self.entries[-1]['epoch'] + 1 + self.step / self.steps:.1f}"
        return [self.label, state, epoch, found["pruned"], found["test"], found["kept"], self.pace()]

    @property
    def done(self) -> bool:
        """Whether the run is finished."""
        return self.run.result_file.exists()

    def pace(self) -> str:
        """Seconds of the last epoch."""
        return f"{self.entries[-1]['seconds']:.1f}"


class SeveralRuns(TerminalView):
    """A live table with a row a run on a terminal; one line an epoch where the output goes elsewhere."""

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, per_second=4)
        self.title, self.rows, self.began = title, list[Row](), time.monotonic()

    def row(self, label: str, folder: Path) -> Row:
        """The watcher of one more run."""
        self.rows.append(Row(self, label, folder))
        return self.rows[-1]

    def say(self, row: Row, entry: Entry) -> None:
        """A run's epoch is done."""
        if self.plain:
            shown = "  ".join(f"{name} {value}" for name, value in metrics(entry).items() if value)
            line = f"{row.label}  {entry['phase']:10s} epoch {entry['epoch']:3d}  {shown}  {row.pace()} s"
            self.console.print(line, highlight=False, soft_wrap=True)

    def render(self) -> RenderableType:
        """The table now."""
        table = Table(*COLUMNS, box=None, pad_edge=False, header_style="dim")
        for row in self.rows:
            table.add_row(*row.cells())
        done = sum(row.done for row in self.rows)
        clock = f"{done} of {len(self.rows)} done, {duration(time.monotonic() - self.began)} so far"
        return Group(Text(self.title, style="bold cyan"), table, Text(clock, style="dim"))


def names_of(jobs: Sequence[Job]) -> list[str]:
    """Each run among others of the same data and model."""
    own_code = own_code_of(job.recipe for job in jobs)
    found = names([job.recipe.to_mapping() for job in jobs], "sparsity", own_code=own_code)
    return [f"{name} · seed {job.seed}" for name, job in zip(found, jobs, strict=True)]


def results_table(jobs: Sequence[Job], results: Sequence[Outcome]) -> Table:
    """A row a run: accuracy of the last and the best epoch, weights kept. Names are folded before numbers are cut."""
    parts = [_part(result) for result in results if isinstance(result, dict)]
    picked = " or ".join(sorted({part["best_picked_on"] for part in parts if part})) or "test"
    table = Table(box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for column in ("last epoch", f"best on\n{picked}", "weights", "effective", "of", "seconds"):
        table.add_column(column, no_wrap=True)
    for name, result in zip(names_of(jobs), results, strict=True):
        ended = "failed" if is_failure(result) else "stopped"
        table.add_row(name, *(_cells(result) if isinstance(result, dict) else [ended]))
    return table


def print_failures(console: Console, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    """Say why runs failed, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        if is_failure(outcome):
            reasons.setdefault(str(outcome), []).append(f"{job.recipe.label} seed {job.seed}")
    for reason, runs in reasons.items():
        others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        console.print(f"[red]failed:[/] {escape(f'{runs[0]}{others}: {reason}')}", soft_wrap=True)


def _cells(result: Result) -> list[str]:
    part = _part(result)
    accuracies = [f"{100 * part[epoch]:.2f} %" if part else "" for epoch in ("last", "best")]
    counts = [count(number) for number in (result["kept"], result.get("effective_kept"), result["total"])]
    return [*accuracies, *counts, f"{result['wall_seconds']:.1f}"]


def _part(result: Result) -> Summary | None:
    """What it says of the sparse network, or of the dense one where there is no other."""
    return result["sparse"] or result["dense"]

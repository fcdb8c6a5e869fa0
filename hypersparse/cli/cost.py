"""What missing runs cost: epochs and time by phase, going by finished runs where there are some."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hypersparse.cli.console import table_console
from hypersparse.cli.epoch_times import (
    AS_LARGE,
    Load,
    Measured,
    Pace,
    expected_epochs,
    is_elsewhere,
    measured_in,
    pace_of,
    tried,
)
from hypersparse.cli.formats import duration
from hypersparse.cli.grid import Grid
from hypersparse.cli.machine_options import STAGES
from hypersparse.cli.remaining_epochs import epochs_left
from hypersparse.recipe import Recipe, own_code_of
from hypersparse.runs.recipe_names import variants
from hypersparse.runs.store import RunStore
from hypersparse.training.concurrency.concurrent_runs import Job, unfinished
from hypersparse.training.machine import Machine

Trial = Callable[[Recipe], float | None]  # seconds of an epoch, measured now; None where the data are not there
MOST_PHASES = 4  # with a row each; IMP has a phase for each of its rounds
UNKNOWN = "not known"
NO_RUNS = ("a short trial", "nothing")  # what it can be based on otherwise
LIKE_IT = "like it: finished runs of the method in that phase; others: all on the same data and model"
ELSEWHERE = "on {}: of such images there are as many"
ONCE = "runs: those that will train the phase; a common beginning is trained by the first of them"


@dataclass
class Row:
    """A line of the table: the epochs of a variant's phase on some data and model, and what is known of their time."""

    jobs: set[Path] = field(default_factory=set)
    epochs: int = 0
    seconds: float = 0.0  # of the epochs whose pace is known
    known: bool = True  # of all
    bases: list[str] = field(default_factory=list)

    def add(self, job: Job, epochs: int, pace: Pace) -> None:
        """Some more epochs."""
        self.jobs.add(job.folder)
        self.epochs += epochs
        self.seconds += epochs * (pace.seconds or 0.0)
        self.known = self.known and pace.seconds is not None
        self.bases += [pace.basis] * (pace.basis not in self.bases)


Rows = Mapping[tuple[str, str, str], Row]  # by data and model, variant, phase


@dataclass(frozen=True)
class Cost:
    """What runs will take, one after another."""

    runs: int
    rows: Rows

    @property
    def epochs(self) -> int:
        """In all."""
        return sum(row.epochs for row in self.rows.values())

    @property
    def time(self) -> str:
        """In all, as far as it is known."""
        seconds = sum(row.seconds for row in self.rows.values())
        if all(row.known for row in self.rows.values()):
            return duration(seconds)
        return f"at least {duration(seconds)}" if seconds else UNKNOWN


def cost_of(jobs: Sequence[Job], machine: Machine, runs_dir: Path, *, load: Load, results: Path | None = None) -> Cost:
    """What runs cost on a machine, by those that are finished in these folders."""
    measured = _measured(machine, runs_dir, results)
    trial = partial(tried, machine=machine, load=load)
    return cost(jobs, machine, stages=runs_dir / STAGES, measured=measured, trial=trial)


def forecast(
    console: Console, jobs: Sequence[Job], machine: Machine, runs_dir: Path, *, results: Path | None = None
) -> Grid:
    """The grid that is seen while runs are trained, with the time they have left by those that are finished."""
    expected = partial(expected_epochs, measured=_measured(machine, runs_dir, results))
    going = unfinished(jobs)
    lefts = epochs_left(going, machine, stages=runs_dir / STAGES, expected=expected)
    rest = {job.folder: sum(epochs for _, epochs in left) for job, left in zip(going, lefts, strict=True)}
    return Grid(console, jobs, rest, expected)


def cost(jobs: Sequence[Job], machine: Machine, *, stages: Path, measured: Sequence[Measured], trial: Trial) -> Cost:
    """Epochs and time by phase; open ends are as in finished runs, or guessed."""
    rows: dict[tuple[str, str, str], Row] = {}
    trials: dict[tuple[str, str], float | None] = {}  # of the first run on data and model
    own_code = own_code_of(job.recipe for job in jobs)
    names = variants([job.recipe.to_mapping() for job in jobs], own_code=own_code)
    expected = partial(expected_epochs, measured=measured)
    lefts = epochs_left(jobs, machine, stages=stages, expected=expected)
    for job, name, left in zip(jobs, names, lefts, strict=True):
        recipe = job.recipe
        place = recipe.data.name, recipe.model.name
        for phase, epochs in left:
            shown = phase if len(left) <= MOST_PHASES else f"{len(left)} phases"
            row = rows.setdefault((", ".join(place), name, shown), Row())  # in the order of plans, if empty
            if not epochs:
                continue
            pace = pace_of(recipe, phase, measured)
            if pace is None:
                if place not in trials:
                    trials[place] = trial(recipe)
                pace = Pace(trials[place], NO_RUNS[trials[place] is None])
            row.add(job, epochs, pace)
    return Cost(len(jobs), {key: row for key, row in rows.items() if row.epochs})


def print_cost(found: Cost, machine: Machine) -> None:
    """As a table, and what it could not know."""
    console = table_console(highlight=False)
    console.print(cost_table(found))
    if is_elsewhere(machine):
        said = f"There is no `{machine.device}` here: runs of any GPU were looked at, and no stages that are kept."
        console.print(said, style="dim")


def cost_table(found: Cost) -> Table:
    """Data and model stand above their methods, and a method beside the first of its phases."""
    table = Table("method", box=None, pad_edge=False, caption_justify="left")
    for name in ("phase", "runs", "epochs", "s/epoch", "time", "based on"):
        table.add_column(name, no_wrap=True)
    before = ("", "")
    for (place, variant, phase), row in found.rows.items():
        if place != before[0]:
            table.add_row(f"[bold]{escape(place)}[/]")
        pace = f"{row.seconds / row.epochs:.2f}" if row.known and row.epochs else ""
        time = duration(row.seconds) if row.known else UNKNOWN
        words = [str(len(row.jobs)), str(row.epochs), pace, time, ", ".join(row.bases)]
        table.add_row("" if (place, variant) == before else escape(variant), phase, *words)
        before = place, variant
    table.add_row("all", "", str(found.runs), str(found.epochs), "", found.time, "")
    table.caption = "\n".join(_words(found.rows)) or None
    return table


def _measured(machine: Machine, *folders: Path | None) -> list[Measured]:
    return measured_in([RunStore(folder) for folder in folders if folder], machine)


def _words(rows: Rows) -> list[str]:
    """What the columns mean, where that is not plain."""
    counts: dict[tuple[str, str], set[int]] = {}  # of runs in the phases of a variant
    for (place, variant, _), row in rows.items():
        counts.setdefault((place, variant), set()).add(len(row.jobs))
    words = [ONCE] if any(len(several) > 1 for several in counts.values()) else []
    bases = [basis for row in rows.values() for basis in row.bases]
    if all(basis in NO_RUNS for basis in bases):
        return words
    others = sorted(data for data in AS_LARGE if any(basis.endswith(f" on {data}") for basis in bases))
    return [*words, "; ".join([LIKE_IT, *map(ELSEWHERE.format, others)])]

"""What missing runs cost: epochs and time by phase, going by finished runs where there are some."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from rich.markup import escape
from rich.table import Table

from hypersparse.cli.formats import duration
from hypersparse.cli.grid import likely_epochs
from hypersparse.methods.base import Phase
from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.runs.table import DAMAGE
from hypersparse.runs.variants import variants
from hypersparse.training.folder import RunFolder
from hypersparse.training.machine import Machine
from hypersparse.training.together import Job

Trial = Callable[[Recipe], float | None]  # seconds of an epoch, measured now; None where the data are not there
MOST_PHASES = 4  # with a row each; IMP has a phase for each of its rounds
UNKNOWN = "not known"
NO_RUNS = ("a short trial", "nothing")  # what it can be based on otherwise
WORDS = "like it: finished runs of the method in that phase; others: all on the same data and model"


class Pace(NamedTuple):
    """Seconds of an epoch, None where nothing is known, and where they are from."""

    seconds: float | None
    basis: str


@dataclass(frozen=True)
class Measured:
    """A phase of a finished run."""

    run: Path
    recipe: Recipe
    phase: str
    epochs: int
    seconds: float


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


def cost(jobs: Sequence[Job], measured: Sequence[Measured], trial: Trial) -> Table:
    """Epochs and hours by phase, one run after another; open ends are as in finished runs, or guessed."""
    rows: dict[tuple[str, str, str], Row] = {}
    trials: dict[tuple[str, str], float | None] = {}  # of the first run on data and model
    names = variants([job.recipe.to_mapping() for job in jobs])
    for job, name in zip(jobs, names, strict=True):
        recipe = job.recipe
        place = recipe.data.name, recipe.model.name
        left = epochs_left(job, measured)
        for phase, epochs in left:
            if not epochs:
                continue
            pace = pace_of(recipe, phase, measured)
            if pace is None:
                if place not in trials:
                    trials[place] = trial(recipe)
                pace = Pace(trials[place], NO_RUNS[trials[place] is None])
            shown = phase if len(left) <= MOST_PHASES else f"{len(left)} phases"
            rows.setdefault((", ".join(place), name, shown), Row()).add(job, epochs, pace)
    return _table(rows, len(jobs))


def is_elsewhere(machine: Machine) -> bool:
    """Whether a GPU is meant and none is here: what it would take can be said all the same, by runs of any GPU."""
    return re.fullmatch(r"cuda(:\d+)?", machine.device) is not None and not torch.cuda.is_available()


def measured_in(stores: Iterable[RunStore], machine: Machine) -> list[Measured]:
    """The phases of all finished runs of such a device in this precision; a run that lies in two stores counts once."""
    found: dict[tuple[str, str], list[Measured]] = {}
    for run in (run for store in stores for run in store.runs()):
        try:
            found.setdefault((run.path.parent.name, run.path.name), list(_phases(run, machine)))
        except DAMAGE:  # `hypersparse runs` says of it what is wrong
            continue
    return [phase for phases in found.values() for phase in phases]


def pace_of(recipe: Recipe, phase: str, measured: Sequence[Measured]) -> Pace | None:
    """From runs of the method in this phase, otherwise from all on the same data and model."""
    alike = [each for each in measured if _kind(each.recipe) == _kind(recipe)]
    same = [each for each in alike if (each.recipe.method.name, each.phase) == (recipe.method.name, phase)]
    near = same or alike
    if not near:
        return None
    count = len({each.run for each in near})
    seconds = sum(each.seconds for each in near) / sum(each.epochs for each in near)
    return Pace(seconds, f"{count} like it" if same else f"{count} other{'s' if count > 1 else ''}")


def epochs_left(job: Job, measured: Sequence[Measured] = ()) -> list[tuple[str, int]]:
    """The phases of a plan with their epochs that are not in the run's log.

    An open end is expected where finished runs with the same options of the method ended, or a third of the way.
    """
    plan = job.recipe.plan()
    trained = [entry.get("phase") for entry in RunFolder(job.folder).log()]
    begun = max((place for place, phase in enumerate(plan) if phase.name in trained), default=-1)
    left = []
    for place, phase in enumerate(plan):
        missing = _expected(job.recipe, phase, measured) - trained.count(phase.name)
        left.append((phase.name, 0 if place < begun else max(0, missing)))
    return left


def _expected(recipe: Recipe, phase: Phase, measured: Sequence[Measured]) -> int:
    alike = [each for each in measured if (_kind(each.recipe), each.recipe.method) == (_kind(recipe), recipe.method)]
    ended = [each.epochs for each in alike if each.phase == phase.name]
    return round(mean(ended)) if phase.until and ended else likely_epochs(phase)


def _phases(run: RunFolder, machine: Machine) -> Iterator[Measured]:
    result = run.result()
    if result is None or not _fits(result["machine"], machine):
        return
    recipe = run.recipe()
    for phase, seconds in result["wall_seconds_by_phase"].items():
        if epochs := int(result["epochs"][phase]):
            yield Measured(run.path, recipe, phase, epochs, float(seconds))


def _fits(there: Mapping[str, Any], machine: Machine) -> bool:
    if there["precision"] != machine.precision:
        return False
    if is_elsewhere(machine):
        return bool(there["device"] != "cpu")
    device = machine.torch_device()
    return bool(there["device"] == (torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"))


def _kind(recipe: Recipe) -> tuple[object, ...]:
    """What decides how long a step takes, apart from the method."""
    return recipe.data, recipe.model, recipe.training.batch_size, recipe.ablation.name == "narrow"


def _table(rows: Mapping[tuple[str, str, str], Row], runs: int) -> Table:
    """Data and model stand above their methods, and a method beside the first of its phases."""
    table = Table("method", box=None, pad_edge=False, caption_justify="left")
    for name in ("phase", "runs", "epochs", "s/epoch", "time", "based on"):
        table.add_column(name, no_wrap=True)
    before = ("", "")
    for (place, variant, phase), row in rows.items():
        if place != before[0]:
            table.add_row(f"[bold]{escape(place)}[/]")
        pace = f"{row.seconds / row.epochs:.2f}" if row.known and row.epochs else ""
        time = duration(row.seconds) if row.known else UNKNOWN
        words = [str(len(row.jobs)), str(row.epochs), pace, time, ", ".join(row.bases)]
        table.add_row("" if (place, variant) == before else escape(variant), phase, *words)
        before = place, variant
    total, known = sum(row.seconds for row in rows.values()), [row.known for row in rows.values()]
    time = duration(total) if all(known) else f"at least {duration(total)}" if total else UNKNOWN
    table.add_row("all", "", str(runs), str(sum(row.epochs for row in rows.values())), "", time, "")
    if any(basis not in NO_RUNS for row in rows.values() for basis in row.bases):
        table.caption = WORDS
    return table

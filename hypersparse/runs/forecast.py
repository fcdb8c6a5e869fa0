"""Forecast of missing runs: epochs and time by phase, from finished runs if there are any."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hypersparse.recipe import Recipe, own_code_of
from hypersparse.runs.epoch_times import EpochTime, Load, Measured, epoch_time_of, expected_epochs, measured_in, tried
from hypersparse.runs.recipe_names import variants
from hypersparse.runs.remaining_epochs import Expected, epochs_left
from hypersparse.runs.store import PHASE_CACHE, RunStore
from hypersparse.training.concurrency.concurrent_runs import Job, unfinished
from hypersparse.training.machine import Machine

Trial = Callable[[Recipe], float | None]  # measured seconds per epoch; None without the data
MOST_PHASES = 4  # with a row each; IMP has a phase for each of its rounds
NO_RUNS = ("a short trial", "nothing")  # other sources


@dataclass
class CostRow:
    """A row of the table: epochs and known seconds of one phase of a variant on some data and model."""

    jobs: set[Path] = field(default_factory=set)
    epochs: int = 0
    seconds: float = 0.0  # of epochs with a known time
    known: bool = True  # for all epochs
    bases: list[str] = field(default_factory=list)

    def add(self, job: Job, epochs: int, epoch_time: EpochTime) -> None:
        """Add epochs."""
        self.jobs.add(job.folder)
        self.epochs += epochs
        self.seconds += epochs * (epoch_time.seconds or 0.0)
        self.known = self.known and epoch_time.seconds is not None
        self.bases += [epoch_time.basis] * (epoch_time.basis not in self.bases)


Rows = Mapping[tuple[str, str, str], CostRow]  # by data and model, variant, phase


@dataclass(frozen=True)
class Cost:
    """The forecast of runs that are trained one after another."""

    runs: int
    rows: Rows
    by_job: Mapping[Path, CostRow]  # by the run's folder; a shared beginning counts for the run that trains it

    @property
    def epochs(self) -> int:
        """Total epochs."""
        return sum(row.epochs for row in self.rows.values())

    @property
    def seconds(self) -> float:
        """Total seconds of epochs with a known time."""
        return sum(row.seconds for row in self.rows.values())

    @property
    def known(self) -> bool:
        """Whether the time of all epochs is known."""
        return all(row.known for row in self.rows.values())


def cost_of(jobs: Sequence[Job], machine: Machine, runs_dir: Path, *, load: Load, results: Path | None = None) -> Cost:
    """Forecasts runs on a machine from the finished runs in some folders."""
    measured = measured_on(machine, runs_dir, results)
    trial = partial(tried, machine=machine, load=load)
    return cost(jobs, machine, phase_cache=runs_dir / PHASE_CACHE, measured=measured, trial=trial)


def epochs_ahead(
    jobs: Sequence[Job], machine: Machine, runs_dir: Path, *, results: Path | None = None
) -> tuple[dict[Path, int], Expected]:
    """Remaining epochs of each run, with the expected lengths of phases."""
    expected = partial(expected_epochs, measured=measured_on(machine, runs_dir, results))
    going = unfinished(jobs)
    lefts = epochs_left(going, machine, phase_cache=runs_dir / PHASE_CACHE, expected=expected)
    return {job.folder: sum(epochs for _, epochs in left) for job, left in zip(going, lefts, strict=True)}, expected


def measured_on(machine: Machine, *folders: Path | None) -> list[Measured]:
    """Phases of finished runs in these folders on this kind of machine."""
    return measured_in([RunStore(folder) for folder in folders if folder], machine)


def cost(
    jobs: Sequence[Job], machine: Machine, *, phase_cache: Path, measured: Sequence[Measured], trial: Trial
) -> Cost:
    """Epochs and time by phase."""
    rows: dict[tuple[str, str, str], CostRow] = {}
    by_job: dict[Path, CostRow] = {}
    trials: dict[tuple[str, str], float | None] = {}  # of the first run on data and model
    own_code = own_code_of(job.recipe for job in jobs)
    names = variants([job.recipe.to_mapping() for job in jobs], own_code=own_code)
    expected = partial(expected_epochs, measured=measured)
    lefts = epochs_left(jobs, machine, phase_cache=phase_cache, expected=expected)
    for job, name, left in zip(jobs, names, lefts, strict=True):
        recipe = job.recipe
        place = recipe.data.name, recipe.model.name
        for phase, epochs in left:
            shown = phase if len(left) <= MOST_PHASES else f"{len(left)} phases"
            row = rows.setdefault((", ".join(place), name, shown), CostRow())  # in the order of plans, if empty
            if not epochs:
                continue
            epoch_time = epoch_time_of(recipe, phase, measured)
            if epoch_time is None:
                if place not in trials:
                    trials[place] = trial(recipe)
                epoch_time = EpochTime(trials[place], NO_RUNS[trials[place] is None])
            for each in (row, by_job.setdefault(job.folder, CostRow())):
                each.add(job, epochs, epoch_time)
    return Cost(len(jobs), {key: row for key, row in rows.items() if row.epochs}, by_job)

"""`Session`: the runs that one command trains, one after another or concurrently."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import typer

from hypersparse.cli.console import Console
from hypersparse.cli.display import LiveDisplay
from hypersparse.cli.grid import Grid
from hypersparse.cli.load_data import keep_latest, load_data
from hypersparse.cli.recipe_options import RecipeOptions
from hypersparse.cli.results import print_failures
from hypersparse.cli.signals import exit_if_signalled, stopped_by_signals
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.data.dataset import Dataset
from hypersparse.distributed import Ranks
from hypersparse.errors import OptionError
from hypersparse.integrations.trackers import trackers
from hypersparse.recipe import Recipe
from hypersparse.runs.experiment import Run
from hypersparse.runs.find import with_held_out
from hypersparse.runs.sweep import Executor, LocalExecutor, job_of, sweep
from hypersparse.runs.time_left import TimeLeft
from hypersparse.runs.torchrun import started_as
from hypersparse.storage.schemas import Result
from hypersparse.training.callbacks import Callback, CallbackList
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest


@dataclass(frozen=True)
class Session:
    """What the runs of one command share."""

    options: TrainingOptions
    machine: Machine
    stop: StopRequest
    console: Console = field(default_factory=Console)
    ranks: Ranks = field(default_factory=Ranks.alone)
    record: bool = True
    jobs: int | None = None  # at once; None: as many as a trial finds

    def loader(self, *, decode: bool = True) -> Callable[[Recipe], Dataset]:
        """A function that loads data sets; to `decode` them prepares them for training."""
        quiet = not (self.console.is_terminal and self.ranks.first)
        machine = self.machine if decode else None
        load = partial(load_data, folders=self.options.folders, quiet=quiet, machine=machine, console=self.console)
        return keep_latest(load)

    def train_one(self, job: Job, title: str, *, dataset: Dataset, stop: StopRequest | None = None) -> Result:
        """Train a run, resume it, or return its result."""
        named = self.options.track or () if self.ranks.first else ()
        with trackers(named, self.options.runs_dir) as tell, LiveDisplay(self.console, title) as display:
            return train(
                job.recipe,
                job.seed,
                self.machine,
                job.folder,
                dataset=dataset,
                callback=CallbackList([tell(job, display), job.callback or Callback()]),
                stop=stop or self.stop,
                phase_cache=self.options.phase_cache,
                record=self.record,
                ranks=self.ranks,
            )

    def train_all(
        self,
        runs: Sequence[Run],
        load: Callable[[Recipe], Dataset],
        *,
        executor: Executor | None = None,
        results: Path | None = None,
    ) -> list[Outcome]:
        """Train several runs under a grid with the time left, then print why some failed."""
        options, jobs = self.options, [job_of(run, self.options.store) for run in runs]
        display = Grid(self.console, TimeLeft.of(jobs, self.machine, options.runs_dir, results=results))
        with stopped_by_signals(self.stop), trackers(options.track or (), options.runs_dir) as tell, display:
            outcomes = sweep(
                runs,
                executor or LocalExecutor(self.machine, load, self.jobs, self.record),
                options.store,
                phase_cache=options.phase_cache,
                results=results,
                stop=self.stop,
                callback=lambda job: tell(job, display.callback(job)),
                ended=display.ended,
            )
        print_failures(self.console, jobs, outcomes)
        return outcomes

    @contextmanager
    def stoppable(self, folder: Path) -> Iterator[None]:
        """Inside, a signal or `--stop-after` saves the run and ends the command, which says how to resume it."""
        try:
            with stopped_by_signals(self.stop):
                yield
        except Stopped:
            self.say_how_to_resume(folder)
            raise typer.Exit from None

    def say_how_to_resume(self, folder: Path) -> None:
        """Print the command that resumes what was stopped; after a signal also end with its exit code."""
        command = shlex.join([*started_as(os.environ), *sys.argv[1:]])
        self.console.say(f"Stopped ({self.stop.reason}) and saved in {folder}. To go on: {command}")
        exit_if_signalled(self.stop)


class Search:
    """The trainings of `find` and `tune`: one after another, with one seed, without records."""

    def __init__(
        self,
        chosen: RecipeOptions,
        options: TrainingOptions,
        seed: int,
        *,
        method: str | None,
        sparsity: float | None = None,
    ) -> None:
        recipe = chosen.make(options.runs_dir, method=method, sparsity=sparsity)
        if recipe.until is not None:
            raise OptionError("A search trains each network to its end; leave `--until` out.")
        self.session = Session(options, options.machine(), options.stop(), record=False)
        self.seed = seed
        self.dataset = self.session.loader()(recipe)
        self.recipe = with_held_out(recipe, images=len(self.dataset.train))

    def trainer(self, most: int, *, noun: str = "training", done: int = 0) -> Callable[..., Result]:
        """A function that trains a recipe in a folder; the display says which of at most `most` trainings it is.

        `done` have been trained by an earlier start of the command.
        """
        numbers = count(done + 1)

        def train(
            recipe: Recipe, folder: Path, title: str, callback: Callback | None = None, stop: StopRequest | None = None
        ) -> Result:
            job = Job(recipe, self.seed, folder, callback)
            title = f"{noun} {next(numbers)} of at most {most}: {title}"
            return self.session.train_one(job, title, dataset=self.dataset, stop=stop)

        return train

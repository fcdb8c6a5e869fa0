"""`sweep`: train the missing runs of an experiment, and copy the small files of finished runs."""

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Protocol

from hypersparse.data.dataset import Dataset
from hypersparse.errors import HypersparseError, RunError
from hypersparse.recipe import Recipe
from hypersparse.runs.experiment import Run
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import make_folder, remove_leftovers, write_atomically, write_text
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Result, read_text
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.concurrent_runs import Ended, Job, Outcome, is_failure, train_together
from hypersparse.training.machine import Machine
from hypersparse.training.resume import is_complete
from hypersparse.training.stop import Stopped, StopRequest

log = logging.getLogger("hypersparse")


class Executor(Protocol):
    """Trains the runs of a sweep."""

    def train(self, jobs: Sequence[Job], *, phase_cache: Path, stop: StopRequest, ended: Ended) -> list[Outcome]:
        """Train the runs in order, several concurrently; `ended` is called for each that ended or could not start."""


@dataclass(frozen=True)
class LocalExecutor:
    """Trains on a device of this machine; successive runs on the same data are trained concurrently."""

    machine: Machine
    load: Callable[[Recipe], Dataset]
    concurrency: int | None = None
    record: bool = True

    def train(self, jobs: Sequence[Job], *, phase_cache: Path, stop: StopRequest, ended: Ended) -> list[Outcome]:
        """Train the runs in order, several concurrently."""
        outcomes: list[Outcome] = []
        for _, group in groupby(jobs, key=lambda job: images_of(job.recipe)):
            same = list(group)
            if stop.requested():
                outcomes += [Stopped(stop.reason) for _ in same]
                continue
            try:
                dataset = self.load(same[0].recipe)
            except HypersparseError as error:  # missing data must not stop runs on other data
                outcomes += [error] * len(same)
                for job in same:
                    ended(job, error)
                continue
            outcomes += train_together(
                same,
                self.machine,
                dataset,
                concurrency=self.concurrency,
                stop=stop,
                phase_cache=phase_cache,
                record=self.record,
                ended=ended,
            )
        return outcomes


def sweep(
    runs: Sequence[Run],
    executor: Executor,
    store: RunStore,
    *,
    phase_cache: Path,
    results: Path | None = None,
    stop: StopRequest | None = None,
    callback: Callable[[Job], Callback] | None = None,
    ended: Ended | None = None,
) -> list[Outcome]:
    """Train the runs in order, several concurrently; a failure is recorded and does not stop the other runs.

    A run with a result in `results` is not trained again. New results are copied there without weights as soon as
    their run ends. `ended` is called for each run that succeeded or failed, in the thread that trained it.
    """
    found = [_found(run, store, results) for run in runs]
    note = noting(ended, results)
    jobs = []
    for run, outcome in zip(runs, found, strict=True):
        job = job_of(run, store)
        if outcome is None:
            jobs.append(replace(job, callback=callback(job) if callback else None))
        elif is_failure(outcome):
            note(job, outcome)
    outcomes = iter(executor.train(jobs, phase_cache=phase_cache, stop=stop or StopRequest(), ended=note))
    return [next(outcomes) if outcome is None else outcome for outcome in found]


def job_of(run: Run, store: RunStore) -> Job:
    """The job of a run, with its folder."""
    return Job(run.recipe, run.seed, store.folder(run.recipe, run.seed).path)


def images_of(recipe: Recipe) -> str:
    """Identify the images of a recipe by the data set and its options."""
    return json.dumps([recipe.data.name, recipe.data.options], sort_keys=True)


def missing(runs: Sequence[Run], store: RunStore, results: Path | None) -> list[Run]:
    """The runs without a valid result in the store or in `results`."""
    return [run for run in runs if not isinstance(_found(run, store, results), dict)]


def finished(run: Run, store: RunStore, results: Path | None) -> Result | None:
    """The result of a run that reached the end of its recipe, from the store or `results`.

    A damaged result is an error only if there is no valid one.
    """
    damaged = None
    for place in (store, *([RunStore(results)] if results else [])):
        try:
            result = place.folder(run.recipe, run.seed).result()
            if result is not None and is_complete(run.recipe, result["until"]):
                return result
        except RunError as error:
            damaged = error
    if damaged:
        raise damaged
    return None


def _found(run: Run, store: RunStore, results: Path | None) -> Outcome | None:
    try:
        return finished(run, store, results)
    except RunError as error:  # a damaged result must not stop the other runs
        return error


def keep_small(folder: Path, results: Path) -> Path:
    """Copy the files of a finished run that figures and tables need: all but the weights."""
    source = RunFolder(folder)
    kept = RunFolder(results / folder.parent.name / folder.name)
    make_folder(kept.path)
    remove_leftovers(kept.path, alone=False)
    # The result comes last: it marks the run as finished.
    for old in (source.recipe_file, source.timing_file, source.log_file, source.record_file, source.result_file):
        if old.exists():
            write_atomically(kept.path / old.name, partial(shutil.copyfile, old))
    return kept.path


def failures(store: RunStore) -> dict[Path, str]:
    """The runs whose last attempt failed, with the reason."""
    notes = (RunFolder(folder).failure_file for folder in sorted(store.root.glob("*/seed-*")))
    return {note.parent: read_text(note).strip() for note in notes if note.is_file()}


def keep_finished(runs: Sequence[Run], store: RunStore, results: Path) -> None:
    """Copy finished runs that are missing in the results, such as after a crash."""
    make_folder(results)  # fails early if the folder cannot be written
    for run in missing(runs, RunStore(results), None):
        if isinstance(_found(run, store, None), dict):
            keep_small(store.folder(run.recipe, run.seed).path, results)


def noting(ended: Ended | None, results: Path | None = None) -> Ended:
    """Wrap `ended`: first copy a run's result to `results`, or record its failure in its folder."""

    def note(job: Job, outcome: Outcome) -> None:
        if isinstance(outcome, dict) and results:
            keep_small(job.folder, results)
        elif is_failure(outcome) and job.folder.is_dir():
            _record_failure(job.folder, outcome)
        if ended:
            ended(job, outcome)

    return note


def _record_failure(folder: Path, failure: Exception) -> None:
    kind = "" if isinstance(failure, HypersparseError) else f"{type(failure).__name__}: "
    try:
        write_text(RunFolder(folder).failure_file, f"{kind}{failure}\n")
    except RunError as error:  # such as a full disk; the failure itself is reported at the end
        log.warning("The failure of %s could not be recorded there: %s", folder, error)

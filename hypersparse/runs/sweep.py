"""`sweep`: train what is missing of an experiment, and keep the small files of what is finished."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from hypersparse.data.dataset import Dataset
from hypersparse.errors import HypersparseError
from hypersparse.recipe import Recipe
from hypersparse.runs.experiment import Run
from hypersparse.runs.store import RunStore
from hypersparse.training.atomic import write_atomically, write_text, writing
from hypersparse.training.folder import RunFolder
from hypersparse.training.loop import reaches
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest
from hypersparse.training.together import Job, train_together
from hypersparse.training.watcher import Watcher

FAILURE = "failed.txt"  # in a run's folder: why the last try failed
Outcome = dict[str, Any] | Exception


def sweep(
    runs: Sequence[Run],
    machine: Machine,
    store: RunStore,
    *,
    load: Callable[[Recipe], Dataset],
    stages: Path,
    results: Path | None = None,
    at_once: int | None = None,
    stop: StopRequest | None = None,
    watcher: Callable[[Job], Watcher] | None = None,
) -> list[Outcome]:
    """Train the runs in order, as many at once as is fastest; one that fails is noted and the rest goes on.

    A run whose result lies in `results` is not trained again; new results are copied there, without weights.
    """
    stop = stop or StopRequest()
    outcomes: list[Outcome] = []
    for same in _by_data(runs):
        jobs = [job_of(run, store) for run in same]
        jobs = [Job(job.recipe, job.seed, job.folder, watcher(job) if watcher else None) for job in jobs]
        outcomes += _train(jobs, machine, load, stages, results, at_once, stop)
    return outcomes


def job_of(run: Run, store: RunStore) -> Job:
    """A run and where it is trained."""
    return Job(run.recipe, run.seed, store.folder(run.recipe, run.seed).path)


def missing(runs: Sequence[Run], store: RunStore, results: Path | None) -> list[Run]:
    """The runs without a result, here or in `results`."""
    return [run for run in runs if finished(run, store, results) is None]


def finished(run: Run, store: RunStore, results: Path | None) -> dict[str, Any] | None:
    """What came out of a run, if it went as far as its recipe asks; a kept result may have gone further."""
    for place in (store, *([RunStore(results)] if results else [])):
        result = place.folder(run.recipe, run.seed).result()
        if result is not None and reaches(run.recipe, result["until"]):
            return result
    return None


def keep_small(folder: Path, results: Path) -> Path:
    """Copy what figures and tables need of a finished run: everything but the weights."""
    source = RunFolder(folder)
    kept = RunFolder(results / folder.parent.name / folder.name)
    with writing(kept.path):
        kept.path.mkdir(parents=True, exist_ok=True)
    pairs = ((source.recipe_file, kept.recipe_file), (source.log_file, kept.log_file))
    for old, new in (*pairs, (source.record_file, kept.record_file), (source.result_file, kept.result_file)):
        if old.exists():  # the result last: it means finished
            write_atomically(new, lambda beside, old=old: shutil.copyfile(old, beside))  # type: ignore[misc]
    return kept.path


def failures(store: RunStore) -> dict[Path, str]:
    """The runs whose last try failed, and why."""
    return {path.parent: path.read_text().strip() for path in sorted(store.root.glob(f"*/seed-*/{FAILURE}"))}


def _by_data(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Runs that follow each other on the same data: they can share a device."""

    def data(run: Run) -> str:
        return json.dumps([run.recipe.data.name, run.recipe.data.options], sort_keys=True)

    for _, same in groupby(runs, key=data):
        yield list(same)


def _train(
    jobs: Sequence[Job],
    machine: Machine,
    load: Callable[[Recipe], Dataset],
    stages: Path,
    results: Path | None,
    at_once: int | None,
    stop: StopRequest,
) -> list[Outcome]:
    if stop.requested():
        return [Stopped(stop.reason) for _ in jobs]
    try:
        dataset = load(jobs[0].recipe)
    except HypersparseError as error:  # a data set that is not there must not keep the others from being trained
        return [error] * len(jobs)
    outcomes = train_together(jobs, machine, dataset, at_once=at_once, stop=stop, stages=stages)
    for job, outcome in zip(jobs, outcomes, strict=True):
        note = job.folder / FAILURE
        if isinstance(outcome, dict):
            note.unlink(missing_ok=True)
            if results:
                keep_small(job.folder, results)
        elif isinstance(outcome, HypersparseError) and job.folder.is_dir():
            write_text(note, f"{outcome}\n")
    return outcomes

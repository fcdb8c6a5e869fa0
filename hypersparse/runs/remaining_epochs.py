"""Remaining epochs of runs. Phases that several runs share count once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hypersparse.errors import RunError
from hypersparse.methods.base import Phase
from hypersparse.recipe import Recipe
from hypersparse.runs.epoch_times import is_elsewhere
from hypersparse.storage.phase_cache import SAME, PhaseCache
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Position
from hypersparse.training.concurrency.concurrent_runs import Job
from hypersparse.training.machine import Machine
from hypersparse.training.result import describe
from hypersparse.training.resume import saved_position, unless_past

Expected = Callable[[Recipe, Phase], int]  # epochs of a phase
Left = list[tuple[str, int]]  # the phases of a plan and the remaining epochs of each


def epochs_left(jobs: Sequence[Job], machine: Machine, *, phase_cache: Path, expected: Expected) -> Iterator[Left]:
    """The remaining epochs of each run, if the runs are trained one after another in this order.

    A run with a checkpoint resumes from it. Other runs start from the latest phase in the cache, including phases that
    earlier runs of the list will store.
    """
    made: set[Path] = set()
    described = _descriptions(machine)
    for job in jobs:
        recipe, saved = _standing(job)
        plan = recipe.plan()
        caches = [PhaseCache(phase_cache, recipe, job.seed, each) for each in described]
        ends = [set(filter(None, files)) for files in zip(*(cache.paths(plan) for cache in caches), strict=True)]
        begun, epoch = (saved["phase_index"], saved["epoch"]) if saved else (_furthest(ends, made), 0)
        made.update(*ends[begun:])
        yield [
            (phase.name, _epochs(phase, expected(recipe, phase), place - begun, epoch))
            for place, phase in enumerate(plan)
        ]


def _descriptions(machine: Machine) -> list[Mapping[str, Any]]:
    """Descriptions of the machines that may train the runs; they are part of the names in the phase cache."""
    if is_elsewhere(machine):
        return [dict.fromkeys(SAME)]  # cannot be asked: names differ by run, and none is found in the cache
    found = describe(machine)
    # On a CPU a small network uses one thread, and its size depends on the data.
    return [found | {"threads": count} for count in {1, machine.threads or torch.get_num_threads()}]


def _standing(job: Job) -> tuple[Recipe, Position | None]:
    """The recipe a run follows, and the position from which it resumes."""
    run = RunFolder(job.folder)
    try:
        return unless_past(job.recipe, run), saved_position(run)
    except RunError:  # damaged; training reports it
        return job.recipe, None


def _furthest(ends: Sequence[set[Path]], made: set[Path]) -> int:
    """The number of phases that the latest stored state has finished."""
    there = (end for end, files in enumerate(ends, 1) if any(file in made or file.exists() for file in files))
    return max(there, default=0)


def _epochs(phase: Phase, expected: int, ahead: int, epoch: int) -> int:
    """Remaining epochs of the phase that is `ahead` phases after the current one, which is in `epoch`."""
    if ahead:
        return expected if ahead > 0 else 0
    return max(1 if phase.stop_when else 0, expected - epoch)

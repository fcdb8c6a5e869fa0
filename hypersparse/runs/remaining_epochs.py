"""What is left of runs: the epochs that will really be trained, those of a common beginning once."""

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
Left = list[tuple[str, int]]  # the phases of a plan and how many epochs of each are to be trained


def epochs_left(jobs: Sequence[Job], machine: Machine, *, phase_cache: Path, expected: Expected) -> Iterator[Left]:
    """Of each run, when they are trained one after another in this order.

    One with a checkpoint goes on from it. Others begin from the furthest stage that is kept, or that an earlier run
    will have made by then.
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
    """What those that will train the runs may say of themselves, by which their stages are named."""
    if is_elsewhere(machine):
        return [dict.fromkeys(SAME)]  # nobody can ask it; tells stages apart, and finds none that is kept
    found = describe(machine)
    # On a CPU a small network takes one thread, and which is small only its data tell.
    return [found | {"threads": count} for count in {1, machine.threads or torch.get_num_threads()}]


def _standing(job: Job) -> tuple[Recipe, Position | None]:
    """What a run will follow, and where it would go on."""
    run = RunFolder(job.folder)
    try:
        return unless_past(job.recipe, run), saved_position(run)
    except RunError:  # damaged; training will say it
        return job.recipe, None


def _furthest(ends: Sequence[set[Path]], made: set[Path]) -> int:
    """How many phases the furthest stage has behind it."""
    there = (end for end, files in enumerate(ends, 1) if any(file in made or file.exists() for file in files))
    return max(there, default=0)


def _epochs(phase: Phase, expected: int, ahead: int, epoch: int) -> int:
    """Of a phase so many phases ahead of the one that is in its `epoch`, which goes on if its end is open."""
    if ahead:
        return expected if ahead > 0 else 0
    return max(1 if phase.stop_when else 0, expected - epoch)

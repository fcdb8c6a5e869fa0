"""Seconds per epoch and expected lengths of open phases, from finished runs or from a short trial."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.errors import DataError, HypersparseError
from hypersparse.methods.base import Phase
from hypersparse.plurals import how_many
from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.autotune import seconds_an_epoch
from hypersparse.training.machine import Machine

Load = Callable[[Recipe], Dataset]
AS_LARGE = {"cifar10": "cifar100", "cifar100": "cifar10"}  # equal numbers and sizes of images, so equal times


class EpochTime(NamedTuple):
    """Seconds per epoch, None if unknown, and their source."""

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


def is_elsewhere(machine: Machine) -> bool:
    """Whether a GPU is asked for and none is here. Times then come from runs on any GPU."""
    return re.fullmatch(r"cuda(:\d+)?", machine.device) is not None and not torch.cuda.is_available()


def measured_in(stores: Iterable[RunStore], machine: Machine) -> list[Measured]:
    """The phases of finished runs on this kind of device and precision. A run in two stores counts once."""
    found: dict[tuple[str, str], list[Measured]] = {}
    for run in (run for store in stores for run in store.runs()):
        try:
            found.setdefault((run.path.parent.name, run.path.name), list(_phases(run, machine)))
        except HypersparseError:  # damaged; `hypersparse runs` reports it
            continue
    return [phase for phases in found.values() for phase in phases]


def epoch_time_of(recipe: Recipe, phase: str, measured: Sequence[Measured]) -> EpochTime | None:
    """From runs of the method in this phase, else from all runs on the same model and data of the same size."""
    for kind, place in _kinds(recipe):
        alike = [each for each in measured if _kind(each.recipe) == kind]
        same = [each for each in alike if (each.recipe.method.name, each.phase) == (recipe.method.name, phase)]
        if near := same or alike:
            count = len({each.run for each in near})
            seconds = sum(each.seconds for each in near) / sum(each.epochs for each in near)
            return EpochTime(seconds, f"{count} like it{place}" if same else f"{how_many(count, 'other')}{place}")
    return None


def tried(recipe: Recipe, machine: Machine, load: Load) -> float | None:
    """Seconds per epoch on this device, from a few steps; None without the device or the data."""
    if is_elsewhere(machine):
        return None
    try:
        return seconds_an_epoch(recipe, machine, load(recipe))
    except DataError:
        if recipe.data.name in data.names():  # not downloaded yet; a wrong path is an error
            return None
        raise


def expected_epochs(recipe: Recipe, phase: Phase, measured: Sequence[Measured]) -> int:
    """Epochs of a phase; an open one is as long as in alike finished runs, else estimated as a third of its limit."""
    own = [each for each in measured if (each.recipe.method, each.phase) == (recipe.method, phase.name)]
    for kind, _ in _kinds(recipe) if phase.stop_when else ():
        if ended := [each.epochs for each in own if _kind(each.recipe) == kind]:
            return round(mean(ended))
    return max(1, phase.epochs // 3) if phase.stop_when else phase.epochs


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
    """What determines the time of a step, apart from the method."""
    return recipe.data, recipe.model, recipe.training.batch_size


def _kinds(recipe: Recipe) -> Iterator[tuple[tuple[object, ...], str]]:
    """A recipe's kind and the kind on data of the same size, each with words for the table."""
    _, *others = _kind(recipe)
    yield (recipe.data, *others), ""
    if other := AS_LARGE.get(recipe.data.name):
        yield (replace(recipe.data, name=other), *others), f" on {other}"

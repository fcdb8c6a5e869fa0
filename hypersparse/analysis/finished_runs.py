"""`FinishedRun`: a run as tables and figures read it, without its weights."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hypersparse.data.npz_file import Arrays
from hypersparse.errors import RunError
from hypersparse.recipe import Recipe
from hypersparse.runs import recipe_names
from hypersparse.runs.store import RunStore
from hypersparse.storage.record import read_record
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, Result, Summary


class NoRunsError(RunError):
    """None of the runs has the data that an analysis needs."""


class _Record(Arrays):
    """Arrays of a file, which says if it lacks one."""

    def __init__(self, arrays: Arrays, file: Path) -> None:
        super().__init__(arrays)
        self._file = file

    def __missing__(self, key: str) -> NDArray[Any]:
        raise RunError(f"{self._file} has no `{key}`: it is damaged, or of another version. Copy it again.")


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run, or one that ended with its final mask."""

    folder: RunFolder
    result: Result

    @cached_property
    def recipe(self) -> Recipe:
        """Its recipe."""
        return self.folder.recipe()

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.result["seed"])

    @cached_property
    def record(self) -> Arrays:
        """The arrays recorded in every epoch."""
        return _Record(read_record(self.folder.record_file), self.folder.record_file)

    @cached_property
    def log(self) -> list[Entry]:
        """An entry for each epoch."""
        return self.folder.whole_log()

    @property
    def scores(self) -> Summary | None:
        """Accuracies of the last and best epoch, of the sparse network if there is one."""
        return self.result["sparse"] or self.result["dense"]

    @property
    def epochs(self) -> int:
        """Epochs of all phases."""
        return sum(self.result["epochs"].values())

    @property
    def settings(self) -> dict[str, Any]:
        """Data, model, method, penalty, sparsity and variant."""
        method = self.recipe.method
        return {
            "data": self.recipe.data.name,
            "model": self.recipe.model.name,
            "method": method.name,
            "penalty": self.recipe.to_mapping()["method"].get("penalty"),
            "sparsity": method.sparsity,
            "variant": self.variant,
        }

    @cached_property
    def variant(self) -> str:
        """Its method and the options that differ from the preset, such as `art l1, schedule=cosine`."""
        return recipe_names.variant(self.recipe.to_mapping())

    @cached_property
    def matches_preset(self) -> bool:
        """Whether no option differs from the preset."""
        return recipe_names.matches_preset(self.recipe.to_mapping())


def load(paths: Iterable[Path]) -> list[FinishedRun]:
    """The finished ones of these runs."""
    found = []
    for path in paths:
        folder = RunFolder(path)
        result = folder.result()
        if result is not None:
            found.append(FinishedRun(folder, result))
    if not found:
        raise NoRunsError("None of these runs is finished; `hypersparse runs` lists them with their state.")
    return found


def completed_runs(store: RunStore) -> list[FinishedRun]:
    """The runs that completed their whole plan; there may be none."""
    runs = (FinishedRun(run, result) for run in store.runs() if (result := run.result()) is not None)
    return [run for run in runs if run.result["until"] is None]


def with_records(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Those that have a record; there must be one."""
    having = [run for run in runs if run.folder.record_file.is_file()]
    if not having:
        raise NoRunsError(
            "None of these runs has a record; they were trained with --no-record, or record.npz was not copied along."
        )
    return having


def short_names(runs: Sequence[FinishedRun], *more: str) -> list[str]:
    """A short name of each run: its variant, and those of `more` (sparsity, model, data) that differ."""
    return recipe_names.names([run.recipe.to_mapping() for run in runs], *more)


def group_by(runs: Sequence[FinishedRun], *words: str) -> dict[tuple[Any, ...], list[FinishedRun]]:
    """Runs grouped by these settings."""
    groups: dict[tuple[Any, ...], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(tuple(run.settings[word] for word in words), []).append(run)
    return groups


def task_title(run: FinishedRun) -> str:
    """Model and data of a run, for a title; custom models and paths are shortened to their last name."""
    return f"{str(run.settings['model']).rpartition(':')[2]} on {data_name(run)}"


def data_name(run: FinishedRun) -> str:
    """The data of a run, for a title."""
    return Path(str(run.settings["data"])).stem


def group_by_name(runs: Sequence[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Runs that differ only in their seed, by their short name."""
    groups: dict[str, list[FinishedRun]] = {}
    for name, run in zip(short_names(runs, "sparsity", "model", "data"), runs, strict=True):
        groups.setdefault(name, []).append(run)
    return groups

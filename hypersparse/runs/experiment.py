"""`Experiment`: a named list of runs from a TOML file, in order of priority."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hypersparse import methods
from hypersparse import own_code as own
from hypersparse.errors import OptionError, unknown
from hypersparse.recipe import Recipe, merge, read_toml, resolve
from hypersparse.runs.store import RunStore

AXES = ("data", "model", "method", "penalty", "sparsity")  # of a grid; the last one varies fastest
GRID_KEYS = (*AXES, "seeds", "until", "options")
KEYS = ("title", "grid", "options")


@dataclass(frozen=True)
class Run:
    """A recipe and a seed."""

    recipe: Recipe
    seed: int

    def matches(self, wanted: Mapping[str, str]) -> bool:
        """Whether the run has these values, such as data=cifar10."""
        return all(_equals(_value(self, name), value) for name, value in wanted.items())


@dataclass(frozen=True)
class Experiment:
    """The runs of a table or a figure."""

    name: str
    title: str
    runs: tuple[Run, ...]

    @classmethod
    def read(cls, path: Path, *, own_code: Collection[str] = ()) -> "Experiment":
        """Read a TOML file with grids; user code is imported only if `own_code` contains its name.

        A run in several grids is listed once, at its first position, with the latest of its ends.
        """
        tables, grids = _read(path)
        found: dict[tuple[str, int], Run] = {}
        for grid in grids:
            for run in _runs(grid, tables.get("options", {}), own_code):
                earlier = found.setdefault((run.recipe.label, run.seed), run)
                if earlier is not run and len(run.recipe.plan()) > len(earlier.recipe.plan()):
                    found[run.recipe.label, run.seed] = run
        if not found:
            raise OptionError(f"The experiment {path} has no runs; it needs a [[grid]] with a method.")
        return cls(path.stem, str(tables.get("title", path.stem)), tuple(found.values()))

    def only(self, wanted: Mapping[str, str]) -> "Experiment":
        """The experiment with only the runs that have these values."""
        if unknown_names := wanted.keys() - {*AXES, "seed"}:
            raise OptionError(unknown("axis", min(unknown_names), (*AXES, "seed")))
        kept = tuple(run for run in self.runs if run.matches(wanted))
        if not kept:
            chosen = ", ".join(f"{name}={value}" for name, value in wanted.items())
            raise OptionError(f"No run of {self.name} has {chosen}.")
        return dataclasses.replace(self, runs=kept)


def parse_only(text: str | None) -> dict[str, str]:
    """Parse values of axes, such as `data=cifar10,model=resnet32`.

    >>> parse_only("data=cifar10,sparsity=0.98")
    {'data': 'cifar10', 'sparsity': '0.98'}
    """
    parts = [part.partition("=") for part in text.split(",")] if text else []
    if any(not equals for _, equals, _ in parts):
        raise OptionError(
            f"`--only` expects AXIS=VALUE with commas, such as data=cifar10,model=resnet32; got `{text}`."
        )
    wanted = {name.strip(): value.strip() for name, _, value in parts}
    if len(wanted) < len(parts):
        raise OptionError(f"`--only` takes one value for each axis; got `{text}`. Run the command once for each value.")
    return wanted


def named_code(path: Path) -> frozenset[str]:
    """The names of user code in an experiment's file; nothing is imported."""
    tables, grids = _read(path)
    points = [point for grid in grids for point in _points(grid, tables.get("options", {}))]
    return frozenset(name for options, chosen in points for name in own.named_in(merge(options, chosen)))


def _read(path: Path) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    """The tables of a file, and its grids."""
    tables = read_toml(path, "experiment")
    _check(tables, KEYS, f"part of the experiment {path}")
    grids = tables.get("grid", [])
    if not isinstance(grids, list):
        raise OptionError(f"A grid in {path} must begin with [[grid]], in double brackets; got {grids!r}.")
    for grid in grids:
        _check(grid, GRID_KEYS, f"part of a grid in {path}")
    return tables, grids


def _runs(grid: Mapping[str, Any], common: Any, own_code: Collection[str]) -> Iterator[Run]:
    for seed in _seeds(grid.get("seeds", 1)):
        for options, chosen in _points(grid, common):
            method = merge(options, chosen)["method"]
            kind = methods.find(method.get("name", "art"), own_code=own_code)
            if all(field.name != "sparsity" for field in dataclasses.fields(kind)):  # type: ignore[arg-type]
                chosen["method"].pop("sparsity", None)  # the axis applies to pruning methods only
            yield Run(resolve(merge(options, chosen), own_code=own_code), seed)


def _points(grid: Mapping[str, Any], common: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The options, and the tables set by the axes, for each point of a grid."""
    axes = [_as_list(axis, grid.get(axis)) for axis in AXES]
    for table in (common, grid.get("options", {})):
        if not isinstance(table, Mapping):
            raise OptionError(f"`options` of an experiment must be tables such as [options.training]; got {table!r}.")
    for data, model, method, penalty, sparsity in product(*axes):
        chosen: dict[str, Any] = {
            "data": _without_none({"name": data}),
            "model": _without_none({"name": model}),
            "method": _without_none({"name": method, "penalty": penalty, "sparsity": sparsity}),
            **_without_none({"until": grid.get("until")}),
        }
        yield merge(common, grid.get("options", {})), chosen


def _seeds(given: Any) -> Sequence[int]:
    """The seeds, from their number or a list."""
    seeds = range(given) if type(given) is int else given
    if not (isinstance(seeds, range | list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds)):
        raise OptionError(f"`seeds` of a grid must be a number of seeds or a list such as [0, 2]; got {given!r}.")
    return seeds


def _as_list(axis: str, value: Any) -> Sequence[Any]:
    if value == []:
        raise OptionError(f"`{axis}` of a grid must be a value or a non-empty list; got []. Omit it for the default.")
    return value if isinstance(value, list) else [value]


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value is not None}


def _value(run: Run, name: str) -> Any:
    recipe = run.recipe
    values = {"data": recipe.data.name, "model": recipe.model.name, "method": recipe.method.name, "seed": run.seed}
    return values[name] if name in values else recipe.to_mapping()["method"].get(name)


def _equals(found: Any, wanted: str) -> bool:
    """Whether a value equals a typed one; 0.90 equals 0.9."""
    try:
        return float(found) == float(wanted)
    except (TypeError, ValueError):
        return str(found) == wanted


def _check(table: Any, known: Sequence[str], kind: str) -> None:
    if not isinstance(table, Mapping):
        raise OptionError(f"A {kind} must be NAME = VALUE with one of {', '.join(known)}; got {table!r}.")
    if unknown_names := table.keys() - set(known):
        raise OptionError(unknown(kind, min(unknown_names), known))


def folders_of(experiment: Experiment, stores: Sequence[RunStore]) -> list[Path]:
    """The folders of an experiment's runs, from the first store that has the most of a run."""
    found = []
    for run in experiment.runs:
        places = [folder for store in stores if (folder := store.folder(run.recipe, run.seed)).recipe_file.exists()]
        done = [folder for folder in places if folder.result_file.exists()]
        if places:
            found.append((done or places)[0].path)
    return found

"""`Experiment`: a named list of runs, in the order of their worth, from a TOML file."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hypersparse import methods
from hypersparse.errors import OptionError, unknown
from hypersparse.recipe import Recipe, merge, parse_toml, resolve

AXES = ("data", "model", "method", "penalty", "sparsity")  # of a grid, the last one varying fastest
GRID_KEYS = (*AXES, "seeds", "until", "options")
KEYS = ("title", "grid", "options")


@dataclass(frozen=True)
class Run:
    """One recipe and seed."""

    recipe: Recipe
    seed: int

    def matches(self, wanted: Mapping[str, str]) -> bool:
        """Whether it has these values, such as data=cifar10."""
        return all(str(_value(self, name)) == value for name, value in wanted.items())


@dataclass(frozen=True)
class Experiment:
    """What a table or a figure needs."""

    name: str
    title: str
    runs: tuple[Run, ...]

    @classmethod
    def read(cls, path: Path) -> "Experiment":
        """From a TOML file with grids.

        A run that two of them name is there once, where it comes first, and ends with the later of its two ends.
        """
        try:
            tables = parse_toml(path.read_text(), str(path))
        except OSError as error:
            raise OptionError(f"The experiment {path} cannot be read: {error.strerror}.") from None
        _check(tables, KEYS, f"part of the experiment {path}")
        found: dict[tuple[str, int], Run] = {}
        for grid in tables.get("grid", []):
            _check(grid, GRID_KEYS, f"part of a grid in {path}")
            for run in _runs(grid, tables.get("options", {})):
                there = found.setdefault((run.recipe.label, run.seed), run)
                if there is not run and len(run.recipe.plan()) > len(there.recipe.plan()):
                    found[run.recipe.label, run.seed] = run
        if not found:
            raise OptionError(f"The experiment {path} has no runs; it needs a [[grid]] with a method.")
        return cls(path.stem, str(tables.get("title", path.stem)), tuple(found.values()))

    def only(self, wanted: Mapping[str, str]) -> "Experiment":
        """The runs with these values."""
        if strangers := wanted.keys() - {*AXES, "seed"}:
            raise OptionError(unknown("axis", min(strangers), (*AXES, "seed")))
        kept = tuple(run for run in self.runs if run.matches(wanted))
        if not kept:
            chosen = ", ".join(f"{name}={value}" for name, value in wanted.items())
            raise OptionError(f"No run of {self.name} has {chosen}.")
        return dataclasses.replace(self, runs=kept)


def parse_only(text: str | None) -> dict[str, str]:
    """Values of axes from `data=cifar10,model=resnet32`.

    >>> parse_only("data=cifar10,sparsity=0.98")
    {'data': 'cifar10', 'sparsity': '0.98'}
    """
    parts = [part.partition("=") for part in text.split(",")] if text else []
    if any(not equals for _, equals, _ in parts):
        raise OptionError(
            f"`--only` expects AXIS=VALUE with commas, such as data=cifar10,model=resnet32; got `{text}`."
        )
    return {name.strip(): value.strip() for name, _, value in parts}


def _runs(grid: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[Run]:
    seeds = grid.get("seeds", [0])
    axes = [_listed(grid.get(axis)) for axis in AXES]
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        for data, model, method, penalty, sparsity in product(*axes):
            prunes = any(field.name == "sparsity" for field in dataclasses.fields(methods.find(method or "art")))  # type: ignore[arg-type]
            chosen = {"name": method, "penalty": penalty, "sparsity": sparsity if prunes else None}
            tables: dict[str, Any] = {
                "data": _said({"name": data}),
                "model": _said({"name": model}),
                "method": _said(chosen),
                **_said({"until": grid.get("until")}),
            }
            yield Run(resolve(merge(merge(common, grid.get("options", {})), tables)), seed)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _said(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value is not None}


def _value(run: Run, name: str) -> Any:
    recipe = run.recipe
    values = {"data": recipe.data.name, "model": recipe.model.name, "method": recipe.method.name, "seed": run.seed}
    return values[name] if name in values else getattr(recipe.method, name, None)


def _check(table: Mapping[str, Any], known: Sequence[str], kind: str) -> None:
    if strangers := table.keys() - set(known):
        raise OptionError(unknown(kind, min(strangers), known))

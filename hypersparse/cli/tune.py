"""`hypersparse tune`: search the options of a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from hypersparse.analysis.plotting import write_tables
from hypersparse.cli.console import Console, table, table_console
from hypersparse.cli.formats import percent
from hypersparse.cli.one_by_one import OneByOne, recipe_and_images
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.recipe_options import RecipeOptions, parse_seeds
from hypersparse.cli.signals import stopped_by_signals
from hypersparse.cli.train import say_how_to_go_on
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.errors import OptionError
from hypersparse.integrations.optuna import Range, Study
from hypersparse.recipe import Recipe, merge
from hypersparse.storage.schemas import Result
from hypersparse.training.callbacks import Callback
from hypersparse.training.stop import Stopped, StopRequest

MOST_SHOWN = 10  # trials in the table


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is varied, and how often."""

    search: list[str] | None = option(
        None, "An option and its range: method.growth=1.1..1.4, method.strength=1e-5..1e-3:log, or "
        "training.schedule=cosine,multistep. Repeatable."
    )  # fmt: skip
    trials: int = option(20, "Trials in all, those of earlier starts included.", min=1)
    method: str | None = option(None, "art, gmp, ... or package.file:Class.")
    sparsity: float | None = option(None, "Fraction of weights removed, such as 0.98.")
    study: Path | None = option(None, "Folder of the search; by default in --runs-dir, by the recipe's name.")
    seed: str = option("0", "Random seed of the runs and of the search.")


@grouped
def tune(asked: Search, chosen: RecipeOptions, options: TrainingOptions) -> None:
    """Search the options of a recipe by their accuracy on held-out images. Needs the extra `tune` (Optuna).

    Trials below the median of the earlier ones are ended early. Without --validation a sixth of the training images is
    held out. The same command resumes.
    """
    (seed,) = parse_seeds(asked.seed)[:1]
    space = [Range.parse(text) for text in asked.search or ()]
    machine, console, stop = options.machine(), Console(), options.stop()
    recipe, dataset = recipe_and_images(chosen, options, machine, console, method=asked.method, sparsity=asked.sparsity)
    study = Study(asked.study or options.runs_dir / f"tune-{recipe.label}", space, recipe, seed=seed)
    one_by_one = OneByOne(console, machine, dataset, options, stop, seed, asked.trials)

    def train(recipe: Recipe, folder: Path, title: str, callback: Callback, stop: StopRequest) -> Result:
        return one_by_one(recipe, folder, title, callback=callback, stop=stop)

    try:
        with stopped_by_signals(stop):
            study.run(asked.trials, lambda values: with_values(recipe, values), train, stop)
    except Stopped:
        say_how_to_go_on(console, stop, study.folder)
        return
    _say(console, study)


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with some options changed, by names such as `method.growth`."""
    tables = recipe.to_mapping()
    for name, value in values.items():
        table, _, option = name.partition(".")
        if table not in tables or not isinstance(tables[table], Mapping):
            raise OptionError(f"`{name}` is no option of a recipe; options are in tables, such as method.growth.")
        tables = merge(tables, {table: {option: value}})
    changed = Recipe.from_mapping(tables, own_code=recipe.imported)
    return replace(changed, until=recipe.until)


def _say(console: Console, study: Study) -> None:
    trials = sorted(
        study.finished(), key=lambda trial: -1.0 if trial.accuracy is None else trial.accuracy, reverse=True
    )
    rows = [{"trial": each.number, **each.values, "held_out": each.accuracy, "state": each.state} for each in trials]
    (file,) = write_tables(study.folder, {"trials": pd.DataFrame(rows)})
    names = [each.name for each in study.space]
    shown = [
        (
            str(each.number),
            percent(each.accuracy) or "ended early",
            *(
                f"{each.values[name]:.4g}" if isinstance(each.values[name], float) else str(each.values[name])
                for name in names
            ),
        )
        for each in trials[:MOST_SHOWN]
    ]
    table_console().print(table(">trial", ">held out", *names, rows=shown))
    console.say(f"{len(trials)} trials, {sum(each.accuracy is None for each in trials)} ended early: {file}")
    if (best := study.best()) is not None:
        settings = " ".join(f"--set {name}={value}" for name, value in best.values.items())
        console.say(f"best:   {settings}")

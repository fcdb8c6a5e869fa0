"""`hypersparse tune`: search the options of a recipe."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hypersparse.analysis.plotting import write_tables
from hypersparse.analysis.tables import plain_text
from hypersparse.cli.console import Console, table, table_console
from hypersparse.cli.formats import percent
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.recipe_options import RecipeOptions
from hypersparse.cli.session import Search
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.integrations.optuna import Range, Study
from hypersparse.plurals import how_many

MOST_SHOWN = 10  # trials in the table


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What is varied, and how often."""

    search: list[str] | None = option(
        None, "An option and its range: method.growth=1.1..1.4, method.strength=1e-5..1e-3:log, or "
        "training.schedule=cosine,multistep. Repeatable."
    )  # fmt: skip
    trials: int = option(20, "Trials in all, those of earlier starts included.", min=1)
    method: str | None = option(None, "art, gmp, ... or package.file:Class.")
    sparsity: float | None = option(None, "Fraction of weights removed, such as 0.98.")
    study: Path | None = option(None, "Folder of the search; by default in --runs-dir, by the recipe's name.")
    seed: int = option(0, "Random seed of the runs and of the search.", min=0)


@grouped
def tune(asked: TuneOptions, chosen: RecipeOptions, options: TrainingOptions) -> None:
    """Search the options of a recipe by their accuracy on held-out images. Needs the extra `tune` (Optuna).

    Trials below the median of the earlier ones are ended early. Without --validation a sixth of the training images is
    held out. The same command resumes.
    """
    space = [Range.parse(text) for text in asked.search or ()]
    search = Search(chosen, options, asked.seed, method=asked.method, sparsity=asked.sparsity)
    recipe, session = search.recipe, search.session
    study = Study(asked.study or options.runs_dir / f"tune-{recipe.label}", space, recipe, seed=asked.seed)
    with session.stoppable(study.folder):
        train = search.trainer(asked.trials, noun="trial", done=len(study.finished()))
        study.run(asked.trials, train, session.stop)
    _say(session.console, study)


def _say(console: Console, study: Study) -> None:
    trials = sorted(study.finished(), key=lambda trial: trial.accuracy or 0.0, reverse=True)
    rows = [{"trial": each.number, **each.values, "held_out": each.accuracy, "state": each.state} for each in trials]
    (file,) = write_tables(study.folder, {"trials": pd.DataFrame(rows)})
    names = [each.name for each in study.space]
    shown = [
        (str(each.number), percent(each.accuracy) or "ended early", *(plain_text(each.values[name]) for name in names))
        for each in trials[:MOST_SHOWN]
    ]
    table_console().print(table(">trial", ">held out", *names, rows=shown))
    console.say(
        f"{how_many(len(trials), 'trial')}, {sum(each.accuracy is None for each in trials)} ended early: {file}"
    )
    if (best := study.best()) is not None:
        settings = " ".join(f"--set {name}={value}" for name, value in best.values.items())
        console.say(f"best:   {settings}")

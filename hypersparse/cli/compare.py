"""`hypersparse compare`: train a grid of methods, sparsities and seeds, and compare them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from hypersparse import methods as registry
from hypersparse.analysis import comparison
from hypersparse.analysis.paired import cells, paired
from hypersparse.analysis.plotting import use_own_settings
from hypersparse.cli.console import Console, table
from hypersparse.cli.cost import print_cost, total_time
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.recipe_options import Epochs, ModelAndData, RecipeOptions, Seeds, parse_seeds, parse_sparsities
from hypersparse.cli.report import write_report
from hypersparse.cli.session import Session
from hypersparse.cli.signals import exit_if_signalled
from hypersparse.cli.training_options import RunsOptions
from hypersparse.errors import OptionError, unknown
from hypersparse.plurals import how_many
from hypersparse.recipe import Recipe, own_code_of
from hypersparse.runs.epoch_times import Load, is_elsewhere
from hypersparse.runs.experiment import Run
from hypersparse.runs.forecast import cost_of
from hypersparse.runs.pack import REPORT
from hypersparse.runs.recipe_names import variants
from hypersparse.runs.sweep import job_of
from hypersparse.storage.files import make_folder
from hypersparse.storage.schemas import Result
from hypersparse.training.concurrency.concurrent_runs import Job, unfinished

THE_PAPERS = "art,snip,grasp,sratio,lth,imp,rigl"


@dataclass(frozen=True, kw_only=True)
class GridOptions(ModelAndData):
    """The recipes and seeds of a grid, and the folder of its tables."""

    methods: str = option(THE_PAPERS, "Names with commas; `hypersparse methods` lists them.")
    sparsities: str = option("0.9,0.95,0.98", "Fractions removed, with commas.", "--sparsity")
    seed: Seeds = "0-2"
    epochs: Epochs = None
    settings: list[str] | None = option(
        None, "Any option of all recipes, such as training.lr=0.05, or of one method's, such as art.growth=1.1.",
        "--set", metavar="TABLE.NAME=VALUE",
    )  # fmt: skip
    out: Path = option(Path("comparison"), "Folder for tables and figure.", "--out", "-o", file_okay=False)
    dry_run: bool = option(False, "Only print what would be trained and how long it takes.", "--dry-run")

    def recipes(self, runs_dir: Path) -> list[Recipe]:
        """A recipe for each method and sparsity; only one for a method without sparsity."""
        names, made = [name.strip() for name in self.methods.split(",")], dict[str, Recipe]()
        for name in names:
            if ":" not in name and name not in registry.names():
                raise OptionError(unknown("method", name, registry.names()))
            kind: Any = registry.find(name, own_code=[name])
            own = settings_for(name, self.settings or (), names)
            chosen = RecipeOptions(data=self.data, model=self.model, epochs=self.epochs, settings=own)
            prunes = any(field.name == "sparsity" for field in dataclasses.fields(kind))
            for sparsity in parse_sparsities(self.sparsities) if prunes else [None]:
                recipe = chosen.make(runs_dir, method=name, sparsity=sparsity)
                made[recipe.label] = recipe
        return list(made.values())


@grouped
def compare(options: RunsOptions, grid: GridOptions) -> None:
    """Compare methods fairly: the same data, network and seeds; mean and deviation, tables and a figure.

    The same command resumes after a stop, and trains only what is missing.
    """
    dry_run, recipes = grid.dry_run, grid.recipes(options.runs_dir)
    session = Session(options, options.machine(), options.stop(), jobs=options.jobs)
    if not (dry_run and is_elsewhere(session.machine)):
        session.machine.torch_device()
    load = session.loader(decode=not dry_run)
    if not dry_run:
        load(recipes[0])  # fails early if the data are missing
    runs = [Run(recipe, seed) for seed in parse_seeds(grid.seed) for recipe in recipes]
    jobs = [job_of(run, options.store) for run in runs]
    _print_missing(session, jobs, load, with_table=dry_run)
    if dry_run:
        return
    make_folder(grid.out)  # fails early if it cannot be made
    finished = [outcome for outcome in session.train_all(runs, load) if isinstance(outcome, dict)]
    if finished:
        _report(session.console, jobs, finished, grid.out, with_report=options.report)
    if missing := len(jobs) - len(finished):
        why = f"Stopped ({session.stop.reason}). " if session.stop.reason else ""
        session.console.print(f"{why}{missing} of {how_many(len(jobs), 'run')} missing; the same command goes on.")
        exit_if_signalled(session.stop)
        raise typer.Exit(2)


def _print_missing(session: Session, jobs: Sequence[Job], load: Load, *, with_table: bool) -> None:
    """Print how many runs are missing and what they cost."""
    missing, console = unfinished(jobs), session.console
    if not missing:
        console.print(f"{how_many(len(jobs), 'run')}, trained already")
        return
    found = cost_of(missing, session.machine, session.options.runs_dir, load=load)
    said = f"about {how_many(found.epochs, 'epoch')}, one after another: {total_time(found)}"
    console.print(f"{how_many(len(jobs), 'run')}, {len(missing)} to train: {said}")
    if with_table:
        print_cost(found, session.machine)


def settings_for(name: str, settings: Sequence[str], names: Sequence[str]) -> list[str]:
    """The settings of one method: `art.growth=1.1` is an option of ART, `training.lr=0.05` of all methods.

    >>> settings_for("art", ["art.growth=1.1", "rigl.adjust_every=50", "training.lr=0.05"], ["art", "rigl"])
    ['method.growth=1.1', 'training.lr=0.05']
    """
    own = []
    for setting in settings:
        first, dot, rest = setting.partition(".")
        if first == name:
            own.append(f"method{dot}{rest}")
        elif first not in names:
            own.append(setting)
    return own


def _report(
    console: Console, jobs: Sequence[Job], finished: Sequence[Result], output: Path, *, with_report: bool
) -> None:
    own_code = own_code_of(job.recipe for job in jobs)
    runs = comparison.collect(finished, variants([result["recipe"] for result in finished], own_code=own_code))
    recipe = jobs[0].recipe
    title = f"{recipe.data.name}, {recipe.model.name}: {how_many(len(finished), 'run')}"
    header, rows = comparison.grid(comparison.summarize(runs), first="[bold]{}[/]", second="[italic]{}[/]")
    console.print(table(*header, rows=rows))
    console.print("test accuracy of the last epoch, mean ± deviation; [bold]best[/], [italic]second best[/]")
    pairs = paired(runs)
    header, rows = cells(pairs[pairs["seeds"] > 1])  # a single seed adds nothing to the first table
    if rows:
        console.print(table(*header, rows=rows, title="against the best, seed by seed", title_justify="left"))
    use_own_settings()
    paths = comparison.write(output, runs, title)
    if with_report and write_report(console, output / REPORT, [job.folder for job in jobs]):
        paths.append(output / REPORT)
    console.say(f"files:  {', '.join(map(str, paths))}")

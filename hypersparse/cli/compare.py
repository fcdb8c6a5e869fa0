"""`hypersparse compare`: train a grid of methods, sparsities and seeds, and put them beside each other."""

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.table import Table

from hypersparse import methods as registry
from hypersparse.analysis import comparison
from hypersparse.analysis.paired import cells, paired
from hypersparse.analysis.plotting import use_own_settings
from hypersparse.cli.console import Console
from hypersparse.cli.cost import print_cost, total_time
from hypersparse.cli.grid import forecast
from hypersparse.cli.load_data import load_data
from hypersparse.cli.multi_run_display import print_failures
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.recipe_options import (
    DataName,
    Epochs,
    ModelName,
    Seeds,
    make_recipe,
    parse_seeds,
    parse_sparsities,
)
from hypersparse.cli.report import write_report
from hypersparse.cli.signals import exit_if_signalled, stopped_by_signals
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.data.dataset import Dataset
from hypersparse.errors import OptionError, unknown
from hypersparse.recipe import Recipe, own_code_of
from hypersparse.runs.epoch_times import is_elsewhere
from hypersparse.runs.forecast import cost_of
from hypersparse.runs.pack import REPORT
from hypersparse.runs.recipe_names import variants
from hypersparse.runs.sweep import noting
from hypersparse.storage.files import make_folder
from hypersparse.storage.schemas import Result
from hypersparse.training.concurrency.concurrent_runs import Job, train_together, unfinished
from hypersparse.training.stop import StopRequest

THE_PAPERS = "art,snip,grasp,sratio,lth,imp,rigl"


@grouped
def compare(
    options: TrainingOptions,
    data: DataName = None,
    model: ModelName = None,
    methods: Annotated[str, typer.Option("--methods", help="Names with commas; `hypersparse methods` lists them.")] = (
        THE_PAPERS
    ),
    sparsities: Annotated[str, typer.Option("--sparsity", help="Fractions removed, with commas.")] = "0.9,0.95,0.98",
    seed: Seeds = "0-2",
    epochs: Epochs = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TABLE.NAME=VALUE",
            help="Any option of all recipes, such as training.lr=0.05, or of one method's, such as art.growth=1.1.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", file_okay=False, help="Where tables and picture go.")] = Path(
        "comparison"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be trained and how long.")] = False,
) -> None:
    """Compare methods fairly: the same data, network and seeds; mean and deviation, tables and a picture.

    The same command goes on where it was stopped, and trains only what is missing.
    """
    names, runs_dir = [name.strip() for name in methods.split(",")], options.runs_dir
    recipes = make_grid(names, sparsities, data=data, model=model, epochs=epochs, settings=settings, runs_dir=runs_dir)
    machine, console, stop = options.machine(), Console(), options.stop()
    if not (dry_run and is_elsewhere(machine)):
        machine.torch_device()

    @cache
    def load() -> Dataset:
        return load_data(recipes[0], options.folders, quiet=not console.is_terminal)

    if not dry_run:
        load()  # says at once if the data are missing
    seeds = parse_seeds(seed)
    jobs = [Job(made, each, options.store.folder(made, each).path) for each in seeds for made in recipes]
    missing = unfinished(jobs)
    if missing:
        found = cost_of(missing, machine, runs_dir, load=lambda _: load())
        said = f"about {found.epochs} epochs, one after another: {total_time(found)}"
        console.print(f"{len(jobs)} runs, {len(missing)} of them to train: {said}")
        if dry_run:
            print_cost(found, machine)
    else:
        console.print(f"{len(jobs)} runs, all of them trained already")
    if dry_run:
        return
    make_folder(out)  # says now if it cannot be, not after the training
    display = forecast(console, jobs, machine, runs_dir)
    with stopped_by_signals(stop), options.trackers() as tell, display:
        watched = [replace(job, callback=tell(job, display.callback(job))) for job in jobs]
        results = train_together(
            watched,
            machine,
            load(),
            at_once=options.jobs,
            stop=stop,
            phase_cache=options.phase_cache,
            ended=noting(display.ended),
        )
    finished = [result for result in results if isinstance(result, dict)]
    _report(console, jobs, results, finished, out, with_report=options.report)
    if len(finished) < len(jobs):
        _say_what_is_missing(console, len(jobs) - len(finished), len(jobs), stop)


def make_grid(
    names: Sequence[str], sparsities: str, *, settings: Sequence[str] | None = None, **chosen: Any
) -> list[Recipe]:
    """A recipe for each method and sparsity; one only for a method that has no sparsity."""
    recipes: dict[str, Recipe] = {}
    for name in names:
        if ":" not in name and name not in registry.names():
            raise OptionError(unknown("method", name, registry.names()))
        prunes = any(field.name == "sparsity" for field in dataclasses.fields(registry.find(name, own_code=[name])))  # type: ignore[arg-type]
        own = settings_for(name, settings or (), names)
        for sparsity in parse_sparsities(sparsities) if prunes else [None]:
            made = make_recipe(method=name, sparsity=sparsity, settings=own, **chosen)
            recipes[made.label] = made
    return list(recipes.values())


def settings_for(name: str, settings: Sequence[str], names: Sequence[str]) -> list[str]:
    """The settings that concern a method: `art.growth=1.1` is one of ART's options, `training.lr=0.05` all methods'.

    >>> settings_for("art", ["art.growth=1.1", "rigl.adjust_every=50", "training.lr=0.05"], ["art", "rigl"])
    ['method.growth=1.1', 'training.lr=0.05']
    """
    own = []
    for setting in settings:
        table, dot, rest = setting.partition(".")
        if table == name:
            own.append(f"method{dot}{rest}")
        elif table not in names:
            own.append(setting)
    return own


def _report(
    console: Console,
    jobs: Sequence[Job],
    results: Sequence[Any],
    finished: Sequence[Result],
    output: Path,
    *,
    with_report: bool,
) -> None:
    print_failures(console, jobs, results)
    if finished:
        own_code = own_code_of(job.recipe for job in jobs)
        runs = comparison.collect(finished, variants([result["recipe"] for result in finished], own_code=own_code))
        recipe = jobs[0].recipe
        title = f"{recipe.data.name}, {recipe.model.name}: {len(finished)} runs"
        header, rows = comparison.grid(comparison.summarize(runs), first="[bold]{}[/]", second="[italic]{}[/]")
        table = Table(*header, box=None, pad_edge=False, header_style="dim")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print("test accuracy of the last epoch, mean ± deviation; [bold]best[/], [italic]second best[/]")
        _print_paired(console, paired(runs))
        use_own_settings()
        paths = comparison.write(output, runs, title)
        if with_report and write_report(console, output / REPORT, [job.folder for job in jobs]):
            paths.append(output / REPORT)
        files = ", ".join(str(path) for path in paths)
        console.print(f"files:  {files}", soft_wrap=True, markup=False, highlight=False)


def _say_what_is_missing(console: Console, missing: int, of: int, stop: StopRequest) -> None:
    why = f"Stopped ({stop.reason}). " if stop.reason else ""
    console.print(f"{why}{missing} of {of} runs are missing; the same command goes on.")
    exit_if_signalled(stop)
    raise typer.Exit(2)


def _print_paired(console: Console, pairs: pd.DataFrame) -> None:
    """Against the best, seed by seed; a single seed says nothing more than the table before."""
    header, rows = cells(pairs[pairs["seeds"] > 1])
    if rows:
        table = Table(*header, title="against the best, seed by seed", box=None, pad_edge=False, header_style="dim")
        table.title_justify = "left"
        for row in rows:
            table.add_row(*row)
        console.print(table)

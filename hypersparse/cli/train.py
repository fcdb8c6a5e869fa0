"""`hypersparse train`: train one or several runs, or resume them."""

import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.markup import escape

from hypersparse.cli.console import Console, table_console
from hypersparse.cli.formats import flops
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.recipe_options import RECIPE, RecipeOptions, Seeds, parse_seeds, parse_sparsities
from hypersparse.cli.report import write_report
from hypersparse.cli.results import outcome_table, results_table
from hypersparse.cli.session import Session
from hypersparse.cli.signals import stopped_by_signals
from hypersparse.cli.training_options import MACHINE, RunsOptions, exit_if_failed
from hypersparse.data.dataset import Dataset
from hypersparse.errors import OptionError
from hypersparse.recipe import Recipe
from hypersparse.runs.experiment import Run
from hypersparse.runs.pack import REPORT
from hypersparse.runs.sweep import job_of
from hypersparse.runs.torchrun import ranks_of_torchrun
from hypersparse.storage.schemas import Result
from hypersparse.training.stop import Stopped


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How the steps of a run are trained."""

    engine: str = option("auto", "eager, compiled, cudagraph, fused or auto.", panel=MACHINE)
    deterministic: bool = option(False, "Bit-identical on CUDA too, but slower.", "--deterministic", panel=MACHINE)
    threads: int | None = option(None, "CPU threads.", panel=MACHINE, min=1)
    on_collapse: str = option(
        "warn", "If a mask empties a layer or leaves no path to the output: warn, error or ignore.", panel=MACHINE
    )
    checkpoint_seconds: float = option(20.0, "Minimum time between checkpoints.", panel=MACHINE, min=0)


@grouped
def train(
    chosen: RecipeOptions,
    options: RunsOptions,
    steps: StepOptions,
    method: str | None = typer.Option(None, help="art, dense, ... or package.file:Class.", rich_help_panel=RECIPE),
    sparsity: str | None = typer.Option(
        None, help="Fraction of weights removed, such as 0.98; several as 0.9,0.98.", rich_help_panel=RECIPE
    ),
    seed: Seeds = "0",
    record: bool = typer.Option(True, help="Write record.npz, the data of figures.", rich_help_panel=MACHINE),
) -> None:
    """Train a sparse network. Without options: handwritten digits, ART, 95 % sparsity, half a minute.

    The same command resumes where it was stopped; the result of a finished run is shown again. Several seeds or
    sparsities (--seed 0-4 --sparsity 0.9,0.98) are trained concurrently on a GPU and share common phases.
    """
    sparsities = parse_sparsities(sparsity) if sparsity else [None]
    recipes = [chosen.make(options.runs_dir, method=method, sparsity=each) for each in sparsities]
    if steps.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    runs = [Run(recipe, number) for number in parse_seeds(seed) for recipe in recipes]
    machine = options.machine(**vars(steps))
    machine.torch_device()  # fails early if the GPU is missing
    with ranks_of_torchrun(machine, os.environ) as (ranks, machine):
        session = Session(options, machine, options.stop(), Console(quiet=not ranks.first), ranks, record, options.jobs)
        if ranks.several and len(runs) > 1:
            raise OptionError(
                f"Several processes train one run at a time; got {len(runs)}. Pass one seed and sparsity."
            )
        load = session.loader()
        dataset = ranks.after_first(lambda: load(recipes[0]))
        if len(runs) == 1:
            _train_one(runs[0], session, dataset, with_report=options.report)
        else:
            _train_several(runs, session, load, with_report=options.report)


def _train_one(run: Run, session: Session, dataset: Dataset, *, with_report: bool) -> None:
    job = job_of(run, session.options.store)
    title = f"{run.recipe.label} · seed {run.seed} · {session.machine.torch_device()}"
    try:
        with stopped_by_signals(session.stop):
            result = session.train_one(job, title, dataset=dataset)
    except Stopped:
        session.say_how_to_resume(job.folder)
        return  # and leave the process group in order
    if not session.ranks.first:
        return
    if with_report:
        write_report(session.console, job.folder / REPORT, [job.folder])
    _report(session.console, result, job.folder, dataset.shape)


def _train_several(runs: list[Run], session: Session, load: Callable[[Recipe], Dataset], *, with_report: bool) -> None:
    console, recipe, folder = session.console, runs[0].recipe, session.options.runs_dir
    console.say(f"{len(runs)} runs · {recipe.data.name} · {recipe.model.name} · {session.machine.torch_device()}")
    outcomes = session.train_all(runs, load)
    jobs = [job_of(run, session.options.store) for run in runs]
    table_console().print(results_table(jobs, outcomes))
    written = with_report and write_report(console, folder / REPORT, [job.folder for job in jobs])
    console.say(f"files:  {folder}{f' ({REPORT})' if written else ''}")
    if any(isinstance(outcome, Stopped) for outcome in outcomes):
        session.say_how_to_resume(folder)
    exit_if_failed(outcomes)


def _report(console: Console, result: Result, folder: Path, shape: tuple[int, ...]) -> None:
    console.print(outcome_table(result))
    epochs = ", ".join(f"{count} {name}" for name, count in result["epochs"].items())
    console.say(f"epochs: {epochs}; {result['wall_seconds']:.1f} s of training")
    if (cost := flops(result)) is not None:
        console.say(f"cost:   {cost}")
    names = ("recipe.toml", "log.jsonl", "timing.jsonl", "final.safetensors", "record.npz", "result.json", REPORT)
    there = ", ".join(name for name in names if (folder / name).exists())
    console.say(f"files:  {folder} ({there})")
    console.say("next:")
    for command, purpose in _next_commands(result, folder, shape):
        console.print(f"  {escape(command)}  [dim]{purpose}[/]", soft_wrap=True, highlight=False)


def _next_commands(result: Result, folder: Path, shape: tuple[int, ...]) -> list[tuple[str, str]]:
    run = shlex.quote(str(folder))
    show = (f"hypersparse show {run}", "curves and weights per layer")
    evaluate = (f"hypersparse evaluate {run}", "accuracy of the stored network")
    if result["until"]:
        go_on = re.sub(r" --until[= ]\S+", "", shlex.join(["hypersparse", *sys.argv[1:]]))
        return [(go_on, "the phases that are left"), show, evaluate]
    export = (f"hypersparse export {run} -o model.hsp", "the network in a small file")
    serve = ("hypersparse serve model.hsp", "try it on a page, beside the dense one")
    is_picture = len(shape) == 3 and shape[0] in (1, 3)
    return [show, export, serve if is_picture else evaluate]

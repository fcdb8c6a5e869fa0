"""`hypersparse train`: train a run, or several at once; or go on with them."""

import os
import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hypersparse.cli.console import Console, table_console
from hypersparse.cli.display import LiveDisplay, result_table
from hypersparse.cli.formats import flops
from hypersparse.cli.load_data import load_data
from hypersparse.cli.multi_run_display import SeveralRuns, names_of, print_failures, results_table
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.ranks import ranks_of_torchrun, started_as
from hypersparse.cli.recipe_options import RECIPE, RecipeOptions, Seeds, make_recipe, parse_seeds, parse_sparsities
from hypersparse.cli.report import write_report
from hypersparse.cli.signals import exit_if_signalled, stopped_by_signals
from hypersparse.cli.trackers import Tell
from hypersparse.cli.training_options import MACHINE, TrainingOptions
from hypersparse.data.dataset import Dataset
from hypersparse.distributed import Ranks
from hypersparse.errors import HypersparseError, OptionError
from hypersparse.runs.pack import REPORT
from hypersparse.storage.schemas import Result
from hypersparse.training.concurrency.concurrent_runs import Job, is_failure, train_together
from hypersparse.training.loop import train as train_run
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How the steps of a run are trained."""

    engine: Annotated[
        str,
        typer.Option("--engine", help="eager, compiled, cudagraph or auto.", rich_help_panel=MACHINE),
    ] = "auto"
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="The same bits on CUDA too, more slowly.", rich_help_panel=MACHINE),
    ] = False
    threads: Annotated[int | None, typer.Option("--threads", help="CPU threads.", min=1, rich_help_panel=MACHINE)] = (
        None
    )
    on_collapse: Annotated[
        str,
        typer.Option(
            "--on-collapse",
            help="When a mask leaves a layer without weights, or no path to the output: warn, error or ignore.",
            rich_help_panel=MACHINE,
        ),
    ] = "warn"
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Save at most this often.", min=0, rich_help_panel=MACHINE)
    ] = 20.0


@dataclass(frozen=True)
class Session:
    """What the runs of one command have in common."""

    console: Console
    machine: Machine
    ranks: Ranks
    dataset: Dataset
    stop: StopRequest
    options: TrainingOptions
    record: bool


@grouped
def train(
    chosen: RecipeOptions,
    options: TrainingOptions,
    steps: StepOptions,
    method: Annotated[
        str | None, typer.Option("--method", help="art, dense, ... or package.file:Class.", rich_help_panel=RECIPE)
    ] = None,
    sparsity: Annotated[
        str | None,
        typer.Option(
            "--sparsity",
            help="Fraction of weights removed, such as 0.98; several as 0.9,0.98.",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    seed: Seeds = "0",
    record: Annotated[
        bool, typer.Option(help="Leave record.npz, what figures need of every epoch.", rich_help_panel=MACHINE)
    ] = True,
) -> None:
    """Train a sparse network. Without options: handwritten digits, ART, 95 % sparsity, half a minute.

    The same command goes on where it was stopped; a finished run is only shown. Several seeds or sparsities
    (--seed 0-4 --sparsity 0.9,0.98) train side by side on a GPU and share what they have in common.
    """
    recipes = [
        make_recipe(**vars(chosen), method=method, sparsity=each, runs_dir=options.runs_dir)
        for each in parse_sparsities(sparsity)
    ]
    seeds = parse_seeds(seed)
    if steps.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    jobs = [Job(made, number, options.store.folder(made, number).path) for number in seeds for made in recipes]
    machine = options.machine(**vars(steps))
    machine.torch_device()  # a missing GPU is said before data is read
    with ranks_of_torchrun(machine) as (ranks, machine):
        stop, console = options.stop(), Console(quiet=not ranks.first)
        if ranks.several and len(jobs) > 1:
            raise OptionError(
                f"Several processes train one run at a time; got {len(jobs)}. Pass one seed and sparsity."
            )
        quiet = not (console.is_terminal and ranks.first)
        dataset = ranks.after_first(lambda: load_data(recipes[0], options.folders, quiet=quiet))
        session = Session(console, machine, ranks, dataset, stop, options, record)
        with options.trackers() if ranks.first else nullcontext() as tell:
            if len(jobs) == 1:
                _train_one(jobs[0], session, tell)
            elif tell:
                _train_several(jobs, session, tell)


def _train_one(job: Job, session: Session, tell: Tell | None) -> None:
    console, stop, options = session.console, session.stop, session.options
    display = LiveDisplay(console, f"{job.recipe.label} · seed {job.seed} · {session.machine.torch_device()}")
    try:
        with stopped_by_signals(stop), display:
            result = train_run(
                job.recipe,
                job.seed,
                session.machine,
                job.folder,
                dataset=session.dataset,
                callback=tell(job, display) if tell else None,
                stop=stop,
                phase_cache=options.phase_cache,
                record=session.record,
                ranks=session.ranks,
            )
    except Stopped:
        _say_how_to_go_on(console, stop, job.folder)
        return
    if not session.ranks.first:
        return
    if options.report:
        write_report(console, job.folder / REPORT, [job.folder])
    _report(console, result, job.folder, session.dataset.shape)


def _train_several(jobs: list[Job], session: Session, tell: Tell) -> None:
    console, stop, options = session.console, session.stop, session.options
    recipe, folder = jobs[0].recipe, options.runs_dir
    title = f"{len(jobs)} runs · {recipe.data.name} · {recipe.model.name} · {session.machine.torch_device()}"
    display = SeveralRuns(console, title)
    watched = [
        replace(job, callback=tell(job, display.row(name, job.folder)))
        for name, job in zip(names_of(jobs), jobs, strict=True)
    ]
    with stopped_by_signals(stop), display:
        results = train_together(
            watched,
            session.machine,
            session.dataset,
            at_once=options.jobs,
            stop=stop,
            phase_cache=options.phase_cache,
            record=session.record,
        )
    table_console().print(results_table(jobs, results))
    print_failures(console, jobs, results)
    failed = [error for error in results if is_failure(error)]
    for error in failed:
        if not isinstance(error, HypersparseError):
            raise error
    written = options.report and write_report(console, folder / REPORT, [job.folder for job in jobs])
    console.print(f"files:  {folder}{f' ({REPORT})' if written else ''}", markup=False, soft_wrap=True)
    if any(isinstance(result, Stopped) for result in results):
        _say_how_to_go_on(console, stop, folder)
    if failed:
        raise typer.Exit(2)


def _say_how_to_go_on(console: Console, stop: StopRequest, folder: Path) -> None:
    command = shlex.join([*started_as(), *sys.argv[1:]])
    sentence = f"Stopped ({stop.reason}) and saved in {folder}. To go on: {command}"
    console.print(sentence, markup=False, soft_wrap=True)
    exit_if_signalled(stop)


def _report(console: Console, result: Result, folder: Path, shape: tuple[int, ...]) -> None:
    console.print(result_table(result))
    epochs = ", ".join(f"{count} {name}" for name, count in result["epochs"].items())
    console.print(f"epochs: {epochs}; {result['wall_seconds']:.1f} s of training", highlight=False)
    if (cost := flops(result)) is not None:
        console.print(f"cost:   {cost}", highlight=False, soft_wrap=True)
    names = ("recipe.toml", "log.jsonl", "timing.jsonl", "final.safetensors", "record.npz", "result.json", REPORT)
    there = ", ".join(name for name in names if (folder / name).exists())
    console.print(f"files:  {folder} ({there})", markup=False, soft_wrap=True)
    console.print("next:")
    for command, purpose in _next_commands(result, folder, shape):
        console.print(f"  {escape(command)}  [dim]{purpose}[/]", soft_wrap=True, highlight=False)


def _next_commands(result: Result, folder: Path, shape: tuple[int, ...]) -> list[tuple[str, str]]:
    run = shlex.quote(str(folder))
    show = (f"hypersparse show {run}", "curves and weights per layer")
    evaluate = (f"hypersparse evaluate {run}", "accuracy of the stored network")
    if result["until"]:
        go_on = shlex.join(["hypersparse", *_without("--until", sys.argv[1:])])
        return [(go_on, "the phases that are left"), show, evaluate]
    export = (f"hypersparse export {run} -o model.hsp", "the network in a small file")
    serve = ("hypersparse serve model.hsp", "try it on a page, beside the dense one")
    is_picture = len(shape) == 3 and shape[0] in (1, 3)
    return [show, export, serve if is_picture else evaluate]


def _without(option: str, arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith(f"{option}="):
            skip = False
        elif argument == option:
            skip = True
        else:
            kept.append(argument)
    return kept

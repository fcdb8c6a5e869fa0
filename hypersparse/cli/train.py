"""`hypersparse train`: train one or several runs, or resume them."""

import os
import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.markup import escape

from hypersparse.cli.console import Console, table_console
from hypersparse.cli.display import LiveDisplay
from hypersparse.cli.formats import flops
from hypersparse.cli.grid import forecast
from hypersparse.cli.load_data import load_data
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.ranks import ranks_of_torchrun, started_as
from hypersparse.cli.recipe_options import RECIPE, RecipeOptions, Seeds, parse_seeds, parse_sparsities
from hypersparse.cli.report import write_report
from hypersparse.cli.results import outcome_table, print_failures, results_table
from hypersparse.cli.signals import exit_if_signalled, stopped_by_signals
from hypersparse.cli.trackers import Tell
from hypersparse.cli.training_options import MACHINE, TrainingOptions, exit_if_failed
from hypersparse.data.dataset import Dataset
from hypersparse.distributed import Ranks
from hypersparse.errors import OptionError
from hypersparse.runs.pack import REPORT
from hypersparse.storage.schemas import Result
from hypersparse.training.concurrency.concurrent_runs import Job, train_together
from hypersparse.training.loop import train as train_run
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How the steps of a run are trained."""

    engine: str = option("auto", "eager, compiled, cudagraph or auto.", panel=MACHINE)
    deterministic: bool = option(
        False, "Bit-identical results on CUDA too, more slowly.", "--deterministic", panel=MACHINE
    )
    threads: int | None = option(None, "CPU threads.", panel=MACHINE, min=1)
    on_collapse: str = option(
        "warn", "If a mask leaves a layer without weights, or no path to the output: warn, error or ignore.",
        panel=MACHINE,
    )  # fmt: skip
    checkpoint_seconds: float = option(20.0, "Minimum time between checkpoints.", panel=MACHINE, min=0)


@dataclass(frozen=True)
class Session:
    """What the runs of one command share."""

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
    seeds = parse_seeds(seed)
    if steps.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    jobs = [Job(made, number, options.store.folder(made, number).path) for number in seeds for made in recipes]
    machine = options.machine(**vars(steps))
    machine.torch_device()  # fails early if the GPU is missing
    with ranks_of_torchrun(machine) as (ranks, machine):
        stop, console = options.stop(), Console(quiet=not ranks.first)
        if ranks.several and len(jobs) > 1:
            raise OptionError(
                f"Several processes train one run at a time; got {len(jobs)}. Pass one seed and sparsity."
            )
        quiet = not (console.is_terminal and ranks.first)
        dataset = ranks.after_first(
            lambda: load_data(recipes[0], options.folders, quiet=quiet, machine=machine, console=console)
        )
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
        say_how_to_go_on(console, stop, job.folder)
        return
    if not session.ranks.first:
        return
    if options.report:
        write_report(console, job.folder / REPORT, [job.folder])
    _report(console, result, job.folder, session.dataset.shape)


def _train_several(jobs: list[Job], session: Session, tell: Tell) -> None:
    console, stop, options = session.console, session.stop, session.options
    recipe, folder = jobs[0].recipe, options.runs_dir
    console.say(f"{len(jobs)} runs · {recipe.data.name} · {recipe.model.name} · {session.machine.torch_device()}")
    display = forecast(console, jobs, session.machine, folder)
    with stopped_by_signals(stop), display:
        results = train_together(
            [replace(job, callback=tell(job, display.callback(job))) for job in jobs],
            session.machine,
            session.dataset,
            concurrency=options.jobs,
            stop=stop,
            phase_cache=options.phase_cache,
            record=session.record,
            ended=display.ended,
        )
    table_console().print(results_table(jobs, results))
    print_failures(console, jobs, results)
    written = options.report and write_report(console, folder / REPORT, [job.folder for job in jobs])
    console.say(f"files:  {folder}{f' ({REPORT})' if written else ''}")
    if any(isinstance(result, Stopped) for result in results):
        say_how_to_go_on(console, stop, folder)
    exit_if_failed(results)


def say_how_to_go_on(console: Console, stop: StopRequest, folder: Path) -> None:
    """Print the command that resumes what was stopped."""
    command = shlex.join([*started_as(), *sys.argv[1:]])
    console.say(f"Stopped ({stop.reason}) and saved in {folder}. To go on: {command}")
    exit_if_signalled(stop)


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

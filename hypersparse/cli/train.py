"""`hypersparse train`: train a run, or several at once; or go on with them."""

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hypersparse.cli.console import Console, table_console
from hypersparse.cli.display import LiveDisplay, load_data, result_table
from hypersparse.cli.formats import flops
from hypersparse.cli.machine_options import MACHINE, CompilerCache, Device, Precision, keep_compiled
from hypersparse.cli.multi_run_display import SeveralRuns, names_of, print_failures, results_table
from hypersparse.cli.recipe_options import (
    AblationName,
    DataDir,
    DataName,
    Epochs,
    ModelName,
    RecipeFile,
    RunsDir,
    Settings,
    Start,
    Until,
    Validation,
    data_folders,
    make_recipe,
    parse_seconds,
    parse_seeds,
    parse_sparsities,
)
from hypersparse.cli.report import WithReport, write_report
from hypersparse.cli.signals import exit_if_signalled, stopped_by_signals
from hypersparse.cli.trackers import Mlflow, Tell, TensorBoard, TensorBoardDir, Wandb, live_views
from hypersparse.cli.trust import TrustCode
from hypersparse.data.dataset import Dataset
from hypersparse.errors import HypersparseError
from hypersparse.runs.pack import REPORT
from hypersparse.runs.store import PHASE_CACHE, RunStore
from hypersparse.storage.schemas import Result
from hypersparse.training.concurrency.concurrent_runs import Job, is_failure, train_together
from hypersparse.training.loop import train as train_run
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest


def train(
    data: DataName = None,
    model: ModelName = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="art, dense, ... or package.file:Class.", rich_help_panel="What is trained"),
    ] = None,
    sparsity: Annotated[
        str | None,
        typer.Option(
            "--sparsity",
            help="Fraction of weights removed, such as 0.98; several as 0.9,0.98.",
            rich_help_panel="What is trained",
        ),
    ] = None,
    seed: Annotated[str, typer.Option("--seed", help="Same seed, same result; several as 0-4 or 0,2.")] = "0",
    epochs: Epochs = None,
    validation: Validation = None,
    until: Until = None,
    ablation: AblationName = None,
    init_from: Start = None,
    recipe: RecipeFile = None,
    trust_code: TrustCode = False,
    settings: Settings = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
    device: Device = "auto",
    precision: Precision = "fp32",
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            help="eager, compiled, captured (one CUDA graph a step) or auto.",
            rich_help_panel=MACHINE,
        ),
    ] = "auto",
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="The same bits on CUDA too, more slowly.", rich_help_panel=MACHINE),
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads.", min=1, rich_help_panel=MACHINE)
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once",
            help="How many of several runs share the device; by default a short trial finds what is fastest.",
            min=1,
            rich_help_panel=MACHINE,
        ),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option("--stop-after", help="Save and stop after this time, such as 9m.", rich_help_panel=MACHINE),
    ] = None,
    compiler_cache: CompilerCache = None,
    on_collapse: Annotated[
        str,
        typer.Option(
            "--on-collapse",
            help="When a mask leaves a layer without weights, or no path to the output: warn, error or ignore.",
            rich_help_panel=MACHINE,
        ),
    ] = "warn",
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Save at most this often.", min=0, rich_help_panel=MACHINE)
    ] = 20.0,
    record: Annotated[
        bool,
        typer.Option(help="Leave record.npz, what figures need of every epoch.", rich_help_panel=MACHINE),
    ] = True,
    tensorboard: TensorBoard = False,
    tensorboard_dir: TensorBoardDir = None,
    wandb: Wandb = None,
    mlflow: Mlflow = None,
    report: WithReport = True,
) -> None:
    """Train a sparse network. Without options: handwritten digits, ART, 95 % sparsity, half a minute.

    The same command goes on where it was stopped; a finished run is only shown. Several seeds or sparsities
    (--seed 0-4 --sparsity 0.9,0.98) train side by side on a GPU and share what they have in common.
    """
    recipes = [
        make_recipe(
            data=data,
            model=model,
            method=method,
            sparsity=chosen,
            epochs=epochs,
            validation=validation,
            until=until,
            ablation=ablation,
            init_from=init_from,
            recipe=recipe,
            trust_code=trust_code,
            settings=settings,
            runs_dir=runs_dir,
        )
        for chosen in parse_sparsities(sparsity)
    ]
    seeds = parse_seeds(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    keep_compiled(compiler_cache)
    machine = Machine(
        device=device,
        precision=precision,  # type: ignore[arg-type]  # checked by Machine
        engine=engine,  # type: ignore[arg-type]
        deterministic=deterministic,
        threads=threads,
        checkpoint_seconds=checkpoint_seconds,
        on_collapse=on_collapse,  # type: ignore[arg-type]
    )
    machine.torch_device()  # a missing GPU is said before data is read
    stop = StopRequest(parse_seconds(stop_after) if stop_after else None)
    console = Console()
    dataset = load_data(recipes[0], data_folders(data_dir), quiet=not console.is_terminal)
    store = RunStore(runs_dir)
    jobs = [Job(made, number, store.folder(made, number).path) for number in seeds for made in recipes]
    views = live_views(
        runs_dir, to_tensorboard=tensorboard, tensorboard_dir=tensorboard_dir, to_wandb=wandb, to_mlflow=mlflow
    )
    with views as tell:
        if len(jobs) == 1:
            _train_one(console, jobs[0], machine, dataset, stop, runs_dir, tell, record=record, report=report)
        else:
            _train_several(console, jobs, machine, dataset, stop, runs_dir, at_once, tell, record=record, report=report)


def _train_one(
    console: Console,
    job: Job,
    machine: Machine,
    dataset: Dataset,
    stop: StopRequest,
    runs_dir: Path,
    tell: Tell,
    *,
    record: bool,
    report: bool,
) -> None:
    display = LiveDisplay(console, f"{job.recipe.label} · seed {job.seed} · {machine.torch_device()}")
    try:
        with stopped_by_signals(stop), display:
            result = train_run(
                job.recipe,
                job.seed,
                machine,
                job.folder,
                dataset=dataset,
                watcher=tell(job, display),
                stop=stop,
                stages=runs_dir / PHASE_CACHE,
                record=record,
            )
    except Stopped:
        _say_how_to_go_on(console, stop, job.folder)
        return
    if report:
        write_report(console, job.folder / REPORT, [job.folder])
    _report(console, result, job.folder, dataset.shape)


def _train_several(
    console: Console,
    jobs: list[Job],
    machine: Machine,
    dataset: Dataset,
    stop: StopRequest,
    runs_dir: Path,
    at_once: int | None,
    tell: Tell,
    *,
    record: bool,
    report: bool,
) -> None:
    recipe = jobs[0].recipe
    title = f"{len(jobs)} runs · {recipe.data.name} · {recipe.model.name} · {machine.torch_device()}"
    display = SeveralRuns(console, title)
    watched = [
        replace(job, watcher=tell(job, display.row(name, job.folder)))
        for name, job in zip(names_of(jobs), jobs, strict=True)
    ]
    with stopped_by_signals(stop), display:
        results = train_together(
            watched, machine, dataset, at_once=at_once, stop=stop, stages=runs_dir / PHASE_CACHE, record=record
        )
    table_console().print(results_table(jobs, results))
    print_failures(console, jobs, results)
    failed = [error for error in results if is_failure(error)]
    for error in failed:
        if not isinstance(error, HypersparseError):
            raise error
    written = report and write_report(console, runs_dir / REPORT, [job.folder for job in jobs])
    console.print(f"files:  {runs_dir}{f' ({REPORT})' if written else ''}", markup=False, soft_wrap=True)
    if any(isinstance(result, Stopped) for result in results):
        _say_how_to_go_on(console, stop, runs_dir)
    if failed:
        raise typer.Exit(2)


def _say_how_to_go_on(console: Console, stop: StopRequest, folder: Path) -> None:
    command = shlex.join(["hypersparse", *sys.argv[1:]])
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

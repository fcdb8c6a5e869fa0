"""`hypersparse sweep`: train an experiment, as far as the time goes."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hypersparse.cli.console import Console
from hypersparse.cli.cost import print_cost
from hypersparse.cli.grid import Grid, forecast
from hypersparse.cli.load_data import load_data
from hypersparse.cli.multi_run_display import print_failures
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.report import write_report
from hypersparse.cli.signals import exit_if_signalled, stopped_by_signals
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.cli.trust import TrustCode, allowed
from hypersparse.data.dataset import Dataset
from hypersparse.errors import HypersparseError, OptionError, unknown
from hypersparse.integrations.ray import RayCluster
from hypersparse.recipe import Recipe
from hypersparse.runs.epoch_times import is_elsewhere
from hypersparse.runs.experiment import Experiment, folders_of, named_code, parse_only
from hypersparse.runs.forecast import cost_of
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import Executor, LocalExecutor, images_of, job_of, keep_finished, missing
from hypersparse.runs.sweep import sweep as train_all
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.concurrent_runs import Job, Outcome, is_failure
from hypersparse.training.stop import Stopped
from hypersparse.zoo.network_exporter import Keep, networks_kept

EXECUTORS = ("local", "ray")
RAY = "On a cluster"


@grouped
def sweep(
    experiment: Annotated[Path, typer.Argument(help="A TOML file such as experiments/accuracy.toml.")],
    options: TrainingOptions,
    only: Annotated[
        str | None, typer.Option("--only", help="Some of its runs: data=cifar10,model=resnet32,method=art,seed=0.")
    ] = None,
    trust_code: TrustCode = False,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            file_okay=False,
            help="Finished runs are copied here without weights; those there count as done.",
        ),
    ] = None,
    networks: Annotated[
        Path | None,
        typer.Option(
            "--networks",
            file_okay=False,
            help="Sparse networks of finished runs are written here as .hsp files of kilobytes.",
        ),
    ] = None,
    executor: Annotated[
        str, typer.Option("--executor", help="local, or ray: a cluster that shares the folders.", rich_help_panel=RAY)
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address",
            envvar="RAY_ADDRESS",
            help="HOST:PORT, or auto for one that runs here; otherwise this machine's cores and GPUs.",
            rich_help_panel=RAY,
        ),
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option("--gpus-per-run", help="1 by default; 0.25 lets four runs share one.", rich_help_panel=RAY),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what is missing and what it costs.")] = False,
) -> None:
    """Train what is missing of an experiment, in the order of worth, several runs at once, and write its report.

    The same command goes on after any stop. A run that fails is named at the end; the others go on.
    """
    own_code = allowed(named_code(experiment), trust=trust_code)
    found = Experiment.read(experiment, own_code=own_code).only(parse_only(only))
    _check_executor(executor, gpus_per_run, options.compiler_cache)
    machine, runs_dir = options.machine(), options.runs_dir
    if not is_elsewhere(machine) if dry_run else executor == "local":
        machine.torch_device()
    console, store, loaded = Console(), options.store, dict[str, Dataset]()

    def load(recipe: Recipe) -> Dataset:
        key = images_of(recipe)
        if key not in loaded:
            loaded.clear()  # one at a time in memory
            loaded[key] = load_data(recipe, options.folders, quiet=not console.is_terminal)
        return loaded[key]

    if results and not dry_run:
        keep_finished(found.runs, store, results)  # of a sweep that was killed
    left = missing(found.runs, store, results)
    console.print(f"[bold]{escape(found.title)}[/]: {len(found.runs)} runs, {len(left)} to train", highlight=False)
    jobs = [job_of(run, store) for run in left]
    if dry_run:
        print_cost(cost_of(jobs, machine, runs_dir, results=results, load=load), machine)
        return
    stop = options.stop()
    keeping = networks_kept(partial(_say, console), networks, options.data_dir, found.runs, store, stop)
    if not left:
        with stopped_by_signals(stop), keeping:
            pass
        _write_page(console, found, runs_dir, results, wanted=options.report)
        exit_if_signalled(stop)
        return
    display = forecast(console, jobs, machine, runs_dir, results=results)
    workers: AbstractContextManager[Executor] = (
        RayCluster(machine, folders=options.folders, address=ray_address, gpus=gpus_per_run, at_once=options.jobs)
        if executor == "ray"
        else nullcontext(LocalExecutor(machine, load, options.jobs))
    )
    with stopped_by_signals(stop), keeping as keep, options.trackers() as tell, workers as chosen, display:

        def callback(job: Job) -> Callback:
            return tell(job, display.callback(job))

        ended = partial(_ended, display=display, keep=keep)
        outcomes = train_all(
            left,
            chosen,
            store,
            phase_cache=options.phase_cache,
            results=results,
            stop=stop,
            callback=callback,
            ended=ended,
        )
    _write_page(console, found, runs_dir, results, wanted=options.report)
    _report(console, jobs, outcomes)
    exit_if_signalled(stop)


def _say(console: Console, words: str) -> None:
    console.print(words, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _ended(job: Job, outcome: Outcome, *, display: Grid, keep: Keep | None) -> None:
    display.ended(job, outcome)
    if keep and isinstance(outcome, dict):
        keep(job.folder)


def _write_page(console: Console, found: Experiment, runs_dir: Path, results: Path | None, *, wanted: bool) -> None:
    """The report of all runs of the experiment that are there, as a page named after it."""
    stores = [RunStore(folder) for folder in (runs_dir, results) if folder is not None]
    page = runs_dir / f"{found.name}.html"
    if wanted and write_report(console, page, folders_of(found, stores)):
        console.print(f"report: {page}", markup=False, highlight=False, soft_wrap=True)


def _check_executor(executor: str, gpus_per_run: float | None, compiler_cache: Path | None) -> None:
    if executor not in EXECUTORS:
        raise OptionError(unknown("executor", executor, EXECUTORS))
    if executor == "local" and gpus_per_run is not None:
        raise OptionError("`--gpus-per-run` is for `--executor ray`; on one device `--jobs` says how many share it.")
    if executor == "ray" and compiler_cache is not None:
        raise OptionError(
            "`--compiler-cache` is for `--executor local`; on the machines of a cluster set TORCHINDUCTOR_CACHE_DIR "
            "and TRITON_CACHE_DIR."
        )


def _report(console: Console, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    done = sum(isinstance(outcome, dict) for outcome in outcomes)
    stopped = sum(isinstance(outcome, Stopped) for outcome in outcomes)
    failed = [outcome for outcome in outcomes if is_failure(outcome)]
    print_failures(console, jobs, outcomes)
    console.print(f"{done} runs finished, {stopped} to go on with, {len(failed)} failed", highlight=False)
    if stopped or failed:
        console.print("The same command goes on with what is missing.")
    for error in failed:
        if not isinstance(error, HypersparseError):
            raise error
    if failed:
        raise typer.Exit(2)

"""`hypersparse sweep`: train the missing runs of an experiment."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hypersparse.cli.console import Console
from hypersparse.cli.cost import print_cost
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.report import write_report
from hypersparse.cli.session import Session
from hypersparse.cli.signals import exit_if_signalled
from hypersparse.cli.training_options import RunsOptions, exit_if_failed
from hypersparse.cli.trust import TrustCode, allowed
from hypersparse.errors import OptionError, unknown
from hypersparse.integrations.ray import RayCluster
from hypersparse.plurals import how_many
from hypersparse.runs.epoch_times import is_elsewhere
from hypersparse.runs.experiment import Experiment, folders_of, named_code, parse_only
from hypersparse.runs.forecast import cost_of
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import Executor, job_of, keep_finished, missing
from hypersparse.training.concurrency.concurrent_runs import Outcome, is_failure
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped

EXECUTORS = ("local", "ray")
RAY = "On a cluster"


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The runs of an experiment to train, the folders they go to, and the cluster."""

    only: str | None = option(None, "Some of its runs: data=cifar10,model=resnet32,method=art,seed=0.")
    trust_code: TrustCode = False
    results: Path | None = option(
        None, "Finished runs are copied here without weights; those there count as done.", file_okay=False
    )
    executor: str = option("local", "local, or ray: a cluster that shares the folders.", panel=RAY)
    ray_address: str | None = option(
        None, "HOST:PORT, or auto for one that runs here; otherwise this machine's cores and GPUs.",
        panel=RAY, envvar="RAY_ADDRESS",
    )  # fmt: skip
    gpus_per_run: float | None = option(None, "1 by default; 0.25 lets four runs share one.", panel=RAY)
    dry_run: bool = option(False, "Only print what is missing and what it costs.", "--dry-run")

    def check(self, compiler_cache: Path | None) -> None:
        """Raise an error for options that contradict the executor."""
        if self.executor not in EXECUTORS:
            raise OptionError(unknown("executor", self.executor, EXECUTORS))
        if self.executor == "local" and self.gpus_per_run is not None:
            raise OptionError(
                "`--gpus-per-run` is for `--executor ray`; on one device `--jobs` says how many share it."
            )
        if self.executor == "ray" and compiler_cache is not None:
            raise OptionError(
                "`--compiler-cache` is for `--executor local`; on the machines of a cluster set "
                "TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR."
            )

    def cluster(self, options: RunsOptions, machine: Machine) -> AbstractContextManager[Executor | None]:
        """The cluster that trains the runs; None for this machine."""
        if self.executor == "local":
            return nullcontext()
        address, gpus = self.ray_address, self.gpus_per_run
        return RayCluster(machine, folders=options.folders, address=address, gpus=gpus, concurrency=options.jobs)


@grouped
def sweep(
    experiment: Annotated[Path, typer.Argument(help="A TOML file such as experiments/accuracy.toml.")],
    options: RunsOptions,
    chosen: SweepOptions,
) -> None:
    """Train the missing runs of an experiment by priority, several concurrently, and write its report.

    The same command resumes after any stop. A failed run is named at the end; the others continue.
    """
    own_code = allowed(named_code(experiment), trust=chosen.trust_code)
    found = Experiment.read(experiment, own_code=own_code).only(parse_only(chosen.only))
    chosen.check(options.compiler_cache)
    results, dry_run, store = chosen.results, chosen.dry_run, options.store
    session = Session(options, options.machine(), options.stop(), jobs=options.jobs)
    machine, console = session.machine, session.console
    if not is_elsewhere(machine) if dry_run else chosen.executor == "local":
        machine.torch_device()
    load = session.loader(decode=not dry_run)
    if results and not dry_run:
        keep_finished(found.runs, store, results)  # of a sweep that was killed
    left = missing(found.runs, store, results)
    console.print(
        f"[bold]{escape(found.title)}[/]: {how_many(len(found.runs), 'run')}, {len(left)} to train", highlight=False
    )
    if dry_run:
        jobs = [job_of(run, store) for run in left]
        print_cost(cost_of(jobs, machine, store.root, results=results, load=load), machine)
        return
    outcomes = []
    if left:
        with chosen.cluster(options, machine) as cluster:
            outcomes = session.train_all(left, load, executor=cluster, results=results)
    page, stores = store.root / f"{found.name}.html", [store, *([RunStore(results)] if results else [])]
    if options.report and write_report(console, page, folders_of(found, stores)):
        console.say(f"report: {page}")
    if left:
        _report(console, outcomes)
    exit_if_signalled(session.stop)


def _report(console: Console, outcomes: Sequence[Outcome]) -> None:
    done = sum(isinstance(outcome, dict) for outcome in outcomes)
    stopped = sum(isinstance(outcome, Stopped) for outcome in outcomes)
    failed = sum(map(is_failure, outcomes))
    console.say(f"{how_many(done, 'run')} finished, {stopped} to go on with, {failed} failed")
    if stopped or failed:
        console.say("The same command goes on with what is missing.")
    exit_if_failed(outcomes)

"""Where and how runs are trained: options of the commands that train."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hypersparse.cli.load_data import DataDir, data_folders
from hypersparse.cli.option_groups import option
from hypersparse.cli.recipe_options import RunsDir, parse_seconds
from hypersparse.errors import HypersparseError
from hypersparse.runs.pack import REPORT
from hypersparse.runs.store import PHASE_CACHE, RunStore
from hypersparse.storage.files import make_folder
from hypersparse.training.concurrency.concurrent_runs import Outcome, is_failure
from hypersparse.training.machine import Machine
from hypersparse.training.stop import StopRequest

MACHINE = "Where it is trained"
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 or auto.", rich_help_panel=MACHINE)]
Precision = Annotated[str, typer.Option("--precision", help="fp32, tf32 or bf16.", rich_help_panel=MACHINE)]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options, and the objects they describe."""

    data_dir: DataDir = None
    runs_dir: RunsDir = Path("runs")
    device: Device = "auto"
    precision: Precision = "fp32"
    stream: str = option(
        "auto",
        "Stream the images instead of keeping them on the device: always, never, or auto if they take more than "
        "--memory-share. The results are the same.",
        panel=MACHINE,
    )
    memory_share: float = option(0.5, "Share of the free memory of the device for a data set.", panel=MACHINE)
    workers: int | None = option(
        None, "Processes that decode streamed images; by default one for each core, at most 16.", panel=MACHINE, min=0
    )
    compiler_cache: Path | None = option(
        None, "Folder of compiled code, for all machines with the same GPU and torch.", panel=MACHINE, file_okay=False
    )
    stop_after: str | None = option(None, "Save and stop after this time, such as 9m.", panel=MACHINE)
    track: list[str] | None = option(
        None,
        "tensorboard (event files in RUNS-DIR/tensorboard, or tensorboard:FOLDER), wandb:PROJECT or mlflow:URI. "
        "Repeatable.",
        panel="Trackers", metavar="NAME[:PLACE]",
    )  # fmt: skip

    def machine(self, **more: Any) -> Machine:
        """The machine; also sets the folder for compiled code."""
        keep_compiled(self.compiler_cache)
        own = {name: getattr(self, name) for name in ("device", "precision", "stream", "memory_share", "workers")}
        return Machine(**own, **more)

    def stop(self) -> StopRequest:
        """A request that is due after the given time."""
        return StopRequest(parse_seconds(self.stop_after) if self.stop_after else None)

    @property
    def store(self) -> RunStore:
        """The runs."""
        return RunStore(self.runs_dir)

    @property
    def folders(self) -> list[Path]:
        """The folders to look for data sets."""
        return data_folders(self.data_dir)

    @property
    def phase_cache(self) -> Path:
        """The folder of phase ends that runs share."""
        return self.runs_dir / PHASE_CACHE


@dataclass(frozen=True, kw_only=True)
class RunsOptions(TrainingOptions):
    """The same for commands that train several runs at once, and report them."""

    jobs: int | None = option(
        None, "Concurrent runs; by default a short trial finds the fastest number.", panel=MACHINE, min=1
    )
    report: bool = option(True, f"Write {REPORT}, a page with tables and charts.", "--report/--no-report")


def keep_compiled(folder: Path | None) -> None:
    """Let torch and triton store compiled code in a folder; None keeps their own folders."""
    if folder is None:
        return
    make_folder(folder)  # fails here if it cannot be made, not in the first step
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.absolute() / "torch")
    os.environ["TRITON_CACHE_DIR"] = str(folder.absolute() / "triton")


def exit_if_failed(outcomes: Sequence[Outcome]) -> None:
    """Raise unexpected errors of runs; end with exit code 2 if a run failed."""
    failed = [outcome for outcome in outcomes if is_failure(outcome)]
    for error in failed:
        if not isinstance(error, HypersparseError):
            raise error
    if failed:
        raise typer.Exit(2)

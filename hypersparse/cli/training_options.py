"""How and where runs are trained: the options that `train`, `compare` and `sweep` have in common."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hypersparse.cli.load_data import DataDir, data_folders
from hypersparse.cli.recipe_options import RunsDir, parse_seconds
from hypersparse.cli.report import WithReport
from hypersparse.cli.trackers import Tell, Track, trackers
from hypersparse.runs.store import PHASE_CACHE, RunStore
from hypersparse.storage.files import make_folder
from hypersparse.training.machine import Machine
from hypersparse.training.stop import StopRequest

MACHINE = "Where it is trained"
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 or auto.", rich_help_panel=MACHINE)]
Precision = Annotated[str, typer.Option("--precision", help="fp32, tf32 or bf16.", rich_help_panel=MACHINE)]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of the three, and what they make."""

    data_dir: DataDir = None
    runs_dir: RunsDir = Path("runs")
    device: Device = "auto"
    precision: Precision = "fp32"
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            help="Concurrent runs on the device or the cluster; by default a short trial finds what is fastest.",
            min=1,
            rich_help_panel=MACHINE,
        ),
    ] = None
    compiler_cache: Annotated[
        Path | None,
        typer.Option(
            "--compiler-cache",
            file_okay=False,
            help="Keep what is compiled here; the folder can be taken to another machine with the same GPU and torch.",
            rich_help_panel=MACHINE,
        ),
    ] = None
    stop_after: Annotated[
        str | None,
        typer.Option("--stop-after", help="Save and stop after this time, such as 9m.", rich_help_panel=MACHINE),
    ] = None
    track: Track = None
    report: WithReport = True

    def machine(self, **more: Any) -> Machine:
        """The machine; what it compiles is kept where that was asked for."""
        keep_compiled(self.compiler_cache)
        return Machine(device=self.device, precision=self.precision, **more)  # type: ignore[arg-type]  # it checks

    def stop(self) -> StopRequest:
        """Stops after the time that was given, or when a signal asks for it."""
        return StopRequest(parse_seconds(self.stop_after) if self.stop_after else None)

    def trackers(self) -> AbstractContextManager[Tell]:
        """The trackers that were asked for, while the block lasts."""
        return trackers(self.track or (), self.runs_dir)

    @property
    def store(self) -> RunStore:
        """Where runs are."""
        return RunStore(self.runs_dir)

    @property
    def folders(self) -> list[Path]:
        """Where data sets are looked for."""
        return data_folders(self.data_dir)

    @property
    def phase_cache(self) -> Path:
        """Where ends of phases are kept for other runs."""
        return self.runs_dir / PHASE_CACHE


def keep_compiled(folder: Path | None) -> None:
    """Have torch and triton keep what they compile in a folder, and look there first; None leaves it to them."""
    if folder is None:
        return
    make_folder(folder)  # says now if it cannot be, not in the first step
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.absolute() / "torch")
    os.environ["TRITON_CACHE_DIR"] = str(folder.absolute() / "triton")

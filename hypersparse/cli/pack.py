"""`hypersparse pack` and `unpack`: move runs between machines as files of a limited size."""

from collections.abc import Sequence
from pathlib import Path

import typer

from hypersparse.cli.console import Console
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import RunError
from hypersparse.runs.pack import only_in, parse_bytes
from hypersparse.runs.pack import pack as pack_runs
from hypersparse.runs.pack import unpack as unpack_runs
from hypersparse.runs.store import RunStore, find_all
from hypersparse.storage.lock import is_locked


def pack(
    runs: list[str] = typer.Argument(help="Run folders, folders of runs, or runs by name."),
    out: Path = typer.Option(
        ..., "--out", "-o", file_okay=False, help="Folder for the pack; created if it is missing."
    ),
    max_bytes: str = typer.Option("15M", help="Largest file, such as 15M or 64MiB."),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write runs as a few files of a limited size. Runs in training are left out."""
    console, size = Console(), parse_bytes(max_bytes)
    folders = []
    for folder in find_all(runs, RunStore(runs_dir)):
        if is_locked(folder):
            console.say(f"left out: a process is training in {folder}")
        else:
            folders.append(folder)
    if folders and (lost := only_in(out, folders, runs_dir)):
        raise RunError(
            f"{out} has {lost[0]}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}, which is neither among these "
            f"runs nor in {runs_dir} and would be lost: `hypersparse unpack {out}` first, or pack into another folder."
        )
    written = pack_runs(folders, out, size)
    total = sum(path.stat().st_size for path in written)
    console.say(f"{len(folders)} {_runs(folders)}, {total:,} bytes, in {len(written)} files in {out}")


def unpack(
    source: Path = typer.Argument(help="Folder with index.json and the parts beside it."),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Extract packed runs into the runs folder. Finished runs are never overwritten."""
    console = Console()
    placed = unpack_runs(source, runs_dir, skipped=console.say)
    for path in placed:
        console.say(f"unpacked {path}")
    console.say(f"{len(placed)} {_runs(placed)} unpacked into {runs_dir}")


def _runs(runs: Sequence[Path]) -> str:
    return "run" if len(runs) == 1 else "runs"

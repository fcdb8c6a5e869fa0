"""`hypersparse pack` and `unpack`: move runs between machines as one file."""

from pathlib import Path

import typer

from hypersparse.cli.console import Console
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.plurals import how_many
from hypersparse.runs.pack import pack as pack_runs
from hypersparse.runs.pack import unpack as unpack_runs
from hypersparse.runs.store import RunStore, find_all
from hypersparse.storage.lock import is_locked


def pack(
    runs: list[str] = typer.Argument(help="Run folders, folders of runs, or runs by name."),
    out: Path = typer.Option(..., "--out", "-o", dir_okay=False, help="The file to write, such as runs.tar."),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Write runs as one file. Runs in training are left out."""
    console, folders = Console(), []
    for folder in find_all(runs, RunStore(runs_dir)):
        if is_locked(folder):
            console.say(f"left out: a process is training in {folder}")
        else:
            folders.append(folder)
    size = pack_runs(folders, out)
    console.say(f"{how_many(len(folders), 'run')} in {out}, {size:,} bytes")


def unpack(
    source: Path = typer.Argument(help="A file that `hypersparse pack` wrote."),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Extract packed runs into the runs folder. Finished runs are never overwritten."""
    console = Console()
    placed = unpack_runs(source, runs_dir, skipped=console.say)
    for path in placed:
        console.say(f"unpacked {path}")
    console.say(f"{how_many(len(placed), 'run')} unpacked into {runs_dir}")

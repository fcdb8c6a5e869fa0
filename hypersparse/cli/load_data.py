"""Data sets that a command reads: where they lie, and a bar while that takes time."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from hypersparse import data
from hypersparse.cli.console import Console
from hypersparse.data.dataset import Dataset
from hypersparse.recipe import Recipe

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", file_okay=False, help="Where data sets lie; then $HYPERSPARSE_DATA, then the cache folder."
    ),
]


def data_folders(given: Path | None) -> list[Path]:
    """Where data sets are looked for, in this order; downloads go to the last one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypersparse"
    configured = os.environ.get("HYPERSPARSE_DATA")
    return [*([given] if given else []), *([Path(configured)] if configured else []), cache]


def load_data(recipe: Recipe, folders: Sequence[Path], *, quiet: bool) -> Dataset:
    """Read a data set, with a bar where that takes time."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        transient=True,
        console=Console(stderr=True),
        disable=quiet,
    )
    tasks: dict[str, Any] = {}

    def progress(text: str, done: int, total: int) -> None:
        if text not in tasks:
            tasks[text] = bar.add_task(text, total=total or None)
        bar.update(tasks[text], completed=done, total=total or None)

    with bar:
        return data.load(recipe.data.name, folders, options=recipe.data.options, progress=progress)

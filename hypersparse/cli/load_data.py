"""Data sets that a command reads: the folders to look in, and a progress bar."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from hypersparse import data
from hypersparse.cli.console import Console
from hypersparse.data.dataset import Dataset
from hypersparse.recipe import Recipe
from hypersparse.runs.sweep import images_of
from hypersparse.training.machine import Machine
from hypersparse.training.memory import describe_memory, is_streamed

DATA_DIR_HELP = "Folder of the data sets; the default is $HYPERSPARSE_DATA, then the cache folder."
DataDir = Annotated[Path | None, typer.Option("--data-dir", file_okay=False, help=DATA_DIR_HELP)]


def data_folders(given: Path | None) -> list[Path]:
    """The folders to look for data sets, in this order; downloads go to the last one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypersparse"
    configured = os.environ.get("HYPERSPARSE_DATA")
    return [*([given] if given else []), *([Path(configured)] if configured else []), cache]


def keep_latest(load: Callable[[Recipe], Dataset]) -> Callable[[Recipe], Dataset]:
    """The function `load`, which keeps the latest data set in memory."""
    loaded: dict[str, Dataset] = {}

    def keeping(recipe: Recipe) -> Dataset:
        key = images_of(recipe)
        if key not in loaded:
            loaded.clear()
            loaded[key] = load(recipe)
        return loaded[key]

    return keeping


def load_data(
    recipe: Recipe,
    folders: Sequence[Path],
    *,
    quiet: bool,
    machine: Machine | None = None,
    console: Console | None = None,
) -> Dataset:
    """Load a data set, with a progress bar unless `quiet`.

    With a machine to train on, its images are decoded now, unless they are streamed, and the console says which.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    screen = Console(stderr=True)
    bar = Progress(*columns, transient=True, console=screen, disable=quiet or not screen.is_screen)
    tasks: dict[str, Any] = {}

    def progress(text: str, done: int, total: int) -> None:
        if text not in tasks:
            tasks[text] = bar.add_task(text, total=total or None)
        bar.update(tasks[text], completed=done, total=total or None)

    with bar:
        dataset = data.load(recipe.data.name, folders, options=recipe.data.options, progress=progress)
        if machine is None:
            return dataset
        (console or Console()).say(f"data: {describe_memory(dataset, machine)}")
        return dataset if is_streamed(dataset, machine) else dataset.to(torch.device("cpu"), progress=progress)

"""`hypersparse analyze`: figures and tables from stored runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.table import Table

from hypersparse.analysis import allocation, masks, tradeoffs
from hypersparse.analysis import epochs as _epochs
from hypersparse.analysis import finetuning as _finetuning
from hypersparse.analysis import gradients as _gradients
from hypersparse.analysis import intersection as _intersection
from hypersparse.analysis.finished_runs import FinishedRun, load, with_records
from hypersparse.analysis.plotting import AnalysisResult, use_own_settings, write
from hypersparse.cli.console import table_console
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import OptionError
from hypersparse.runs.store import RunStore, find_all

Names = Annotated[
    list[str] | None, typer.Argument(help="Run folders, folders of runs, or runs by name; all by default.")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", file_okay=False, help="Folder for the figures (PNG, SVG) and their data (CSV).")
]


def gradients(
    runs: Names = None,
    runs_dir: RunsDir = Path("runs"),
    out: Out = Path("figures"),
    epochs: Annotated[
        str | None, typer.Option("--epochs", help="Regularized epochs to draw, such as 0,20,30,40; a few by default.")
    ] = None,
) -> None:
    """Magnitudes and penalty gradients over the sorted weights (figure 1 of the paper), a figure a run."""
    chosen = None if epochs is None else _numbers(epochs)
    found = find(runs, runs_dir)
    for run in with_records(found) if runs else _gradients.with_curves(found):  # one that was named is not left out
        show(_gradients.analyze_run(run, chosen), out)


def intersection(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """How soon the final mask is found (figure 2 of the paper)."""
    for result in _intersection.analyze(find(runs, runs_dir)):
        show(result, out)


def layers(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """Weights per layer under the blocks of the network (figure 3 of the paper)."""
    for result in allocation.analyze(find(runs, runs_dir)):
        show(result, out)


def epochs(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """Regularized epochs to the final mask, per penalty (table 2 of the paper)."""
    show(_epochs.analyze(find(runs, runs_dir)), out)


def finetuning(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """What fine-tuning gains at each of its learning rates."""
    for result in _finetuning.analyze(find(runs, runs_dir)):
        show(result, out)


def accuracy(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """Accuracy against sparsity, against training work and against bytes."""
    for result in tradeoffs.accuracy(find(runs, runs_dir)):
        show(result, out)


def crossing(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """How many weights cross the cut in each epoch: from exploration to exploitation."""
    for result in masks.crossings(find(runs, runs_dir)):
        show(result, out)


def effective(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """Kept weights that lie on a path from input to output."""
    for result in tradeoffs.effective(find(runs, runs_dir)):
        show(result, out)


def agreement(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """How far the final masks of different seeds agree."""
    show(masks.agreement(find(runs, runs_dir)), out)


def classes(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
    """Whom sparsity hurts: accuracy by class."""
    for result in tradeoffs.classes(find(runs, runs_dir)):
        show(result, out)


def find(names: Sequence[str] | None, runs_dir: Path) -> list[FinishedRun]:
    """The finished runs that are meant."""
    use_own_settings()  # every analysis begins here and ends with a figure
    store = RunStore(runs_dir)
    return load(find_all(names, store) if names else [run.path for run in store.runs()])


def show(result: AnalysisResult, out: Path) -> None:
    """Write a result's files, print its main numbers and say where the files are."""
    console = table_console(highlight=False)
    for frame in result.tables.values():
        console.print(as_table(frame))
    for path in write(out, result):
        console.print(str(path), style="dim", markup=False, soft_wrap=True)


def _numbers(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise OptionError(f"`--epochs` expects whole numbers with commas, such as 0,20,30,40; got `{text}`.") from None


def as_table(frame: pd.DataFrame) -> Table:
    """For a terminal, without columns in which nothing stands."""
    shown = frame.dropna(axis="columns", how="all")
    table = Table(*(str(name).replace("_", " ") for name in shown), box=None, pad_edge=False, header_style="dim")
    for row in shown.itertuples(index=False):
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""`hypersparse analyze`: figures and tables from stored runs."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.table import Table

from hypersparse.analysis.finished_runs import FinishedRun, load
from hypersparse.analysis.plotting import AnalysisResult, use_own_settings, write
from hypersparse.analysis.tables import plain_text
from hypersparse.cli.console import table, table_console
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.runs.store import RunStore, find_all

Names = Annotated[
    list[str] | None, typer.Argument(help="Run folders, folders of runs, or runs by name; all by default.")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", file_okay=False, help="Folder for the figures (PNG, SVG) and their data (CSV).")
]
Analysis = Callable[[Sequence[FinishedRun]], Iterable[AnalysisResult]]


def drawing(analyze: Analysis) -> Callable[..., None]:
    """A command that draws the results of an analysis."""

    def draw(runs: Names = None, runs_dir: RunsDir = Path("runs"), out: Out = Path("figures")) -> None:
        show(analyze(find(runs, runs_dir)), out)

    return draw


def find(names: Sequence[str] | None, runs_dir: Path) -> list[FinishedRun]:
    """The named finished runs; without names all."""
    use_own_settings()  # every analysis begins here and ends with a figure
    store = RunStore(runs_dir)
    return load(find_all(names, store) if names else [run.path for run in store.runs()])


def show(results: Iterable[AnalysisResult], out: Path, tables: Sequence[pd.DataFrame] | None = None) -> None:
    """Print the main tables of results, or the given ones, write all files, and print their paths."""
    console = table_console(highlight=False)
    for frame in tables or ():
        console.print(as_table(frame))
    for result in results:
        for frame in result.tables.values() if tables is None else ():
            console.print(as_table(frame))
        for path in write(out, result):
            console.say(str(path), style="dim")


def as_table(frame: pd.DataFrame) -> Table:
    """A frame for a terminal, without its empty columns."""
    shown = frame.dropna(axis="columns", how="all")
    rows = [[*map(plain_text, row)] for row in shown.itertuples(index=False)]
    return table(*(str(name).replace("_", " ") for name in shown), rows=rows)

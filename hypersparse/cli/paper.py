"""`hypersparse paper`: our numbers beside the paper's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.table import Table

from hypersparse.analysis import intersection, variants
from hypersparse.analysis import paper as published
from hypersparse.analysis.tables import column_title, count_verdicts, format_cells, mark_missing, render
from hypersparse.cli.console import table_console
from hypersparse.errors import OptionError, RunError, unknown
from hypersparse.runs.store import RunStore

TABLES: dict[str, Callable[[RunStore], pd.DataFrame]] = {
    "accuracy": published.accuracy,
    "epochs": published.regularized_epochs,
    "intersection": intersection.beside_paper,
    "variants": variants.variants,
}
FORMATS = ("table", "md", "csv", "latex", "html")
CELL = ("data", "model", "sparsity")
BRIEF = {"variants": ("variant", "seeds", "last", "best", "last_difference", "loss", "epochs")}  # what a terminal holds
COLORS = {
    "reproduced": "green",
    "better": "cyan",
    "worse": "red",
    "missing": "dim",
}


def paper(
    which: Annotated[
        str,
        typer.Argument(
            help="accuracy, epochs (to the final mask), intersection (with the final mask), or variants (of ART)."
        ),
    ] = "accuracy",
    results: Annotated[
        Path | None, typer.Option("--results", help="Where finished runs lie; the folder `results` by default.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="table, md, csv, latex or html.")] = "table",
    all_cells: Annotated[bool, typer.Option("--all", help="Also the cells of which there is no run.")] = False,
) -> None:
    """Print our mean and deviation beside the paper's, with a verdict on every cell.

    Reproduced: the means differ by at most twice their standard error. The paper's code reports the best epoch, picked
    on the test set; ours stands beside it, and the last epoch too.
    """
    if which not in TABLES:
        raise OptionError(unknown("table", which, TABLES))
    if format not in FORMATS:
        raise OptionError(unknown("format", format, FORMATS))
    store = _store(results)
    frame = TABLES[which](store)
    there = frame[frame["seeds"] > 0]
    shown = mark_missing(format_cells(frame if all_cells else there))
    if format == "table":
        console = table_console()
        if len(shown):
            console.print(_brief(shown, BRIEF[which]) if which in BRIEF else _table(shown))
        console.print(count_verdicts(frame), highlight=False)
        return
    typer.echo(render(frame if all_cells else there, shown, format), nl=False)


def _store(results: Path | None) -> RunStore:
    if results is not None and not results.is_dir():
        raise RunError(f"There is no folder {results}; pass the one that `hypersparse sweep --results` fills.")
    return RunStore(results or "results")


def _table(shown: pd.DataFrame) -> Table:
    table = Table(*(column_title(name) for name in shown), box=None, pad_edge=False, header_style="dim")
    for row in shown.to_numpy().tolist():
        table.add_row(*(f"[{COLORS[value]}]{value}[/]" if value in COLORS else str(value) for value in row))
    return table


def _brief(shown: pd.DataFrame, columns: Sequence[str]) -> Table:
    """Some columns of a wide table, cell by cell; the first one is wrap_label where there is no room."""
    first, *others = columns
    table = Table(box=None, pad_edge=False, header_style="dim", caption="more columns: --format csv")
    table.caption_justify = "left"
    table.add_column(column_title(first), overflow="fold")
    for name in others:
        table.add_column(column_title(name), no_wrap=True)
    for cell, rows in shown.groupby(list(CELL), sort=False):
        table.add_row(f"[bold]{', '.join(map(str, cell))}[/]")
        for row in rows[list(columns)].to_numpy().tolist():
            table.add_row(*map(str, row))
    return table

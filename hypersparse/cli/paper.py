"""`hypersparse paper`: results beside the paper's."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import typer
from rich.table import Table

from hypersparse.analysis import intersection, variants
from hypersparse.analysis import paper as published
from hypersparse.analysis.tables import column_title, count_verdicts, format_cells, mark_missing, render
from hypersparse.cli.console import table, table_console
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
BRIEF = {"variants": ("variant", "seeds", "last", "best", "last_difference", "loss", "epochs")}  # for a terminal
COLORS = {"reproduced": "green", "better": "cyan", "worse": "red", "missing": "dim"}


def paper(
    which: str = typer.Argument(
        "accuracy",
        help="accuracy, epochs (to the final mask), intersection (with the final mask), or variants (of ART).",
    ),
    results: Path | None = typer.Option(None, help="Folder of finished runs; the folder `results` by default."),
    format: str = typer.Option("table", help="table, md, csv, latex or html."),
    all_cells: bool = typer.Option(False, "--all", help="Include cells without a run."),
) -> None:
    """Print mean and deviation of your runs beside the paper's, with a verdict on every cell.

    Reproduced: the means differ by at most twice their standard error. The paper's code reports the best epoch, picked
    on the test set. The table has it, and the last epoch.
    """
    if which not in TABLES:
        raise OptionError(unknown("table", which, TABLES))
    if format not in FORMATS:
        raise OptionError(unknown("format", format, FORMATS))
    if results is not None and not results.is_dir():
        raise RunError(f"There is no folder {results}; pass the one that `hypersparse sweep --results` fills.")
    frame = TABLES[which](RunStore(results or "results"))
    there = frame[frame["seeds"] > 0]
    shown = mark_missing(format_cells(frame if all_cells else there))
    if format == "table":
        console = table_console()
        colored = shown.map(lambda value: f"[{COLORS[value]}]{value}[/]" if value in COLORS else str(value))
        if which in BRIEF and len(shown):
            console.print(_brief(shown, BRIEF[which]))
        elif len(shown):
            console.print(table(*map(column_title, shown), rows=colored.to_numpy().tolist()))
        console.say(count_verdicts(frame))
        return
    typer.echo(render(frame if all_cells else there, shown, format), nl=False)


def _brief(shown: pd.DataFrame, columns: Sequence[str]) -> Table:
    """Some columns of a wide table, cell by cell; the first one is folded if there is no room."""
    first, *others = map(column_title, columns)
    made = table(first, *(f">{name}" for name in others), caption="more columns: --format csv")
    for cell, rows in shown.groupby(list(CELL), sort=False):
        made.add_row(f"[bold]{', '.join(map(str, cell))}[/]")
        for row in rows[list(columns)].to_numpy().tolist():
            made.add_row(*map(str, row))
    return made

"""`hypersparse paper`: our numbers beside the paper's."""

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from hypersparse.analysis import paper as numbers
from hypersparse.errors import OptionError, RunError, unknown
from hypersparse.runs.store import RunStore

FORMATS = ("table", "md", "csv", "latex", "html")
COLORS = {"reproduced": "green", "better": "cyan", "differs": "red", "missing": "dim"}


def paper(
    which: Annotated[str, typer.Argument(help="accuracy, or epochs to the final mask.")] = "accuracy",
    results: Annotated[Path | None, typer.Option("--results", help="Where finished runs lie [results].")] = None,
    format: Annotated[str, typer.Option("--format", help="table, md, csv, latex or html.")] = "table",
    all_cells: Annotated[bool, typer.Option("--all", help="Also the cells of which there is no run.")] = False,
) -> None:
    """Print our mean and deviation beside the paper's, with a verdict on every cell.

    Reproduced: the means differ by at most twice their standard error. The paper reports the best epoch, picked on the
    test set; ours stands beside it, and the last epoch too.
    """
    if which not in numbers.TABLES:
        raise OptionError(unknown("table", which, numbers.TABLES))
    if format not in FORMATS:
        raise OptionError(unknown("format", format, FORMATS))
    if results is not None and not results.is_dir():
        raise RunError(f"There is no folder {results}; pass the one that `hypersparse sweep --results` fills.")
    frame = numbers.TABLES[which](RunStore(results or Path("results")))
    there = frame[frame["seeds"] > 0]
    shown = readable(frame if all_cells else there)
    if format == "table":
        console = Console()
        if len(shown):
            console.print(_table(shown))
        counts = frame[next(name for name in map(str, frame) if name.endswith("verdict"))].value_counts()
        console.print(", ".join(f"{count} {name}" for name, count in counts.items()), highlight=False)
        return
    typer.echo(render(frame if all_cells else there, shown, format), nl=False)


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Means and deviations put together, such as 92.69 ± 0.22."""
    columns: dict[str, list[str]] = {}
    for name in frame:
        if str(name).endswith("_deviation"):
            continue
        pairs = zip(frame[name], frame.get(f"{name}_deviation", [None] * len(frame)), strict=True)
        columns[str(name)] = [_together(value, deviation) for value, deviation in pairs]
    return pd.DataFrame(columns)


def render(frame: pd.DataFrame, shown: pd.DataFrame, format: str) -> str:
    """As text in a format; CSV has the plain numbers."""
    if format == "csv":
        return frame.to_csv(index=False)
    if format == "html":
        return shown.to_html(index=False) + "\n"
    if format == "latex":
        rows = [" & ".join(str(value).replace("±", r"$\pm$") for value in row) + r" \\" for row in shown.to_numpy()]
        header = " & ".join(str(name).replace("_", " ") for name in shown) + r" \\ \hline"
        return "\n".join([rf"\begin{{tabular}}{{{'l' * len(shown.columns)}}}", header, *rows, r"\end{tabular}"]) + "\n"
    lines = [list(map(str, shown.columns)), ["---"] * len(shown.columns), *shown.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def _together(value: object, deviation: object) -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(deviation, float) and not pd.isna(deviation):
        return f"{value:.2f} ± {deviation:.2f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(shown: pd.DataFrame) -> Table:
    table = Table(*(str(name).replace("_", " ") for name in shown), box=None, pad_edge=False, header_style="dim")
    for row in shown.to_numpy().tolist():
        table.add_row(*(f"[{COLORS[value]}]{value}[/]" if value in COLORS else str(value) for value in row))
    return table

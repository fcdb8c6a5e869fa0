"""`hypersparse runs`: a list of the stored runs."""

import csv
import dataclasses
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import typer
from rich.markup import escape

from hypersparse.cli.console import Console, print_json, table, table_console
from hypersparse.cli.formats import count, duration, percent
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.plurals import how_many
from hypersparse.runs.run_listing import Filters, RunRow, rows
from hypersparse.runs.store import RunStore

STYLES = {"finished": "green", "running": "cyan", "damaged": "red"}


class Format(StrEnum):
    """How runs are listed."""

    table = "table"
    csv = "csv"
    json = "json"


def runs(
    runs_dir: RunsDir = Path("runs"),
    data: str | None = typer.Option(None, help="Only runs on this data set."),
    model: str | None = typer.Option(None, help="Only runs of this model."),
    method: str | None = typer.Option(None, help="Only runs with this method."),
    sparsity: float | None = typer.Option(None, help="Only runs with this sparsity."),
    seed: int | None = typer.Option(None, help="Only runs with this seed."),
    finished: bool | None = typer.Option(
        None, "--finished/--unfinished", help="Only finished runs, or only the others."
    ),
    form: Format = typer.Option(Format.table, "--format", help="A table to read, or csv or json for programs."),
) -> None:
    """List the runs, finished or not."""
    filters = Filters(data=data, model=model, method=method, sparsity=sparsity, seed=seed, finished=finished)
    every = rows(RunStore(runs_dir))
    found = [row for row in every if filters.fit(row)]
    values = [{**dataclasses.asdict(row), "path": str(row.path)} for row in found]
    if form is Format.json:
        print_json(values)
    elif form is Format.csv:
        writer = csv.DictWriter(sys.stdout, [field.name for field in dataclasses.fields(RunRow)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(values)
    elif found:
        _print_table(found)
    if not found:
        Console(stderr=True).say(
            f"{runs_dir} has {how_many(len(every), 'run')}, and none fits; remove a filter, or list all with "
            "`hypersparse runs`."
            if every
            else f"There are no runs in {runs_dir} yet. `hypersparse train` makes one; --runs-dir lists another folder."
        )


def _print_table(found: Sequence[RunRow]) -> None:
    console = table_console()
    numbers = (">last %", ">best %", ">dense %", ">kept", ">effective", ">of", ">time")
    shown = table("run", "data", "model", "method", "sparsity", "state", *numbers)
    shown.columns[0].no_wrap = True
    penalties = len({row.penalty for row in found if row.penalty}) > 1
    for row in found:
        shown.add_row(*_cells(row, penalties), style="dim" if row.status == "stopped" else "")
    console.print(shown)
    for row in found:
        if row.problem:
            console.say(f"{row.name}: {row.problem}", style="red")
    picked = " or ".join(sorted({row.best_picked_on for row in found if row.best_picked_on}))
    console.say(f"best: the epoch picked on {picked or 'test'} images. `hypersparse show RUN` says more.", style="dim")


def _cells(row: RunRow, penalties: bool) -> list[str]:
    """One line of the table, with the penalty if not all runs have the same one."""
    style = STYLES.get(row.status)
    method = [row.method, row.penalty if penalties else None, row.ablation]
    return [
        escape(row.name),
        escape(row.data or ""),
        escape(row.model or ""),
        escape(", ".join(word for word in method if word)),
        "" if row.sparsity is None else f"{row.sparsity:g}",
        f"[{style}]{escape(row.state)}[/]" if style else escape(row.state),
        percent(row.sparse_last),
        percent(row.sparse_best),
        percent(row.dense_last),
        count(row.kept),
        count(row.effective_kept),
        count(row.total),
        duration(row.seconds),
    ]

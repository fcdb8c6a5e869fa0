"""`hypersparse bench`: how fast this machine is."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hypersparse.bench.cells import ENGINES, MODELS, Cell, effort_for, parse_counts, parse_names, plan_cells
from hypersparse.bench.train import Bench, Report, Row, device_name, peaks_sentence
from hypersparse.training.atomic import write_json
from hypersparse.training.machine import Machine

bench = typer.Typer(help="Measure how fast this machine is.", no_args_is_help=True)


@bench.callback()
def options() -> None:
    """Measure how fast this machine is."""


class Bar:
    """A progress bar over the cells on stderr, and a line for each."""

    def __init__(self, progress: Progress, cells: int) -> None:
        self.progress, self.task = progress, progress.add_task("bench", total=cells)

    def began(self, cell: Cell) -> None:
        """A cell begins."""
        self.progress.update(self.task, description=cell.title)

    def ended(self, cell: Cell, seconds: float) -> None:
        """A cell is measured."""
        self.progress.console.print(f"{seconds:6.1f} s  {cell.title}", highlight=False)
        self.progress.advance(self.task)


@bench.command()
def train(
    quick: Annotated[
        bool, typer.Option("--quick", help="Few steps on small batches: under a minute, and rough.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows to this file too.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="bf16, tf32 or fp32; by default bf16 on a GPU, fp32 on a CPU.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help=f"Between commas; by default {','.join(MODELS)}, on a CPU without the last.")
    ] = None,
    engines: Annotated[
        str | None, typer.Option(help=f"Of {','.join(ENGINES)}; by default all this device has.")
    ] = None,
    runs: Annotated[str | None, typer.Option(help="Captured runs at once; by default 1,5,10 on a GPU.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Timed steps; by default 100, on a CPU 10, with --quick 3.", min=1)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Skip what would take longer in all; by default 8, with --quick 1.", min=0)
    ] = None,
) -> None:
    """Time training steps of every engine beside a re-making of the original loop, on random images.

    Each figure is a number of timed steps after a warm-up, scaled to an epoch.
    """
    place = Machine(device=device).torch_device()
    chosen = precision or ("bf16" if place.type == "cuda" else "fp32")
    Machine(device=device, precision=chosen)  # type: ignore[arg-type]  # says if there is no such precision
    cells = plan_cells(
        place,
        quick=quick,
        labels=parse_names(models) if models else None,
        engines=parse_names(engines) if engines else None,
        runs=parse_counts(runs) if runs else None,
    )
    effort = effort_for(place, quick=quick, steps=steps)
    if minutes is None:
        minutes = 1.0 if quick else 8.0
    measured = Bench(place, chosen, effort, minutes)  # type: ignore[arg-type]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        report = measured.run(cells, Bar(progress, len(cells)))
    _print(Console(), report, f"training on {device_name(place, effort.threads)}, {chosen}, batch {effort.batch_size}")
    if json_file:
        write_json(json_file, report.rows)


def _print(console: Console, report: Report, title: str) -> None:
    columns = (
        "model",
        "phase",
        "engine",
        "runs",
        "s/epoch a run",
        "speedup",
        "of floor",
        "scoring",
        "built in",
        "memory",
    )
    table = Table(title=title, box=None, pad_edge=False, header_style="dim", title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in columns[:3] else "right")
    last = None
    for row in report.rows:
        if last not in (None, row["model"]):
            table.add_section()
        last = row["model"]
        table.add_row(*_words(row))
    console.print(table)
    if report.rows:
        timed = sorted({row["steps_timed"] for row in report.rows})
        console.print(
            f"Scaled to an epoch from {' or '.join(map(str, timed))} timed steps; regularized epochs include scoring.",
            highlight=False,
            soft_wrap=True,
        )
    sentences = [peaks_sentence(precision, peaks) for precision, peaks in report.peaks.items()]
    for sentence in [*sentences, *report.notes]:
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)


def _words(row: Row) -> list[str]:
    memory, speedup = row["memory_bytes"], row["speedup"]
    return [
        row["model"],
        row["phase"],
        row["engine"],
        str(row["runs"]),
        seconds(row["seconds_per_epoch"]),
        "" if speedup is None else f"{speedup:.1f}x",
        f"{100 * row['floor_share']:.1f} %",
        seconds(row["scoring_seconds"] / row["runs"]) if row["scoring_seconds"] else "",
        f"{row['compile_seconds']:.1f} s" if row["compile_seconds"] else "",
        "" if memory is None else f"{memory / 2**30:.2f} GiB",
    ]


def seconds(value: float) -> str:
    """Three digits, and no more than are needed.

    >>> seconds(1.2345), seconds(1234.5)
    ('1.23', '1,234')
    """
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"

"""`hypersparse bench`: how fast this machine is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hypersparse.bench.train import Bench, TrainingReport, TrainingRow, device_name, peaks_sentence
from hypersparse.bench.workloads import ENGINES, MODELS, TrainingCase, effort_for, parse_counts, parse_names, plan_cases
from hypersparse.cli.console import Console, table_console
from hypersparse.storage.files import write_json
from hypersparse.training.machine import Machine


class Bar:
    """A progress bar over the cells on stderr, and a line for each."""

    def __init__(self, progress: Progress, cells: int) -> None:
        self.progress, self.task = progress, progress.add_task("bench", total=cells)

    def began(self, cell: TrainingCase) -> None:
        """A cell begins."""
        self.progress.update(self.task, description=cell.title)

    def ended(self, cell: TrainingCase, seconds: float) -> None:
        """A cell is measured."""
        self.progress.console.print(f"{seconds:6.1f} s  {cell.title}", highlight=False)
        self.progress.advance(self.task)


def train(
    quick: Annotated[
        bool, typer.Option("--quick", help="Few steps on small batches: under a minute, and rough.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", dir_okay=False, help="A JSON file for the rows.")] = None,
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
    """Time training steps of every engine beside a reimplementation of the authors' loop, on random images.

    Each figure is a number of timed steps after a warm-up, scaled to an epoch.
    """
    place = Machine(device=device).torch_device()
    chosen = precision or ("bf16" if place.type == "cuda" else "fp32")
    Machine(device=device, precision=chosen)  # type: ignore[arg-type]  # says if there is no such precision
    cells = plan_cases(
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
    _print(
        table_console(),
        report,
        f"training on {device_name(place, effort.threads)}, {chosen}, batch {effort.batch_size}",
    )
    if out:
        write_json(out, report.rows)


def _print(console: Console, report: TrainingReport, title: str) -> None:
    texts = ("model", "phase", "engine")
    lines = [_words(row) for row in report.rows]
    columns = [name for name in (lines[0] if lines else texts) if any(line[name] for line in lines)]
    table = Table(title=title, box=None, pad_edge=False, header_style="dim", title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in texts else "right")
    for line in lines:
        table.add_row(*(line[name] for name in columns))
    if lines:
        console.print(table)
    sentences = [peaks_sentence(precision, peaks) for precision, peaks in report.peaks.items()]
    for sentence in [*_how_timed(report.rows), *sentences, *report.notes]:
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)


def _how_timed(rows: Sequence[TrainingRow]) -> list[str]:
    if not rows:
        return []
    fewest, most = (pick(row["steps_timed"] for row in rows) for pick in (min, max))
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    return [f"Scaled to an epoch from {count} timed steps each; regularized epochs include scoring the pruned copy."]


def _words(row: TrainingRow) -> dict[str, str]:
    memory, speedup = row["memory_bytes"], row["speedup"]
    return {
        "model": row["model"],
        "phase": row["phase"],
        "engine": row["engine"],
        "runs": str(row["runs"]),
        "s/epoch a run": seconds(row["seconds_per_epoch"]),
        "speedup": "" if speedup is None else f"{speedup:.{2 if speedup < 10 else 1}f}x",
        "of floor": f"{100 * row['floor_share']:.1f} %",
        "s scoring": seconds(row["scoring_seconds"] / row["runs"]) if row["scoring_seconds"] else "",
        "s to build": f"{row['compile_seconds']:.1f}" if row["compile_seconds"] else "",
        "memory": "" if memory is None else f"{memory / 2**30:.2f} GiB",
    }


def seconds(value: float) -> str:
    """Three digits, and no more than are needed.

    >>> seconds(1.2345), seconds(1234.5)
    ('1.23', '1,234')
    """
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"

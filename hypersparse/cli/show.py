"""`hypersparse show`: one run, in numbers, curves and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from hypersparse.analysis.layers import LayerWeights, layer_weights
from hypersparse.cli.console import Console
from hypersparse.cli.formats import bar, count, duration, flops, percent, sparkline
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import RunError
from hypersparse.runs.pack import PICTURE
from hypersparse.runs.run_listing import Outcome, Row, outcome_of, row_of
from hypersparse.runs.store import RunStore, find_all
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, Result, number_of

WIDEST_CURVE, BAR_WIDTH = 60, 24
REST_WIDTH = 60  # of a table with a curve, in characters
CURVES = {"test_accuracy": "test", "pruned_score": "pruned"}


def show(
    run: Annotated[str, typer.Argument(help="A run's folder, its name, or a part of the name only it has.")],
    runs_dir: RunsDir = Path("runs"),
    png: Annotated[
        Path | None,
        typer.Option("--png", dir_okay=False, help=f"Where to draw it; {PICTURE} in the run's folder by default."),
    ] = None,
) -> None:
    """Show what came out of a run, how it got there, and which weights it kept."""
    folder = _find(run, RunStore(runs_dir))
    row, entries = row_of(folder), folder.log()
    if row.status == "damaged":
        raise RunError(f"{folder.path} is damaged: {row.problem}")
    console = Console()
    title = f"[bold cyan]{escape(row.label)}[/], seed {row.seed}: {escape(row.state)}"
    console.print(title, highlight=False, soft_wrap=True)
    console.print(str(folder.path), style="dim", markup=False, highlight=False, soft_wrap=True)
    _print_outcome(console, row, outcome_of(folder))
    if entries:
        _print_phases(console, entries)
    if bars := layer_weights(folder):
        _print_layers(console, bars)
    if entries:
        _draw(console, folder, png)


def _find(name: str, store: RunStore) -> RunFolder:
    found = find_all([name], store)
    if len(found) > 1:
        some = ", ".join(str(path) for path in found[:4])
        raise RunError(f"`{name}` has {len(found)} runs ({some}); say which one.")
    return RunFolder(found[0])


def _print_outcome(console: Console, row: Row, outcome: Result | Outcome) -> None:
    if not (outcome["dense"] or outcome["sparse"]):
        if not row.epochs:
            console.print("No epoch is finished yet.")
        return
    table = _table("", ">last epoch %", ">best epoch %", ">weights", ">effective", ">of", ">bytes")
    for name in ("dense", "sparse"):
        part, sparse = outcome[name], name == "sparse"
        if part is None:
            continue
        table.add_row(
            name,
            f"{percent(part['last'])} (epoch {part['last_epoch']})",
            f"{percent(part['best'])} (epoch {part['best_epoch']})",
            count(row.kept if sparse else row.total),
            count(row.effective_kept if sparse or outcome["sparse"] is None else None),
            count(row.total),
            count(outcome.get("final_bytes") if sparse else outcome.get("dense_bytes")),
        )
    console.print("", table, sep="\n", highlight=False)
    console.print(_about_best(row), style="dim", highlight=False, soft_wrap=True)
    if (cost := flops(outcome)) is not None:
        console.print(f"Cost: {cost}.", style="dim", highlight=False, soft_wrap=True)


def _about_best(row: Row) -> str:
    if row.best_picked_on == "validation":
        return "All accuracies are on the test set; the best epoch was picked on the validation set."
    return (
        "All accuracies are on the test set, and the best epoch was picked on it too, so `best` flatters: "
        "report `last`, or hold out images with --validation."
    )


def _print_phases(console: Console, entries: Sequence[Entry]) -> None:
    table = _table("phase", ">epochs", ">time", "", "curve", ">first %", ">last %", ">top %")
    width = min(max(console.width - REST_WIDTH, 8), len(entries), WIDEST_CURVE)
    for phase in dict.fromkeys(entry["phase"] for entry in entries):
        inside = [entry for entry in entries if entry["phase"] == phase]
        head = [escape(phase), str(len(inside)), duration(sum(entry["seconds"] for entry in inside))]
        for key, words in CURVES.items():
            values = [value for entry in inside if (value := number_of(entry, key)) is not None]
            if values:
                ends = (percent(value) for value in (values[0], values[-1], max(values)))
                table.add_row(*head, words, sparkline(values, width), *ends)
                head = ["", "", ""]
    console.print("", table, sep="\n")


def _print_layers(console: Console, bars: Sequence[LayerWeights]) -> None:
    known = all(layer.total for layer in bars)
    table = _table("layer", ">kept", *([">of", ">%", ""] if known else []))
    shares = [layer.kept / layer.total if layer.total else 0.0 for layer in bars]
    longest = max(shares) or 1.0  # at 99 % sparsity no bar would be seen beside a full one
    for layer, share in zip(bars, shares, strict=True):
        drawn = f"[green]{bar(share / longest, BAR_WIDTH)}[/]"
        rest = [count(layer.total), percent(share, 1), drawn] if known else []
        table.add_row(escape(layer.name), count(layer.kept), *rest)
    console.print("", table, sep="\n")
    if not known:
        console.print("What pruning would keep after the last regularized epoch.", style="dim")


def _draw(console: Console, folder: RunFolder, png: Path | None) -> None:
    from hypersparse.analysis.curves import save  # matplotlib: a second that other commands do not need
    from hypersparse.analysis.plotting import use_own_settings

    use_own_settings()
    target = png or folder.path / PICTURE
    try:
        save(folder, target)
    except RunError as error:
        if png is not None:
            raise
        console.print(f"\nNot drawn: {error} --png FILE draws elsewhere.", markup=False, soft_wrap=True)
        return
    console.print(f"\ncurves: {target}", markup=False, highlight=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    """A plain table; a column whose name begins with > is set to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    return table

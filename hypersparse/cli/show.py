"""`hypersparse show`: one run, as tables and curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.bar import Bar
from rich.markup import escape

from hypersparse.analysis.layers import LayerWeights, layer_weights
from hypersparse.cli.console import Console, table
from hypersparse.cli.formats import count, duration, flops, percent, sparkline
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.cli.report import open_page, write_report
from hypersparse.cli.results import outcome_table
from hypersparse.errors import RunError
from hypersparse.runs.pack import REPORT
from hypersparse.runs.run_listing import RunRow, outcome_of, row_of
from hypersparse.runs.store import RunStore, find_all
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, number_of

WIDEST_CURVE, BAR_WIDTH = 60, 24
REST_WIDTH = 60  # of a table with a curve, in characters
CURVES = {"test_accuracy": "test", "pruned_score": "pruned"}


def show(
    run: str = typer.Argument(help="A run's folder, its name, or a part of the name only it has."),
    runs_dir: RunsDir = Path("runs"),
    browser: bool = typer.Option(False, "--open", help="Also write the run's report, and open it in a browser."),
) -> None:
    """Show the result of a run, its epochs, and the weights kept in each layer."""
    folder = _find(run, RunStore(runs_dir))
    row, entries = row_of(folder), folder.log()
    if row.status == "damaged":
        raise RunError(f"{folder.path} is damaged: {row.problem}")
    console = Console()
    console.say(f"seed {row.seed}: {row.state}", label=f"{row.label},", style="bold cyan")
    console.say(str(folder.path), style="dim")
    _print_outcome(console, row, {**outcome_of(folder)})
    if entries:
        _print_phases(console, entries)
    if bars := layer_weights(folder):
        _print_layers(console, bars)
    if browser and write_report(console, page := folder.path / REPORT, [folder.path]):
        open_page(console, page)


def _find(name: str, store: RunStore) -> RunFolder:
    found = find_all([name], store)
    if len(found) > 1:
        some = ", ".join(str(path) for path in found[:4])
        raise RunError(f"`{name}` has {len(found)} runs ({some}); name one of them.")
    return RunFolder(found[0])


def _print_outcome(console: Console, row: RunRow, outcome: Mapping[str, Any]) -> None:
    if not (outcome["dense"] or outcome["sparse"]):
        if not row.epochs:
            console.say("No epoch is finished yet.")
        return
    console.print("", outcome_table(outcome), sep="\n", highlight=False)
    console.say(_about_best(row), style="dim")
    if (cost := flops(outcome)) is not None:
        console.say(f"Cost: {cost}.", style="dim")


def _about_best(row: RunRow) -> str:
    if row.best_picked_on == "validation":
        return "All accuracies are on the test set; the best epoch was picked on the validation set."
    return (
        "All accuracies are on the test set. The best epoch was picked on it too, so `best` is optimistic. Report "
        "`last`, or hold out images with --validation."
    )


def _print_phases(console: Console, entries: Sequence[Entry]) -> None:
    shown = table("phase", ">epochs", ">time", "", "curve", ">first %", ">last %", ">top %")
    width = min(max(console.width - REST_WIDTH, 8), len(entries), WIDEST_CURVE)
    for phase in dict.fromkeys(entry["phase"] for entry in entries):
        inside = [entry for entry in entries if entry["phase"] == phase]
        head = [escape(phase), str(len(inside)), duration(sum(entry["seconds"] for entry in inside))]
        for key, words in CURVES.items():
            values = [value for entry in inside if (value := number_of(entry, key)) is not None]
            if values:
                ends = (percent(value) for value in (values[0], values[-1], max(values)))
                shown.add_row(*head, words, sparkline(values, width), *ends)
                head = ["", "", ""]
    console.print("", shown, sep="\n")


def _print_layers(console: Console, bars: Sequence[LayerWeights]) -> None:
    known = all(layer.total for layer in bars)
    shown = table("layer", ">kept", *([">of", ">%", ""] if known else []))
    shares = [layer.kept / layer.total if layer.total else 0.0 for layer in bars]
    longest = max(shares) or 1.0  # relative to the longest: at 99 % sparsity all bars would be empty
    for layer, share in zip(bars, shares, strict=True):
        drawn = Bar(longest, 0, share, width=BAR_WIDTH, color="green")
        rest: list[Any] = [count(layer.total), percent(share, 1), drawn] if known else []
        shown.add_row(escape(layer.name), count(layer.kept), *rest)
    console.print("", shown, sep="\n")
    if not known:
        console.say("What pruning would keep after the last regularized epoch.", style="dim")

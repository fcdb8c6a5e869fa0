"""`hypersparse methods`: what there is to choose from."""

import inspect
import json
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from hypersparse import methods as registry
from hypersparse.cli.console import table_console
from hypersparse.methods.base import Method


def methods(
    epochs: Annotated[
        int, typer.Option("--epochs", help="Epochs of the main training that the cost is told for.", min=1)
    ] = 160,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the methods: what each does, what it costs in epochs, and whose it is."""
    found = [describe(registry.find(name), epochs) for name in registry.names()]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    console = table_console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("method", no_wrap=True)
    table.add_column("what it does", ratio=3)
    table.add_column("epochs", justify="right", no_wrap=True)
    table.add_column("citation", ratio=4, style="dim")
    for method in found:
        cost = _between(method["epochs_least"], method["epochs_most"])
        table.add_row(method["name"], escape(method["about"]), cost, escape(method["citation"]))
    console.print(table)
    console.print(f"epochs: in all, for --epochs {epochs} and default options. `hypersparse plan METHOD` says more.")


def describe(kind: type[Method], epochs: int) -> dict[str, Any]:
    """A method with its default options, in plain values."""
    plan = kind().plan(epochs)
    return {
        "name": kind.name,
        "about": first_sentence(kind),
        "epochs_least": sum(min(1, phase.epochs) if phase.stop_when else phase.epochs for phase in plan),
        "epochs_most": sum(phase.epochs for phase in plan),
        "phases": {phase.name: phase.epochs for phase in plan},
        "citation": kind.citation,
    }


def first_sentence(kind: type) -> str:
    """The first sentence of a docstring, on one line.

    >>> first_sentence(registry.find("dense"))
    'Train all weights; prune nothing.'
    """
    words = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    end = words.find(". ")
    return words if end < 0 else words[: end + 1]


def _between(least: int, most: int) -> str:
    return str(most) if least == most else f"{least} to {most}"

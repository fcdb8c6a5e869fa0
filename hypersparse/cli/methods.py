"""`hypersparse methods`: a list of the methods."""

import inspect
import json
from typing import Any

import typer
from rich.markup import escape

from hypersparse import methods as registry
from hypersparse.cli.console import table, table_console
from hypersparse.methods.base import Method


def methods(
    epochs: int = typer.Option(160, help="Epochs of the main training, for the cost.", min=1),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON list."),
) -> None:
    """List the methods with their cost in epochs and their citation."""
    found = [describe(registry.find(name), epochs) for name in registry.names()]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    console = table_console()
    shown = table("method", "what it does", ">epochs", "citation")
    shown.columns[0].no_wrap, shown.columns[1].ratio, shown.columns[3].ratio = True, 3, 4
    for method in found:
        cost = _between(method["epochs_least"], method["epochs_most"])
        shown.add_row(method["name"], escape(method["about"]), cost, escape(method["citation"]))
    console.print(shown)
    console.print(f"epochs: in all, for --epochs {epochs} and default options. `hypersparse plan METHOD` says more.")


def describe(kind: type[Method], epochs: int) -> dict[str, Any]:
    """A method with its default options, as plain values."""
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

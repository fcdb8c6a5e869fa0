"""`hypersparse methods`: a list of the methods."""

import typer
from rich.markup import escape

from hypersparse import methods as registry
from hypersparse.cli.console import AsJson, print_json, table, table_console


def methods(
    epochs: int = typer.Option(160, help="Epochs of the main training, for the cost.", min=1),
    as_json: AsJson = False,
) -> None:
    """List the methods with their cost in epochs and their citation."""
    found = [registry.describe(registry.find(name), epochs) for name in registry.names()]
    if as_json:
        print_json(found)
        return
    console = table_console()
    shown = table("method", "what it does", ">epochs", "citation")
    shown.columns[0].no_wrap, shown.columns[1].ratio, shown.columns[3].ratio = True, 3, 4
    for method in found:
        cost = " to ".join(map(str, sorted({method["epochs_least"], method["epochs_most"]})))
        shown.add_row(method["name"], escape(method["about"]), cost, escape(method["citation"]))
    console.print(shown)
    console.print(f"epochs: in all, for --epochs {epochs} and default options. `hypersparse plan METHOD` says more.")

"""`python -m reproduction`: rebuild this repository's pages, and draw what only its comparison with the paper needs."""

from pathlib import Path
from typing import Annotated

import typer

from hypersparse.cli.main import run
from reproduction.decisions import decide
from reproduction.digits_tables import digits
from reproduction.figures import commands as figures
from reproduction.learning_order import commands as learning_order
from reproduction.page import build
from reproduction.zoo_entries import zoo_add

CHECKOUT = Path(__file__).parents[1]

app = typer.Typer(
    name="python -m reproduction",
    invoke_without_command=True,
    help="Without a command: rebuild docs/reproduction.md and the README's table from results/.",
    pretty_exceptions_enable=False,
)
app.command()(figures.gradients)
app.command("epochs", help="Regularized epochs to the final mask, per penalty (table 2 of the paper).")(figures.epochs)
app.command("finetuning", help="The gain of fine-tuning at each of its learning rates.")(figures.gains)
app.command()(learning_order.positions)
app.command("map")(learning_order.sample_map)
app.command()(learning_order.store_positions)
app.command()(decide)
app.command()(zoo_add)
app.command()(digits)


@app.callback()
def pages(
    context: typer.Context,
    root: Annotated[Path, typer.Option(help="Folder with results/, docs/ and README.md.")] = CHECKOUT,
) -> None:
    """Build both pages and print the files written."""
    if context.invoked_subcommand is None:
        for path in build(root):
            typer.echo(path.relative_to(root))


if __name__ == "__main__":
    run(app)

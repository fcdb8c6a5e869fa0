"""`hypersparse plan`: the phases of a recipe; nothing is trained."""

from pathlib import Path

import typer
from rich.syntax import Syntax

from hypersparse.cli.console import Console, table
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.recipe_options import RECIPE, RecipeOptions, RunsDir
from hypersparse.runs.describe_plan import describe_plan


@grouped
def plan(
    chosen: RecipeOptions,
    method: str | None = typer.Argument(None, help="art, dense, ... or package.file:Class."),
    sparsity: float | None = typer.Option(
        None, help="Fraction of weights removed, such as 0.98.", rich_help_panel=RECIPE
    ),
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Print the phases with their epochs, and the whole recipe."""
    made = chosen.make(runs_dir, method=method, sparsity=sparsity)
    console = Console()
    console.say(made.label, style="bold")
    console.print(table("phase", "epochs", "learning rate", "what happens", rows=describe_plan(made)))
    console.print(Syntax(made.to_toml(), "toml", background_color="default"))

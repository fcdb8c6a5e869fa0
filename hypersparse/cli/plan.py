"""`hypersparse plan`: what would be trained, before anything is computed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.syntax import Syntax
from rich.table import Table

from hypersparse.cli.console import Console
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.recipe_options import RecipeOptions, RunsDir, Sparsity, make_recipe
from hypersparse.methods.base import Phase
from hypersparse.recipe import Recipe
from hypersparse.sparsity.schedules import cosine


@grouped
def plan(
    chosen: RecipeOptions,
    method: Annotated[str | None, typer.Argument(help="art, dense, ... or package.file:Class.")] = None,
    sparsity: Sparsity = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Print the phases with their epochs, and the whole recipe."""
    made = make_recipe(**vars(chosen), method=method, sparsity=sparsity, runs_dir=runs_dir)
    console = Console()
    console.print(f"[bold]{made.label}[/]", highlight=False)
    console.print(_phases(made))
    console.print(Syntax(made.to_toml(), "toml", background_color="default"))


def _phases(recipe: Recipe) -> Table:
    phases = recipe.plan()
    table = Table("phase", "epochs", "learning rate", "what happens", box=None, pad_edge=False)
    for phase in phases:
        table.add_row(phase.name, _epochs(phase), _rate(phase, recipe), _what_happens(phase))
    least = sum(1 if phase.stop_when else phase.epochs for phase in phases)
    most = sum(phase.epochs for phase in phases)
    table.add_row("total", str(most) if least == most else f"{least} to {most}", "", "")
    return table


def _epochs(phase: Phase) -> str:
    return f"1 to {phase.epochs}" if phase.stop_when else str(phase.epochs)


def _rate(phase: Phase, recipe: Recipe) -> str:
    training, part = recipe.training, phase.lr
    if part.held or training.schedule == "constant":
        return f"{training.lr:g}"
    if training.schedule == "cosine":
        length = part.schedule_epochs or phase.epochs
        ends = (part.schedule_start / length, (part.schedule_start + phase.epochs) / length)
        return " to ".join(f"{training.lr * cosine(end):.4g}" for end in ends) + ", cosine"
    # A phase may be the middle of a schedule; drops before it have happened when it begins.
    places = [
        fraction * (part.schedule_epochs or phase.epochs) - part.schedule_start for fraction in training.milestones
    ]
    first = training.lr * training.gamma ** sum(place <= 0 for place in places)
    at = ", ".join(f"{place:g}" for place in places if 0 < place < phase.epochs)
    return f"{first:g}, x {training.gamma:g} at {at}" if at else f"{first:g}"


def _what_happens(phase: Phase) -> str:
    parts = []
    if words := _words(phase.on_enter):
        parts.append(f"first {words}")
    if phase.reset_optimizer:
        parts.append("fresh momentum")
    if words := _words(phase.on_epoch_start):
        parts.append(f"{words} at the start of every epoch")
    if phase.on_step:
        parts.append(f"{_words(phase.on_step.action)} every {phase.on_step.every} steps")
    if phase.penalty:
        parts.append("a growing penalty on the weights")
    if phase.stop_when:
        parts.append(f"until {_words(phase.stop_when)}")
    if phase.on_exit:
        parts.append(f"then {_words(phase.on_exit)}")
    return ", ".join(parts) or "plain training"


def _words(action: Callable[..., object] | None) -> str:
    """The name of a method's function, or of the one behind a `partial`, as words; nothing where there is none."""
    name: str = "" if action is None else getattr(action, "func", action).__name__
    return name.strip("_").replace("_", " ")

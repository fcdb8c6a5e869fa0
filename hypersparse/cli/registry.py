"""The commands and where they are defined. The list of commands reads docstrings and imports no command."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True)
class Family:
    """Commands with a first word in common."""

    help: str
    commands: "Commands"


@dataclass(frozen=True)
class Analysis:
    """The function `file.function` of `hypersparse.analysis`, as a command that draws its results."""

    place: str
    help: str


Commands = Mapping[str, str | Family | Analysis]
ANALYSES: Commands = {  # with a help that is not read from the function: importing an analysis takes seconds
    "intersection": Analysis("intersection.analyze", "How soon the final mask is found (figure 2 of the paper)."),
    "layers": Analysis("allocation.analyze", "Weights per layer under the network's blocks (figure 3 of the paper)."),
    "accuracy": Analysis("tradeoffs.accuracy", "Accuracy against sparsity, training compute and bytes."),
    "crossing": Analysis("masks.crossings", "Weights that cross the pruning threshold in each epoch."),
    "effective": Analysis("tradeoffs.effective", "Kept weights that lie on a path from input to output."),
    "agreement": Analysis("masks.agreement", "Agreement of the final masks of different seeds."),
    "classes": Analysis("tradeoffs.classes", "Change of accuracy by class."),
}
COMMANDS: Commands = {  # file:function, in the order of the help
    "train": "train:train",
    "compare": "compare:compare",
    "sweep": "sweep:sweep",
    "find": "find:find",
    "tune": "tune:tune",
    "plan": "plan:plan",
    "methods": "methods:methods",
    "runs": "runs:runs",
    "show": "show:show",
    "report": "report:report",
    "analyze": Family("Draw figures and tables from stored runs; nothing is trained.", ANALYSES),
    "paper": "paper:paper",
    "evaluate": "evaluate:evaluate",
    "pack": "pack:pack",
    "unpack": "pack:unpack",
    "export": "export:export",
    "shrink": "shrink:shrink",
    "serve": "serve:serve",
    "zoo": "zoo:zoo",
    "doctor": "doctor:doctor",
}


class Group(TyperGroup):
    """A group that imports only the command that is called."""

    def __init__(self, *, places: Commands = COMMANDS, **settings: Any) -> None:
        super().__init__(**settings)
        self.places = places
        self.commands = {name: TyperCommand(name, help=_help(place)) for name, place in places.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.places)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, _load(str(name), self.places[str(name)]), rest


def _load(name: str, place: str | Family | Analysis) -> Any:
    if isinstance(place, Family):
        return Group(name=name, places=place.commands, help=place.help, no_args_is_help=True)
    alone = typer.Typer(add_completion=False)
    if isinstance(place, Analysis):
        file, _, function = place.place.partition(".")
        analyze = getattr(import_module(f"hypersparse.analysis.{file}"), function)
        alone.command(name, help=place.help)(import_module("hypersparse.cli.analyze").drawing(analyze))
    else:
        file, _, function = place.partition(":")
        alone.command(name)(getattr(import_module(f"hypersparse.cli.{file}"), function))
    return get_command(alone)


def _help(place: str | Family | Analysis) -> str:
    if not isinstance(place, str):
        return place.help
    file, _, function = place.partition(":")
    tree = ast.parse(Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return ast.get_docstring(found) or ""

"""Every command and where it is defined. A help page reads docstrings, so that nothing heavy is loaded for it."""

import ast
from collections.abc import Iterator, Mapping
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
    commands: Mapping[str, str]


ANALYSES = ("gradients", "intersection", "layers", "epochs", "finetuning", "accuracy", "crossing", "effective",
            "agreement", "classes")  # fmt: skip
COMMANDS: Mapping[str, str | Family] = {  # file:function, in the order of the help
    "train": "train:train",
    "compare": "compare:compare",
    "sweep": "sweep:sweep",
    "plan": "plan:plan",
    "methods": "methods:methods",
    "runs": "runs:runs",
    "show": "show:show",
    "report": "report:report",
    "analyze": Family(
        "Draw figures and tables from stored runs; nothing is trained.",
        {name: f"analyze:{name}" for name in ANALYSES}
        | {"positions": "analyze_positions:positions", "map": "analyze_positions:sample_map"},
    ),
    "paper": "paper:paper",
    "evaluate": "evaluate:evaluate",
    "pack": "pack:pack",
    "unpack": "pack:unpack",
    "export": "export:export",
    "shrink": "shrink:shrink",
    "serve": "serve:serve",
    "zoo": "zoo:zoo",
    "doctor": "doctor:doctor",
    "bench": Family(
        "Measure how fast this machine is.", {"train": "bench:train", "inference": "bench_inference:inference"}
    ),
}


class Listed(Mapping[str, Any]):
    """The commands as a help page lists them."""

    def __init__(self, places: Mapping[str, str | Family]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> TyperCommand:
        place = self._places[name]
        return TyperCommand(name, help=place.help if isinstance(place, Family) else _docstring(place))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Group(TyperGroup):
    """Commands of which only the one that is called is loaded."""

    def __init__(self, *, places: Mapping[str, str | Family] = COMMANDS, **settings: Any) -> None:
        super().__init__(**settings)
        self.places = places
        self.commands = Listed(places)  # type: ignore[assignment]  # nothing is added to it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.places)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, _load(str(name), self.places[str(name)]), rest


def _load(name: str, place: str | Family) -> Any:
    if isinstance(place, Family):
        return Group(name=name, places=place.commands, help=place.help, no_args_is_help=True)
    file, _, function = place.partition(":")
    alone = typer.Typer(add_completion=False)
    alone.command(name)(getattr(import_module(f"hypersparse.cli.{file}"), function))
    return get_command(alone)


def _docstring(place: str) -> str:
    file, _, function = place.partition(":")
    tree = ast.parse(Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return ast.get_docstring(found) or ""

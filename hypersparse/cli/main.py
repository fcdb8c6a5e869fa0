"""The `hypersparse` command."""

import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup
from typer.main import get_command

from hypersparse import __version__
from hypersparse.errors import HypersparseError

COMMANDS = {  # in the order of the help, and the file that has them all
    "train": "train",
    "compare": "compare",
    "sweep": "sweep",
    "plan": "plan",
    "methods": "methods",
    "runs": "runs",
    "show": "show",
    "report": "report",
    "analyze": "analyze_positions",
    "paper": "paper",
    "evaluate": "evaluate",
    "pack": "pack",
    "unpack": "pack",
    "export": "export",
    "shrink": "shrink",
    "serve": "serve",
    "zoo": "zoo",
    "bench": "bench_inference",
}


class Commands(Mapping[str, Any]):
    """The commands by name; a file is loaded when its command is asked for, since many bring heavy libraries along."""

    def __getitem__(self, name: str) -> Any:
        found = getattr(import_module(f"hypersparse.cli.{COMMANDS[name]}"), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(name)(found)
            return get_command(alone)
        group = get_command(found)
        group.name = name
        return group

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Group(TyperGroup):
    """All commands; one of them loads only what it needs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # nothing is added to it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


app = typer.Typer(
    name="hypersparse",
    cls=Group,
    help="Train neural networks that are 90 to 99.8 % zeros. Begin with: hypersparse train",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hypersparse {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train neural networks that are 90 to 99.8 % zeros. Begin with: hypersparse train"""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[yellow]warning:[/] {escape(str(message))}", highlight=False)


def run() -> None:
    """Run the command line; what went wrong is one sentence and exit code 2."""
    warnings.showwarning = _show_warning
    try:
        app()
    except HypersparseError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)

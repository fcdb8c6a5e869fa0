"""The `hypersparse` command."""

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from hypersparse import __version__
from hypersparse.cli.console import Console
from hypersparse.cli.output import code_of_failure, standard_streams
from hypersparse.cli.registry import Group
from hypersparse.errors import HypersparseError
from hypersparse.runs.torchrun import says_error

USAGE_ERROR: Any = typer.BadParameter.__base__  # click's UsageError, which typer does not export

app = typer.Typer(
    name="hypersparse",
    cls=Group,
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
    Console(stderr=True).say(str(message), label="warning:", style="yellow")


def run(app: typer.Typer = app) -> None:
    """Run the command line. An error is one sentence and exit code 2."""
    warnings.showwarning = _show_warning
    with standard_streams() as streams:
        code = _run(app) or code_of_failure(streams)
    sys.exit(code)


def _run(app: typer.Typer) -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except HypersparseError as error:
        return _say(str(error))
    except USAGE_ERROR as error:
        context = error.ctx
        if words := error.format_message().strip().rstrip("."):  # empty if the help was printed instead
            command = context.command_path if context else app.info.name
            _say(f"{words}{'' if words.endswith('?') else '.'} `{command} --help` lists the options.")
        return 2
    except OSError as error:
        if error.filename is None:  # without a file name it is a bug
            raise
        return _say(f"{error.filename} cannot be used: {error.strerror}.")


def _say(sentence: str) -> int:
    if says_error(os.environ):
        Console(stderr=True).say(sentence, label="error:", style="bold red")
    return 2

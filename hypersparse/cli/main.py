"""The `hypersparse` command."""

import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from hypersparse import __version__
from hypersparse.cli.analyze import analyze
from hypersparse.cli.analyze_positions import positions, sample_map
from hypersparse.cli.bench import bench
from hypersparse.cli.bench_inference import inference
from hypersparse.cli.compare import compare
from hypersparse.cli.evaluate import evaluate
from hypersparse.cli.export import export
from hypersparse.cli.methods import methods
from hypersparse.cli.pack import pack, unpack
from hypersparse.cli.paper import paper
from hypersparse.cli.plan import plan
from hypersparse.cli.report import report
from hypersparse.cli.runs import runs
from hypersparse.cli.show import show
from hypersparse.cli.shrink import shrink
from hypersparse.cli.sweep import sweep
from hypersparse.cli.train import train
from hypersparse.errors import HypersparseError

app = typer.Typer(
    name="hypersparse",
    help="Train neural networks that are 90 to 99.8 % zeros. Begin with: hypersparse train",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
TRAINING = (train, compare, sweep, plan, methods)
RESULTS = (runs, show, report, paper, evaluate, pack, unpack)
DEPLOYMENT = (export, shrink)
for command in (*TRAINING, *RESULTS, *DEPLOYMENT):
    app.command()(command)
analyze.command()(positions)
analyze.command("map")(sample_map)
bench.command()(inference)
app.add_typer(analyze, name="analyze")
app.add_typer(bench, name="bench")


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

"""`hypersparse serve`: try a network on a local page."""

import os
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hypersparse.cli.console import Console
from hypersparse.cli.load_data import DataDir
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.cli.signals import stopped_by_signals
from hypersparse.cli.trust import TrustCode
from hypersparse.errors import OptionError
from hypersparse.export.sparse_file import exact, load_graph, save_graph
from hypersparse.export.trace import trace
from hypersparse.serve.listen import PORT, listen, names_apart
from hypersparse.serve.network import Served
from hypersparse.training.stop import StopRequest
from hypersparse.zoo.find_network import SUFFIX, in_zoo
from hypersparse_runtime import Graph

LOOK_SECONDS = 0.2  # how often the command looks whether it was asked to stop


def serve(
    networks: Annotated[
        list[str], typer.Argument(help="Files such as model.hsp, runs (folder or name), or names of `hypersparse zoo`.")
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help=f"{PORT} or the next free one if not said; 0 for any."),
    ] = None,
    browser: Annotated[
        bool | None,
        typer.Option("--open/--no-browser", help="Open the page in a browser; by default where there is a screen."),
    ] = None,
    trust_code: TrustCode = False,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Try networks on a local page: draw or drop an image, and see the sparse network beside the dense one."""
    asked = NetworkQuery(data_dir=data_dir, runs_dir=runs_dir, trust_code=trust_code)
    console = Console(soft_wrap=True, highlight=False)
    opened = [_open(name, asked, console) for name in networks]
    names = names_apart([path for path, _, _ in opened])
    served = [Served(name, graph, size) for name, (_, graph, size) in zip(names, opened, strict=True)]
    stop = StopRequest()
    with stopped_by_signals(stop), listen(served, host, port).running() as server:
        console.print(f"{escape(', '.join(names))} at [bold]{server.address}[/]  [dim]Ctrl-C ends it[/]")
        if not server.is_local:
            console.print("[yellow]Other machines can reach it too, without a password.[/]")
        if browser if browser is not None else _has_screen():
            webbrowser.open(server.address)
        while not stop.requested():
            threading.Event().wait(LOOK_SECONDS)
    console.print(f"Stopped ({stop.reason}).")


def _open(name: str, asked: NetworkQuery, console: Console) -> tuple[Path, Graph, int]:
    """Where a network lies, itself and its bytes; a run's as `hypersparse export` would write it."""
    path = in_zoo(name) or Path(name)
    if path.suffix == SUFFIX:
        return path, load_graph(path), path.stat().st_size
    if path.is_file():
        raise OptionError(
            f"What is served is a run or an .hsp file; {name} is neither. `hypersparse export` makes one."
        )
    stored = open_network(name, asked, unfinished=True)
    if stored.note:
        console.print(f"[yellow]{escape(str(stored.path.parent))} is {stored.note}.[/]")
    graph = exact(trace(stored.model, stored.dataset.shape, stored.about()))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"network{SUFFIX}"
        size = save_graph(graph, file)
        return stored.path.parent, load_graph(file), size


def _has_screen() -> bool:
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

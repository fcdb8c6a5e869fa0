"""`hypersparse serve`: try a network on a local page."""

import os
import sys
import threading
import webbrowser
from pathlib import Path

import typer
from rich.markup import escape

from hypersparse.cli.console import Console
from hypersparse.cli.load_data import DataDir
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.cli.signals import stopped_by_signals
from hypersparse.cli.trust import TrustCode
from hypersparse.errors import OptionError
from hypersparse.export.sparse_file import exact, file_bytes, load_graph
from hypersparse.export.trace import trace
from hypersparse.serve.listen import PORT, listen, names_apart
from hypersparse.serve.network import Served
from hypersparse.training.stop import StopRequest
from hypersparse.zoo.find_network import SUFFIX, in_zoo
from hypersparse_runtime import Graph
from hypersparse_runtime.file import unpack

LOOK_SECONDS = 0.2  # between checks for a signal


def serve(
    networks: list[str] = typer.Argument(
        help="Files such as model.hsp, runs (folder or name), or names of `hypersparse zoo`."
    ),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; 0.0.0.0 lets other machines in."),
    port: int | None = typer.Option(
        None, min=0, max=65535, help=f"By default {PORT} or the next free port; 0 for any free port."
    ),
    browser: bool | None = typer.Option(
        None, "--open/--no-browser", help="Open the page in a browser; by default if there is a screen."
    ),
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
    """The path, graph and size of a network; a run's network as `hypersparse export` writes it."""
    path = in_zoo(name) or Path(name)
    if path.suffix == SUFFIX:
        return path, load_graph(path), path.stat().st_size
    if path.is_file():
        raise OptionError(f"`serve` takes a run or an .hsp file; got {name}. `hypersparse export` writes one.")
    stored = open_network(name, asked, unfinished=True)
    if stored.note:
        console.say(f"{stored.path.parent} is {stored.note}.", style="yellow")
    content = file_bytes(exact(trace(stored.model, stored.dataset.shape, stored.about())))
    return stored.path.parent, unpack(content), len(content)


def _has_screen() -> bool:
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

"""`hypersparse zoo`: trained sparse networks that come with the package, and how they get there."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from hypersparse import zoo as networks
from hypersparse.cli.console import table_console
from hypersparse.cli.formats import count, percent
from hypersparse.cli.load_data import DataDir
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.cli.trust import TrustCode
from hypersparse.errors import OptionError
from hypersparse.runs.store import RunStore
from hypersparse.zoo.build import add as make_entry


def zoo(
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", file_okay=False, help="Another folder than the package's, such as a sweep's --networks."
        ),
    ] = None,
    add: Annotated[str | None, typer.Option("--add", help="Put the network of this finished run there.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="With --add: what to call it.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="With --add: take the place of one of that name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    trust_code: TrustCode = False,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """List trained sparse networks; `hypersparse.zoo.load(NAME)` loads one."""
    place = folder or networks.FOLDER
    if add is None and (name is not None or replace):
        raise OptionError("`--name` and `--replace` go with `--add RUN`.")
    if add is not None:
        run = RunStore(runs_dir).find(add)
        asked = NetworkQuery(data_dir=data_dir, runs_dir=runs_dir, trust_code=trust_code)
        found = [make_entry(run, open_network(str(run.path), asked, quiet=as_json), place, name=name, replace=replace)]
    else:
        if not place.is_dir():
            raise OptionError(f"There is no folder {place}; `hypersparse zoo --add RUN --folder` makes one.")
        found = networks.entries(place)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(entry) for entry in found], indent=1))
    elif found:
        _print_table(found)
    else:
        typer.echo(networks.nothing_in(place))


def _print_table(found: Sequence[networks.Entry]) -> None:
    console = table_console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    for column in ("sparsity", "kept", "last %", "best %", "file %", "bytes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("recipe", overflow="fold")
    table.add_column("seed", justify="right")
    for entry in found:
        numbers = [f"{entry.sparsity:.4g}", count(entry.kept)]
        method = entry.recipe.removeprefix(f"{entry.data}-{entry.model}-")  # the name says the rest
        shares = [percent(share) for share in (entry.last, entry.best, entry.test_accuracy)]
        table.add_row(escape(entry.name), *numbers, *shares, count(entry.bytes), escape(method), str(entry.seed))
    console.print(table)
    picked = " or ".join(sorted({entry.best_picked_on for entry in found}))
    console.print(
        f"Accuracy on test images: of the last epoch, whose network this is; of the best one, picked on {picked} "
        "images; and of the file, in the sparse runtime.",
        style="dim", highlight=False,
    )  # fmt: skip

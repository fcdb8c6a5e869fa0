"""`hypersparse zoo`: the trained sparse networks of the package."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markup import escape

from hypersparse import zoo as networks
from hypersparse.cli.console import table, table_console
from hypersparse.cli.formats import count, percent
from hypersparse.cli.load_data import DataDir
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.cli.trust import TrustCode
from hypersparse.errors import OptionError
from hypersparse.runs.store import RunStore
from hypersparse.zoo.build import add as make_entry


def zoo(
    folder: Path | None = typer.Option(
        None, file_okay=False, help="A folder other than the package's, such as a sweep's --networks."
    ),
    add: str | None = typer.Option(None, help="Add the network of this finished run."),
    name: str | None = typer.Option(None, help="With --add: the name of the network."),
    replace: bool = typer.Option(False, "--replace", help="With --add: replace a network of that name."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON list."),
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
    shown = table("name", ">sparsity", ">kept", ">last %", ">best %", ">file %", ">bytes", "recipe", ">seed")
    shown.columns[0].no_wrap = True
    for entry in found:
        numbers = [f"{entry.sparsity:.4g}", count(entry.kept)]
        method = entry.recipe.removeprefix(f"{entry.data}-{entry.model}-")  # data and model are in the name
        shares = [percent(share) for share in (entry.last, entry.best, entry.test_accuracy)]
        shown.add_row(escape(entry.name), *numbers, *shares, count(entry.bytes), escape(method), str(entry.seed))
    console.print(shown)
    picked = " or ".join(sorted({entry.best_picked_on for entry in found}))
    console.print(
        f"Test accuracy of the last epoch, which has this network; of the best one, picked on {picked} images; "
        "and of the file, in the sparse runtime.",
        style="dim", highlight=False,
    )  # fmt: skip

"""`hypersparse shrink`: the same network without what its zeros make pointless."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from hypersparse.cli.console import Console, table_console
from hypersparse.cli.export import FEW_IMAGES, Images
from hypersparse.cli.load_network import NetworkQuery, open_to_write
from hypersparse.cli.option_groups import grouped
from hypersparse.errors import ModelError
from hypersparse.export.formats import format_of
from hypersparse.export.shrink import Layer, Shrunk, shrink_graph
from hypersparse.export.trace import trace
from hypersparse.export.trained_model import TrainedModel
from hypersparse.export.verify import RANDOM_INPUTS, PredictionCheck, difference

CLOSE = 1e-5  # largest difference of an output, of the largest output


@grouped
def shrink(
    network: Annotated[
        str, typer.Argument(help="A run (folder or name), an .hsp or .safetensors file, or a name of the zoo.")
    ],
    asked: NetworkQuery,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", dir_okay=False, help="Where to write it: .hsp, .onnx, .c or .safetensors."),
    ] = None,
    images: Images = FEW_IMAGES,
) -> None:
    """Remove dead channels, constants, layers and branches exactly, and show what vanished and why."""
    chosen = None if out is None else format_of(out)
    stored = open_to_write(network, asked, tested=images != 0)
    found = shrink_graph(trace(stored.model, stored.shape, stored.about()))
    console = table_console()
    print_layers(console, found.layers)
    _print_sums(console, found)
    small = found.module()
    apart = difference(stored.model, small, stored.shape)
    if not apart <= CLOSE:
        raise ModelError(f"The smaller network's outputs differ by {apart:.1g} of the largest; nothing was written.")
    console.print(f"Outputs for {RANDOM_INPUTS} random inputs differ by {apart:.1g} of the largest.", soft_wrap=True)
    if images != 0 and isinstance(stored, TrainedModel):
        sentence = PredictionCheck(stored, FEW_IMAGES if images is None else images).sentence(small)
        console.print(f"{sentence}.", soft_wrap=True, highlight=False)
    if chosen and out:
        size = chosen.write(found.graph, out, None)
        console.print(f"{out}: {size:,} bytes", markup=False, highlight=False, soft_wrap=True)


def print_layers(console: Console, layers: Sequence[Layer]) -> None:
    """What became of each layer, as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("layer", overflow="fold")
    for name in ("inputs", "outputs", "unread", "constant", "weights"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("gone because", overflow="fold")
    for layer in layers:
        counts = (layer.inputs, layer.outputs)
        table.add_row(
            escape(layer.name),
            *(_change(before, after) for before, after in counts),
            *(str(number) if number else "" for number in (layer.unread, layer.constant)),
            _change(*layer.weights),
            layer.why,
        )
    console.print(table, highlight=False)
    console.print(
        "unread, constant: output channels that went because nothing reads them, or because they do not depend on the "
        "input and are now numbers in the layers that read them.",
        style="dim",
        soft_wrap=True,
    )


def _print_sums(console: Console, found: Shrunk) -> None:
    before, after = found.parameters
    weights = [sum(layer.weights[side] for layer in found.layers) for side in (0, 1)]
    gone = sum(bool(layer.why) for layer in found.layers)
    console.print(
        f"{_change(before, after)} parameters, {_change(*weights)} weights that are not zero, "
        f"{gone} of {len(found.layers)} layers gone; batch norm folded.",
        highlight=False,
        soft_wrap=True,
    )


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"

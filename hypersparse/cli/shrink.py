"""`hypersparse shrink`: remove the structure that the zeros of a network make redundant."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markup import escape

from hypersparse.cli.console import Console, table, table_console
from hypersparse.cli.load_network import Network, WriteQuery, open_to_write
from hypersparse.cli.option_groups import grouped
from hypersparse.errors import ModelError
from hypersparse.export.formats import format_of
from hypersparse.export.shrink import LayerChange, Shrunk, shrink_graph
from hypersparse.export.trace import trace
from hypersparse.export.verify import RANDOM_INPUTS, difference

CLOSE = 1e-5  # largest difference of an output, of the largest output


@grouped
def shrink(
    network: Network,
    asked: WriteQuery,
    out: Path | None = typer.Option(
        None, "--out", "-o", dir_okay=False, help="The file to write: .hsp, .onnx, .c or .safetensors."
    ),
) -> None:
    """Remove dead channels, constants, layers and branches exactly, and show what was removed and why."""
    chosen = None if out is None else format_of(out)
    stored, check = open_to_write(network, asked)
    found = shrink_graph(trace(stored.model, stored.shape, stored.about()))
    console = table_console()
    print_layers(console, found.layers)
    _print_sums(console, found)
    small = found.module()
    apart = difference(stored.model, small, stored.shape)
    if not apart <= CLOSE:
        raise ModelError(f"The smaller network's outputs differ by {apart:.1g} of the largest; nothing was written.")
    console.say(f"Outputs for {RANDOM_INPUTS} random inputs differ by {apart:.1g} of the largest.")
    if check:
        console.say(f"{check.sentence(small)}.")
    if chosen and out:
        size = chosen.write(found.graph, out, None)
        console.say(f"{out}: {size:,} bytes")


def print_layers(console: Console, layers: Sequence[LayerChange]) -> None:
    """Print the channels and weights of each layer before and after."""
    shown = table("layer", ">inputs", ">outputs", ">unread", ">constant", ">weights", "removed because")
    for layer in layers:
        counts = (layer.inputs, layer.outputs)
        shown.add_row(
            escape(layer.name),
            *(_change(before, after) for before, after in counts),
            *(str(number) if number else "" for number in (layer.unread, layer.constant)),
            _change(*layer.weights),
            layer.why,
        )
    console.print(shown, highlight=False)
    console.say(
        "unread, constant: removed output channels that nothing reads, or that do not depend on the input and became "
        "constants of the layers that read them.",
        style="dim",
    )


def _print_sums(console: Console, found: Shrunk) -> None:
    before, after = found.parameters
    weights = [sum(layer.weights[side] for layer in found.layers) for side in (0, 1)]
    gone = sum(bool(layer.why) for layer in found.layers)
    console.say(
        f"{_change(before, after)} parameters, {_change(*weights)} weights that are not zero, "
        f"{gone} of {len(found.layers)} layers removed; batch norm folded."
    )


def _change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"

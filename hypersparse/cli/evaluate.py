"""`hypersparse evaluate`: how good a stored network is."""

import json
from math import isfinite
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape
from rich.table import Table
from torch import nn

from hypersparse.cli.console import table_console
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.training_options import Device, Precision
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.evaluate import evaluate as score
from hypersparse.training.loaders import EvalLoader
from hypersparse.training.machine import Machine


@grouped
def evaluate(
    network: Annotated[
        str,
        typer.Argument(help="A run (folder or name), a file (.hsp, .safetensors, a state_dict), or a name of the zoo."),
    ],
    asked: NetworkQuery,
    device: Device = "auto",
    precision: Precision = "fp32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Accuracy of a stored network on the test images."""
    stored = open_network(network, asked, quiet=as_json)
    recipe, dataset, built = stored.recipe, stored.dataset, stored.model
    machine = Machine(device=device, precision=precision)  # type: ignore[arg-type]  # checked by Machine
    with machine.active() as where, machine.autocast():
        found = score(built.to(where), EvalLoader(dataset.test, dataset, where))
    _report(
        {
            "file": str(stored.path),
            "data": recipe.data.name,
            "model": recipe.model.name,
            "images": len(dataset.test),
            "test_accuracy": found.accuracy,
            "test_loss": found.loss if isfinite(found.loss) else None,  # JSON has no NaN
            **_counts(built),
            # A file without its dead structure has fewer weights in all, so that its own share of zeros is another.
            "recipe_sparsity": recipe.method.sparsity,
        },
        as_json,
    )


def _counts(model: nn.Module) -> dict[str, Any]:
    weights = PrunableWeights(model)
    kept = sum(int(torch.count_nonzero(weight)) for weight in weights.values())
    return {"kept": kept, "total": weights.total, "sparsity": 1 - kept / weights.total}


def _report(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")  # a long path is wrapped, not cut
    for name, value in found.items():
        if value is None:
            continue
        shown = f"{value:.4f}" if isinstance(value, float) else escape(str(value))
        if name == "test_accuracy":
            shown = f"[bold]{100 * value:.2f} %[/]"
        table.add_row(name.replace("_", " "), shown)
    table_console().print(table)

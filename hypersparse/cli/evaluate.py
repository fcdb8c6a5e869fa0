"""`hypersparse evaluate`: the test accuracy of a stored network."""

from math import isfinite

import torch
from rich.markup import escape

from hypersparse.analysis.tables import column_title, plain_text
from hypersparse.cli.console import AsJson, Console, print_json, table, table_console
from hypersparse.cli.formats import percent
from hypersparse.cli.load_network import Network, NetworkQuery, open_network
from hypersparse.cli.option_groups import grouped
from hypersparse.cli.training_options import Device, Precision
from hypersparse.plurals import how_many
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.evaluate import evaluate as score
from hypersparse.training.loaders import EvalLoader
from hypersparse.training.machine import Machine

WITHOUT_DEAD_STRUCTURE = (
    "The dead structure of the trained network is not in the file, so the file has fewer weights, and a lower sparsity."
)


@grouped
def evaluate(
    network: Network,
    asked: NetworkQuery,
    device: Device = "auto",
    precision: Precision = "fp32",
    as_json: AsJson = False,
) -> None:
    """Accuracy of a stored network on the test images."""
    stored = open_network(network, asked, quiet=as_json)
    recipe, dataset, built = stored.recipe, stored.dataset, stored.model
    machine = Machine(device=device, precision=precision)  # type: ignore[arg-type]  # checked by Machine
    wait = Console(stderr=True).status(how_many(len(dataset.test), "image"))
    with wait, machine.active() as where, machine.autocast():
        found = score(built.to(where), EvalLoader(dataset.test, dataset, where, workers=machine.loading_workers()))
    weights = PrunableWeights(built)
    kept = sum(int(torch.count_nonzero(weight)) for weight in weights.values())
    sparsity = 1 - kept / weights.total
    facts = {
        "file": str(stored.path),
        "data": recipe.data.name,
        "model": recipe.model.name,
        "images": len(dataset.test),
        "test_accuracy": found.accuracy,
        "test_loss": found.loss if isfinite(found.loss) else None,  # JSON has no NaN
        "kept": kept,
        "total": weights.total,
        "sparsity": sparsity,
        "recipe_sparsity": recipe.method.sparsity,
    }
    if as_json:
        print_json(facts)
    else:
        shown = {**facts, "test_accuracy": f"{percent(found.accuracy)} %"}
        rows = [(column_title(name), escape(plain_text(value))) for name, value in shown.items() if value is not None]
        table_console().print(table("", "", rows=rows, show_header=False))
        if sparsity < (recipe.method.sparsity or 0.0) - 1 / weights.total:
            print(WITHOUT_DEAD_STRUCTURE)

"""`hypersparse evaluate`: how good a stored network is."""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError, safe_open
from torch import nn

from hypersparse.cli.choices import DataDir, DataName, ModelName, RunsDir, Settings, data_folders, make_recipe
from hypersparse.cli.display import load_data
from hypersparse.cli.train import Device, Precision
from hypersparse.errors import ModelError, OptionError
from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.evaluate import evaluate as score
from hypersparse.training.images import Clean
from hypersparse.training.machine import Machine
from hypersparse.training.network import build_network
from hypersparse.training.weights_file import STATE_DICTS, load_weights_


def evaluate(
    network: Annotated[str, typer.Argument(help="A run (folder or name), a .safetensors file or a state_dict.")],
    data: DataName = None,
    model: ModelName = None,
    settings: Settings = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
    device: Device = "auto",
    precision: Precision = "fp32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Accuracy of a stored network on the test images."""
    path = _file(network, runs_dir)
    recipe = _stored_recipe(path)
    if recipe is None or data or model or settings:
        recipe = _asked_recipe(path, recipe, data, model, settings, runs_dir)
    machine = Machine(device=device, precision=precision)  # type: ignore[arg-type]  # checked by Machine
    dataset = load_data(recipe, data_folders(data_dir), quiet=as_json or not Console().is_terminal)
    built = build_network(recipe, shape=dataset.shape, classes=len(dataset.classes))
    load_weights_(built, path)
    with machine.active() as where, machine.autocast():
        found = score(built.to(where), Clean(dataset.test, dataset, where))
    _report(
        {
            "file": str(path),
            "data": recipe.data.name,
            "model": recipe.model.name,
            "images": len(dataset.test),
            "test_accuracy": found.accuracy,
            "test_loss": found.loss,
            **_counts(built),
        },
        as_json,
    )


def _file(network: str, runs_dir: Path) -> Path:
    path = Path(network)
    if path.is_file():
        return path
    if path.suffix in (".safetensors", *STATE_DICTS):
        raise ModelError(f"There is no file {network}.")
    final = RunStore(runs_dir).find(network).final_file
    if not final.is_file():
        raise ModelError(f"{final.parent} has no final network yet; finish the run first.")
    return final


def _stored_recipe(path: Path) -> Recipe | None:
    try:
        with safe_open(str(path), "pt") as file:
            text = (file.metadata() or {}).get("recipe")
    except (SafetensorError, OSError):
        return None
    return Recipe.from_toml(text) if text else None


def _asked_recipe(
    path: Path,
    stored: Recipe | None,
    data: str | None,
    model: str | None,
    settings: list[str] | None,
    runs_dir: Path,
) -> Recipe:
    if stored is None and data is None:
        raise OptionError(f"{path.name} does not say what it was trained on; pass --data and --model.")
    return make_recipe(
        data=data or (stored.data.name if stored else None),
        model=model or (stored.model.name if stored else None),
        settings=[
            *([f"model.{name}={json.dumps(value)}" for name, value in stored.model.options.items()] if stored else []),
            *(settings or []),
        ],
        runs_dir=runs_dir,
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
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        if name == "test_accuracy":
            shown = f"[bold]{100 * value:.2f} %[/]"
        table.add_row(name.replace("_", " "), shown)
    Console().print(table)

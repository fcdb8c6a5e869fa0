"""What a run reports: accuracies of the last and the best epoch, counts, times, versions."""

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hypersparse.recipe import Recipe
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.machine import Machine

Entry = dict[str, Any]


def summarize(entries: Sequence[Entry], picked_on: str) -> dict[str, Any] | None:
    """Last and best epoch of a stretch of training; the best one is picked on `picked_on`."""
    if not entries:
        return None
    best = max(entries, key=lambda entry: float(entry[picked_on]))
    return {
        "phase": entries[-1]["phase"],
        "last": entries[-1]["test_accuracy"],
        "last_epoch": entries[-1]["epoch"],
        "best": best["test_accuracy"],
        "best_epoch": best["epoch"],
        "best_picked_on": picked_on.removesuffix("_accuracy"),
    }


def make_result(
    recipe: Recipe, seed: int, machine: Machine, entries: Sequence[Entry], weights: PrunableWeights
) -> dict[str, Any]:
    """Everything worth keeping of a finished run, without its weights."""
    picked_on = "validation_accuracy" if recipe.data.validation else "test_accuracy"
    phases = list(dict.fromkeys(entry["phase"] for entry in entries))
    mask = weights.mask
    final = entries[-1]["kept"] if entries else weights.total
    # Some methods prune little by little, or by turns: only networks as sparse as the last one compare with it.
    sparse = [entry for entry in entries if entry["stage"] == "sparse" and entry["kept"] <= final]
    kept = mask.kept_by_layer() if mask else {name: weight.numel() for name, weight in weights.items()}
    return {
        "label": recipe.label,
        "key": recipe.key,
        "seed": seed,
        "until": recipe.until,
        "data": recipe.data.name,
        "model": recipe.model.name,
        "method": recipe.method.name,
        "ablation": recipe.ablation.name,
        "dense": summarize([entry for entry in entries if entry["stage"] == "dense"], picked_on),
        "sparse": summarize(sparse, picked_on),
        "total": weights.total,
        "kept": sum(kept.values()),
        "sparsity": 1 - sum(kept.values()) / weights.total,
        "kept_by_layer": kept,
        "total_by_layer": {name: weight.numel() for name, weight in weights.items()},
        "epochs": {name: sum(entry["phase"] == name for entry in entries) for name in phases},
        "epochs_total": len(entries),
        "wall_seconds": sum(entry["seconds"] for entry in entries),
        "shared_seconds": sum(entry["seconds"] for entry in entries if entry.get("shared")),  # spent by an earlier run
        "wall_seconds_by_phase": {
            name: sum(entry["seconds"] for entry in entries if entry["phase"] == name) for name in phases
        },
        "machine": describe(machine),
        "recipe": recipe.to_mapping(),
    }


def describe(machine: Machine) -> dict[str, Any]:
    """The machine and the versions a run was made with."""
    from hypersparse import __version__

    device = machine.torch_device()
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "precision": machine.precision,
        "engine": machine.chosen_engine(),
        "deterministic": machine.deterministic,
        "threads": torch.get_num_threads(),
        "hypersparse": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git": _git_state(),
    }


def _git_state() -> str | None:
    """The commit of the checkout this package lies in, marked where files were changed."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None

"""The result of a run: accuracies of the last and the best epoch, counts, times, versions."""

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from hypersparse.recipe import Recipe
from hypersparse.sparsity.connectivity import find_paths
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.record import write_record
from hypersparse.storage.run_folder import times_of
from hypersparse.storage.schemas import Entry, Result, Summary
from hypersparse.storage.weights_io import save_weights
from hypersparse.training.flop_counter import inference_cost, total_cost
from hypersparse.training.machine import Machine

if TYPE_CHECKING:
    from hypersparse.training.loop import Training

PACKAGES = ("hypersparse", "hypersparse_runtime")
SOURCE = (".py", ".c", ".h", ".toml")  # what decides a result
DIGITS = 16  # of a digest


def summarize(entries: Sequence[Entry], picked_on: str) -> Summary | None:
    """The last and the best of some epochs; the best one is picked on `picked_on`."""
    if not entries:
        return None
    best = max(entries, key=lambda entry: accuracy(entry, picked_on))
    return {
        "phase": entries[-1]["phase"],
        "last": entries[-1]["test_accuracy"],
        "last_epoch": entries[-1]["epoch"],
        "best": best["test_accuracy"],
        "best_epoch": best["epoch"],
        "best_picked_on": picked_on.removesuffix("_accuracy"),
    }


def accuracy(entry: Entry, picked_on: str) -> float:
    """Accuracy of an epoch on the images that pick the best one."""
    return entry.get("validation_accuracy", 0.0) if picked_on == "validation_accuracy" else entry["test_accuracy"]


def make_result(
    recipe: Recipe, seed: int, machine: Machine, entries: Sequence[Entry], weights: PrunableWeights
) -> dict[str, Any]:
    """The result of a finished run, without its weights."""
    picked_on = "validation_accuracy" if recipe.data.validation else "test_accuracy"
    phases = list(dict.fromkeys(entry["phase"] for entry in entries))
    mask = weights.mask
    final = entries[-1]["kept"] if entries else weights.total
    # Some methods prune gradually or in turns: only networks as sparse as the last one are comparable.
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
        **times_of(entries),
        "machine": describe(machine),
        "recipe": recipe.to_mapping(),
    }


def describe(machine: Machine) -> dict[str, Any]:
    """The machine and the versions that train a run."""
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
        "code": code_version(),
    }


@cache
def code_version() -> str:
    """The commit of the package's checkout; without one the version and a digest of the source.

    The digest is added if files of the checkout were changed.
    """
    from hypersparse import __version__

    commit = _commit()
    if commit and not commit.endswith("-dirty"):
        return commit
    return f"{commit or __version__}+sha256.{_digest_of_source()}"


def _commit() -> str | None:
    """The commit, marked if files were changed; None if this file is not tracked."""
    here = Path(__file__)
    return _git(here, "ls-files", "--error-unmatch", here.name) and _git(
        here, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
    )


def _git(file: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(file.parent), *command], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _digest_of_source() -> str:
    root = Path(__file__).parents[2]
    found = hashlib.sha256()
    for file in sorted(file for package in PACKAGES for file in (root / package).rglob("*") if file.suffix in SOURCE):
        found.update(f"{file.relative_to(root).as_posix()} {file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()[:DIGITS]


def write_result(training: "Training", at_end: dict[str, float]) -> Result:
    """Write the final network and, last, the result."""
    training.run.check_lock()
    weights = training.sparsifier.weights
    paths = find_paths(training.model, weights.mask or Mask.all_kept(weights), training.input_shape)
    result: dict[str, Any] = make_result(training.recipe, training.seed, training.machine, training.entries, weights)
    result["classes"] = list(training.classes)
    result["machine"] |= {"ranks": training.ranks.size} if training.ranks.several else {}
    result |= {"effective_kept": paths.effective_kept, "effective_sparsity": paths.effective_sparsity}
    result |= {**total_cost(training.entries), **inference_cost(training.flop_counter.cost, result["kept_by_layer"])}
    metadata = {"recipe": training.recipe.to_toml(), "seed": str(training.seed)}
    result["final_bytes"] = save_weights(training.run.final_file, weights, metadata)
    result["dense_bytes"] = sum(tensor.nbytes for tensor in training.model.state_dict().values())
    result["at_end"] = at_end
    if training.recorder:
        write_record(training.run.record_file, training.recorder.record(training.entries, weights.mask))
    training.run.write_result(finished := cast("Result", result))
    if training.recipe.until is None:
        training.run.delete_checkpoints()
    return finished

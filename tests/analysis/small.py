"""Stored runs of a network with two layers, written by hand."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from hypersparse.analysis.finished_runs import FinishedRun, load
from hypersparse.data.npz_file import Arrays
from hypersparse.recipe import resolve
from hypersparse.storage.record import write_record
from hypersparse.storage.run_folder import RunFolder
from tests.stored import whole_entry, whole_record, whole_result

PHASES = ["pre-train", "pre-train", "regularize", "regularize", "fine-tune"]
TOTALS = {"conv1.weight": 20, "linear.weight": 80}


def record(**changed: Any) -> Arrays:
    """Five epochs; the final mask is that of epoch 3."""
    arrays: dict[str, Any] = {
        "phase": np.array(PHASES),
        "sparsity": np.array(0.9),
        "keep": np.array(10),
        "crossed": np.array([-1, 4, 3, 1, -1]),
        "intersection": np.array([0.2, 0.5, 0.9, 1.0, np.nan]),
        "final_sample": np.packbits([True] * 10 + [False] * 90),
        "curve_epochs": np.array([2]),
        "curve_place": np.array([0.1, 0.7, 0.95]),
        "curve_magnitude": np.array([[0.1, 0.2, 0.9]]),
        "curve_gradient": np.array([[1.2, 1.0, 0.1]]),
        "class_correct": np.array([[1, 1]] * 4 + [[9, 5]]),
        "class_total": np.array([10, 10]),
    }
    return whole_record(**arrays | changed)


def write(
    root: Path,
    *,
    method: str = "art",
    sparsity: float = 0.9,
    seed: int = 0,
    arrays: Arrays | None = None,
    **changed: Any,
) -> FinishedRun:
    """A finished run in its folder, read back."""
    table = {"name": method} | ({} if method == "dense" else {"sparsity": sparsity})
    options = changed.pop("method_options", {})
    model = {"model": {"name": changed.pop("model")}} if "model" in changed else {}
    recipe = resolve({"data": {"name": changed.pop("data", "digits")}, "method": table | options, **model})
    folder = RunFolder(root / recipe.label / f"seed-{seed}")
    folder.path.mkdir(parents=True)
    folder.write_recipe(recipe, seed)
    kept = 100 if method == "dense" else 10
    result: dict[str, Any] = {
        "epochs": dict(Counter(PHASES)),
        "label": recipe.label,
        "seed": seed,
        "dense": {"last": 0.6, "best": 0.7},
        "sparse": None if method == "dense" else {"last": 0.7, "best": 0.75},
        "total": 100,
        "kept": kept,
        "kept_by_layer": dict(TOTALS) if method == "dense" else {"conv1.weight": 4, "linear.weight": 6},
        "total_by_layer": TOTALS,
        "effective_kept": kept - 1,
        "training_flops": 1e9,
        "final_bytes": 500,
    }
    phases = [phase for phase, count in changed.get("epochs", Counter(PHASES)).items() for _ in range(count)]
    seconds = changed.pop("wall_seconds", 5.0) / len(phases)
    for number, phase in enumerate(phases):
        best = {"best_epoch": 1} if phase == "regularize" else {}
        folder.append_log(whole_entry(epoch=number, phase=phase, test_accuracy=0.4, seconds=seconds, **best))
    write_record(folder.record_file, record() if arrays is None else arrays)
    folder.write_result(whole_result(**result | changed))
    return load([folder.path])[0]

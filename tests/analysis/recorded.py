"""Finished runs with a record made by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from hypersparse.analysis.finished_runs import FinishedRun, load
from hypersparse.data.dataset import Dataset, Split
from hypersparse.recipe import resolve
from hypersparse.storage.record import write_record
from hypersparse.storage.run_folder import RunFolder
from tests.stored import whole_record, whole_result

CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def store(
    root: Path,
    *,
    dense: Any = (),
    pruned: Any = (),
    sparsity: float = 0.9,
    seed: int = 0,
    data: str = "digits",
    validation: int = 0,
    method: str = "art",
) -> Path:
    """A run of two epochs of pre-training and two with a penalty; `dense` and `pruned` count right epochs."""
    recipe = resolve(
        {
            "data": {"name": data, "validation": validation},
            "method": {"name": method, "sparsity": sparsity} if method == "art" else {"name": method},
        }
    )
    folder = RunFolder(root / recipe.label / f"seed-{seed}")
    folder.path.mkdir(parents=True)
    folder.write_recipe(recipe, seed)
    record = {
        "phase": np.array(["pre-train", "pre-train", "regularize", "regularize", "fine-tune"]),
        "sparsity": np.array(sparsity if method == "art" else np.nan),
        "dense_correct": np.array(dense, dtype=np.uint16),
        "dense_epochs": np.array(2 if len(dense) else 0),
        "pruned_correct": np.array(pruned, dtype=np.uint16),
        "pruned_epochs": np.array(2 if len(pruned) else 0),
        "class_correct": np.array([[row + column for column in range(10)] for row in range(5)], dtype=np.int32),
        "class_total": np.full(10, 20, dtype=np.int32),
    }
    write_record(folder.record_file, whole_record(**record))
    folder.write_result(whole_result(seed=seed, sparsity=sparsity))
    return folder.path


def runs_in(root: Path) -> list[FinishedRun]:
    return load(sorted(root.glob("*/seed-*")))


def dataset(labels: list[int], *, name: str = "cifar10", classes: tuple[str, ...] = CIFAR) -> Dataset:
    split = Split(torch.arange(len(labels) * 4, dtype=torch.uint8).reshape(-1, 1, 2, 2), torch.tensor(labels))
    return Dataset(name, split, split, classes, (0.5,), (0.5,))

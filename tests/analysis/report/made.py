"""Run folders written by hand: what training leaves, in a millisecond and with numbers that are known."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypersparse.recipe import merge, resolve
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry
from tests.stored import whole_entry, whole_result

TOTAL, KEPT, DENSE = 1000, 100, 0.8  # weights of a layer, those kept, and the accuracy before pruning


def make_run(
    root: Path,
    *,
    method: str = "art",
    sparsity: float | None = 0.9,
    seed: int = 0,
    last: float = 0.9,
    epochs: int = 10,
    layers: int = 3,
    finished: bool = True,
    label: str | None = None,
    tables: Mapping[str, Any] | None = None,
) -> RunFolder:
    """A run whose last epoch has this accuracy and whose best, two epochs before, one point more."""
    chosen = {"name": method, **({} if sparsity is None else {"sparsity": sparsity})}
    recipe = resolve(merge({"data": {"name": "cifar10"}, "method": chosen}, tables or {}))
    run = RunFolder(root / label / f"seed-{seed}") if label else RunStore(root).folder(recipe, seed)
    run.path.mkdir(parents=True)
    run.write_recipe(recipe, seed)
    entries = [_entry(epoch, epochs, last, layers, dense=sparsity is None) for epoch in range(epochs)]
    for entry in entries[: epochs if finished else -3]:
        run.append_log(entry)
    if finished:
        result = _result(entries, last, layers, dense=sparsity is None)
        known = {"label": recipe.label, "key": recipe.key, "seed": seed, "recipe": recipe.to_mapping()}
        named = {"data": recipe.data.name, "model": recipe.model.name, "method": recipe.method.name}
        run.write_result(whole_result(**known, **named, **result))
    return run


def _entry(epoch: int, epochs: int, last: float, layers: int, *, dense: bool) -> Entry:
    pressed, tuned = int(0.3 * epochs), epochs if dense else int(0.5 * epochs)
    stage = "dense" if dense or epoch < pressed else "penalized" if epoch < tuned else "sparse"
    phase = "train" if dense else {"dense": "pre-train", "penalized": "regularize", "sparse": "fine-tune"}[stage]
    accuracy = last + 0.01 if epoch == epochs - 3 else last if epoch >= tuned or dense else DENSE
    penalty = {"strength": 1e-5 * 1.05**epoch, "w_kappa": 0.1 / (1 + epoch), "pruned_score": 0.1234567 + epoch / 1e4}
    return whole_entry(
        epoch=epoch,
        phase=phase,
        stage=stage,
        **({**penalty, "dense_score": 0.87654321 + epoch / 1e5} if stage == "penalized" else {}),
        lr=0.1 if epoch < epochs - 2 else 0.01,
        loss=2.3 / (1 + epoch) + 0.0123456,
        train_accuracy=0.7654321 + epoch / 1e5,
        kept=layers * (KEPT if stage == "sparse" else TOTAL),
        test_accuracy=accuracy,
        test_loss=2.1 / (1 + epoch) + 0.0234567,
        seconds=0.5,
    )


def _result(entries: list[Entry], last: float, layers: int, *, dense: bool) -> dict[str, Any]:
    end = len(entries) - 1
    part = {"phase": entries[-1]["phase"], "last": last, "last_epoch": end, "best": last + 0.01}
    part |= {"best_epoch": end - 2, "best_picked_on": "test"}
    before = {**part, "phase": "pre-train", "last": DENSE, "best": DENSE, "last_epoch": 2, "best_epoch": 0}
    phases = [entry["phase"] for entry in entries]
    kept = TOTAL if dense else KEPT
    return {
        "until": None,
        "ablation": "none",
        "dense": part if dense else before,
        "sparse": None if dense else part,
        "total": layers * TOTAL,
        "kept": layers * kept,
        "sparsity": 1 - kept / TOTAL,
        "kept_by_layer": {f"block{number}.conv.weight": kept for number in range(layers)},
        "total_by_layer": {f"block{number}.conv.weight": TOTAL for number in range(layers)},
        "epochs": {name: phases.count(name) for name in dict.fromkeys(phases)},
        "training_flops": 4e12,
        "training_flops_sparse": 1e12,
        "inference_flops": 2e6,
        "inference_flops_sparse": 2e5,
        "final_bytes": 20_000,
        "dense_bytes": 400_000,
    }

"""What training writes into a run's folder, whole, with the fields that a test is about changed."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from hypersparse.data.npz_file import Arrays
from hypersparse.recipe import resolve
from hypersparse.storage.files import to_json
from hypersparse.storage.record import ARRAYS, NAME, NUMBER, WHOLE
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, Result

NUMPY_KINDS: dict[str, Any] = {NUMBER: np.float64, WHOLE: np.int64, NAME: np.str_}
MACHINE: dict[str, Any] = {
    "device": "cpu",
    "precision": "fp32",
    "engine": "eager",
    "deterministic": False,
    "threads": 1,
    "hypersparse": "0.1.0",
    "torch": "2.13.0",
    "python": "3.12.3",
    "platform": "Linux",
    "code": None,
}


def whole_entry(**said: Any) -> Entry:
    """An epoch."""
    usual = {"epoch": 0, "phase": "train", "phase_epoch": 0, "stage": "dense", "lr": 0.1, "loss": 1.0, "kept": 10}
    return cast(
        "Entry", {**usual, "train_accuracy": 0.5, "test_accuracy": 0.5, "test_loss": 1.0, "seconds": 1.0, **said}
    )


def whole_summary(**said: Any) -> dict[str, Any]:
    """The last and the best epoch of a stretch of training."""
    usual = {"phase": "train", "last": 0.5, "last_epoch": 0, "best": 0.5, "best_epoch": 0, "best_picked_on": "test"}
    return usual | said


def whole_result(**said: Any) -> Result:
    """A finished run of no epochs; parts of a summary or of the machine are enough."""
    usual: dict[str, Any] = {
        "label": "digits-resnet8-art-hypersparse-0.95-00000000",
        "key": "00000000",
        "seed": 0,
        "until": None,
        "data": "digits",
        "model": "resnet8",
        "method": "art",
        "ablation": "none",
        "dense": None,
        "sparse": None,
        "total": 100,
        "kept": 5,
        "sparsity": 0.95,
        "kept_by_layer": {},
        "total_by_layer": {},
        "epochs": {},
        "recipe": resolve({}).to_mapping(),
    }
    result = usual | said
    for part in ("dense", "sparse"):
        result[part] = result[part] and whole_summary(**result[part])
    result["machine"] = MACHINE | said.get("machine", {})
    return cast("Result", {**result, "epochs_total": sum(result["epochs"].values())})


def whole_record(**said: Any) -> Arrays:
    """A record of no epochs."""
    empty = {name: np.zeros((0,) * axes, NUMPY_KINDS[kind]) for name, (kind, axes) in ARRAYS.items()}
    return empty | {name: np.asarray(value) for name, value in said.items()}


def write_times(run: RunFolder, phases: Mapping[str, int], seconds: Mapping[str, float]) -> None:
    """The times of so many epochs a phase, by the seconds of all of a phase together."""
    names = [name for name, count in phases.items() for _ in range(count)]
    times = (
        {"epoch": epoch, "phase": name, "seconds": seconds[name] / phases[name]} for epoch, name in enumerate(names)
    )
    run.timing_file.write_text("".join(to_json(time) + "\n" for time in times))

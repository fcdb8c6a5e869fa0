"""Methods whose masks change, in our own loop: stopped and resumed, sharing phases, captured."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.storage.test_phase_cache import phases_trained, values
from tests.training.small import StopAfter, small
from tests.training.test_loop import same_network

CPU = Machine(device="cpu", checkpoint_seconds=0.0)
METHODS: dict[str, dict[str, Any]] = {
    "acdc": {"warmup": 0.0, "turn": 0.25, "final": 0.25},
    "gmp": {"start": 0.0, "end": 0.5},
    "imp": {"rounds": 2, "rewind": 0.25},
    "lth": {},
    "powerprop": {},
    "rigl": {"update_every": 3, "search": 1.0},
    "set": {},
    "topkast": {"update_every": 3, "update_until": 0.75},
}


def recipe_of(name: str, **options: Any) -> Recipe:
    table = {"name": name, "sparsity": 0.9, **METHODS[name], **options}
    return small(method=table, training={"epochs": 4})  # 4 steps each


@pytest.mark.parametrize("name", METHODS)
def test_stopped_anywhere_and_resumed_to_the_same_bits(tmp_path: Path, name: str) -> None:
    recipe = recipe_of(name)
    train(recipe, 0, CPU, tmp_path / "whole")
    stops = 0
    while True:
        callback = StopAfter(5)  # in the middle of an epoch, another place each time
        try:
            train(recipe, 0, CPU, tmp_path / "parts", callback=callback, stop=callback.request)
            break
        except Stopped:
            stops += 1
    assert stops >= 3
    assert same_network(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "own"), [("lth", {"train"}), ("imp", {"round 1", "round 2"}), ("powerprop", {"fine-tune"})]
)
def test_another_sparsity_shares_the_dense_training(tmp_path: Path, name: str, own: set[str]) -> None:
    phase_cache, other = tmp_path / "phase_cache", recipe_of(name, sparsity=0.95)
    assert phases_trained(recipe_of(name), tmp_path / "first", phase_cache) > own
    assert phases_trained(other, tmp_path / "second", phase_cache) == own
    train(other, 0, CPU, tmp_path / "alone")
    assert same_network(tmp_path / "second", tmp_path / "alone")
    assert values(tmp_path / "second") == values(tmp_path / "alone")


@pytest.mark.parametrize(("name", "stages"), [("gmp", "dsss"), ("acdc", "sdds"), ("set", "ssss")])
def test_the_best_sparse_epoch_is_one_as_sparse_as_the_last(tmp_path: Path, name: str, stages: str) -> None:
    result = train(recipe_of(name), 0, CPU, tmp_path)
    log = RunFolder(tmp_path).log()
    assert "".join(entry["stage"][0] for entry in log) == stages
    alike = [entry for entry in log if entry["kept"] == result["kept"]]
    assert result["sparse"]["best"] == max(entry["test_accuracy"] for entry in alike)
    assert result["sparse"]["best_epoch"] in [entry["epoch"] for entry in alike]
    assert name != "gmp" or len(alike) == 2  # the second of four epochs was less sparse


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("name", METHODS)
def test_masks_change_under_a_captured_step(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    recipe = recipe_of(name)
    result = train(recipe, 0, Machine(device="cuda", engine="cudagraph"), tmp_path / "captured")
    assert "cannot be captured" not in caplog.text
    assert result["kept"] == result["total"] - int(result["total"] * 0.9)
    eager = train(recipe, 0, Machine(device="cuda", engine="eager"), tmp_path / "eager")
    kept = [[entry["kept"] for entry in RunFolder(tmp_path / engine).log()] for engine in ("captured", "eager")]
    assert kept[0] == kept[1]
    assert eager["epochs"] == result["epochs"]
    losses = [[entry["loss"] for entry in RunFolder(tmp_path / engine).log()] for engine in ("captured", "eager")]
    assert losses[0] == pytest.approx(losses[1], rel=0.2)

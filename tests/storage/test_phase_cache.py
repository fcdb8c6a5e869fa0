"""A phase that several runs have in common is trained once, and nobody can tell from the results."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.training.small import small
from tests.training.test_loop import same_network

CPU = Machine(device="cpu", checkpoint_seconds=0.0)
pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")


class Count(Callback):
    """The phases whose epochs were really trained."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        self.phases.append(entry["phase"])


def phases_trained(recipe: Recipe, folder: Path, phase_cache: Path, seed: int = 0) -> set[str]:
    count = Count()
    train(recipe, seed, CPU, folder, callback=count, phase_cache=phase_cache)
    return set(count.phases)


def values(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in entry.items() if name not in ("seconds", "shared")}
        for entry in RunFolder(folder).log()
    ]


def test_another_sparsity_goes_on_from_the_same_pretraining_to_the_same_bits(tmp_path: Path) -> None:
    phase_cache = tmp_path / "phase_cache"
    assert "pre-train" in phases_trained(small(), tmp_path / "first", phase_cache)
    other = small(method={"sparsity": 0.95})
    assert "pre-train" not in phases_trained(other, tmp_path / "second", phase_cache)
    train(other, 0, CPU, tmp_path / "alone")
    assert same_network(tmp_path / "second", tmp_path / "alone")
    assert values(tmp_path / "second") == values(tmp_path / "alone")
    result = RunFolder(tmp_path / "second").result()
    assert result is not None
    assert 0 < result["shared_seconds"] < result["wall_seconds"]
    assert sorted(path.name.split("-")[0] for path in phase_cache.iterdir()) == ["pre", "regularize", "regularize"]


@pytest.mark.parametrize(("record", "shared"), [(True, False), (False, True)])
def test_a_sparsity_that_is_not_the_papers_needs_masks_of_its_own(tmp_path: Path, record: bool, shared: bool) -> None:
    for sparsity in (0.9, 0.96, 0.97):
        train(
            small(method={"sparsity": sparsity}, until="pre-train"),
            0,
            CPU,
            tmp_path / f"{sparsity}",
            phase_cache=tmp_path / "phase_cache",
            record=record,
        )
    logs = [RunFolder(tmp_path / f"{sparsity}").log() for sparsity in (0.9, 0.96, 0.97)]
    assert [all(entry.get("shared", False) for entry in log) for log in logs] == [False, shared, shared]


@pytest.mark.parametrize(
    "tables",
    [
        {"training": {"schedule": "cosine"}},
        {"training": {"epochs": 1}},
        {"ablation": {"name": "shuffle"}},
        {"until": "regularize"},
    ],
)
def test_what_comes_after_the_mask_goes_on_from_the_same_mask_to_the_same_bits(
    tmp_path: Path, tables: dict[str, Any]
) -> None:
    phase_cache, other = tmp_path / "phase_cache", small(**tables)
    train(small(), 0, CPU, tmp_path / "first", phase_cache=phase_cache)
    assert phases_trained(other, tmp_path / "second", phase_cache) <= {"fine-tune"}
    train(other, 0, CPU, tmp_path / "alone")
    assert same_network(tmp_path / "second", tmp_path / "alone")
    assert values(tmp_path / "second") == values(tmp_path / "alone")
    records = [(tmp_path / folder / "record.npz").read_bytes() for folder in ("second", "alone")]
    assert records[0] == records[1]


@pytest.mark.parametrize(
    "method", [{"sparsity": 0.95}, {"penalty": "l1"}, {"growth": 2.0}, {"strength": 2e-2}, {"stop_reference": "code"}]
)
def test_another_way_to_the_mask_is_trained_anew(tmp_path: Path, method: dict[str, Any]) -> None:
    phase_cache = tmp_path / "phase_cache"
    train(small(until="regularize"), 0, CPU, tmp_path / "first", phase_cache=phase_cache)
    other = small(method=method, until="regularize")
    assert phases_trained(other, tmp_path / "second", phase_cache) == {"regularize"}


@pytest.mark.parametrize(
    ("tables", "shared"),
    [
        ({"method": {"penalty": "l1"}}, True),
        ({"training": {"epochs": 3}}, True),
        ({"training": {"schedule": "cosine"}}, True),
        ({"method": {"pretrain_epochs": 1}}, False),
        ({"training": {"lr": 0.05}}, False),
        ({"training": {"batch_size": 16}}, False),
        ({"model": {"width": 6}}, False),
        ({"data": {"flip": False}}, False),
        ({"data": {"validation": 16}}, False),
    ],
)
def test_what_is_shared_is_what_is_the_same(tmp_path: Path, tables: dict[str, Any], shared: bool) -> None:
    phase_cache = tmp_path / "phase_cache"
    train(small(until="pre-train"), 0, CPU, tmp_path / "first", phase_cache=phase_cache)
    trained = phases_trained(small(until="pre-train", **tables), tmp_path / "second", phase_cache)
    assert ("pre-train" not in trained) is shared


def test_another_seed_or_precision_shares_nothing(tmp_path: Path) -> None:
    phase_cache = tmp_path / "phase_cache"
    recipe = small(until="pre-train")
    train(recipe, 0, CPU, tmp_path / "first", phase_cache=phase_cache)
    assert phases_trained(recipe, tmp_path / "seed", phase_cache, seed=1) == {"pre-train"}
    count = Count()
    machine = Machine(device="cpu", precision="bf16")
    train(recipe, 0, machine, tmp_path / "bf16", callback=count, phase_cache=phase_cache)
    assert count.phases == ["pre-train", "pre-train"]


def test_a_damaged_phase_is_left_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    phase_cache = tmp_path / "phase_cache"
    train(small(), 0, CPU, tmp_path / "first", phase_cache=phase_cache)
    for file in phase_cache.iterdir():
        file.write_bytes(file.read_bytes()[:100])
    assert "pre-train" in phases_trained(small(method={"sparsity": 0.95}), tmp_path / "second", phase_cache)
    assert "is not used" in caplog.text


def test_a_users_own_model_is_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef make(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = small(model={"name": "mine:make"}, until="pre-train")
    for folder in ("first", "second"):
        assert phases_trained(recipe, tmp_path / folder, tmp_path / "phase_cache") == {"pre-train"}
    assert not (tmp_path / "phase_cache").exists()


def test_a_users_own_method_is_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have another penalty tomorrow, and the same options."""
    (tmp_path / "own.py").write_text("from hypersparse import ART\nclass Mine(ART):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {"name": "own:Mine", "pretrain_epochs": 1, "max_regularized_epochs": 1}
    recipe = small(method=own, until="regularize")
    for folder in ("first", "second"):
        assert phases_trained(recipe, tmp_path / folder, tmp_path / "phase_cache") == {"pre-train", "regularize"}
    assert not (tmp_path / "phase_cache").exists()

"""All methods over the sparsity, and ART against the best other method."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.analysis.paper import table
from hypersparse.runs.store import RunStore
from reproduction.methods import against_best_other, over_sparsity
from tests.analysis.small import write

HERE: dict[str, Any] = {"data": "cifar10", "model": "resnet32", "sparsity": 0.98}


def trained(root: Path, method: str, best: float, seed: int = 0) -> FinishedRun:
    return write(root, method=method, seed=seed, sparse={"last": best, "best": best}, **HERE)


def here(root: Path) -> dict[str, Any]:
    cells = against_best_other(RunStore(root))
    own = cells[(cells["data"] == "cifar10") & (cells["model"] == "resnet32") & (cells["sparsity"] == 0.98)]
    (row,) = own.to_dict("records")
    return dict(row)


def test_the_best_of_the_trained_methods_is_compared(tmp_path: Path) -> None:
    for seed, best in enumerate((0.92, 0.94)):
        trained(tmp_path, "art", best, seed)
    trained(tmp_path, "snip", 0.88)
    trained(tmp_path, "rigl", 0.90)
    row = here(tmp_path)
    assert (row["seeds"], row["art"], row["other"], row["other_method"]) == (2, 93.0, 90.0, "rigl (of 2)")
    assert row["difference"] == pytest.approx(3.0)
    assert (row["paper_art"], row["paper_other"], row["paper_other_method"]) == (92.69, 91.35, "imp")
    assert row["paper_difference"] == pytest.approx(1.34)


def test_without_another_method_a_cell_is_missing(tmp_path: Path) -> None:
    trained(tmp_path, "art", 0.92)
    assert here(tmp_path)["seeds"] == 0
    levels = against_best_other(RunStore(tmp_path))["sparsity"]
    assert sorted(set(levels)) == [0.9, 0.95, 0.98, 0.99, 0.995, 0.998]


def test_a_figure_has_every_cell_of_the_paper_and_our_means(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "art", best, seed) for seed, best in enumerate((0.92, 0.94))]
    (drawn,) = over_sparsity(runs)  # one for each data set with runs
    assert drawn.name == "methods-cifar10"
    assert len(drawn.data) == (table("accuracy")["dataset"] == "cifar10").sum()
    ours = drawn.data.dropna(subset=["ours"])
    assert ours[["model", "name", "sparsity", "ours"]].to_numpy().tolist() == [
        ["resnet32", "art hypersparse", 0.98, pytest.approx(93.0)]
    ]

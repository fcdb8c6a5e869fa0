"""Verdicts worked out by hand, and every cell of the paper has a recipe."""

from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from hypersparse.analysis import paper
from hypersparse.analysis.paper import SeedValues, verdict
from hypersparse.runs.store import RunStore
from tests.stored import whole_entry, whole_result


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((92.25,), "reproduced"),  # 2 * 0.22 * sqrt(1 + 1/5) = 0.482
        ((92.25, 92.25), "worse"),  # 2 * 0.22 * sqrt(1/2 + 1/5) = 0.368
        ((93.20,), "better"),
        ((91.0, 92.69, 94.38), "reproduced"),  # three of ours: their own deviation counts
        ((), "missing"),
    ],
)
def test_verdicts(values: tuple[float, ...], expected: str) -> None:
    assert verdict(SeedValues(values), 92.69, 0.22) == expected


def test_the_deviation_is_pooled_from_three_seeds_on() -> None:
    ours = (91.0, 92.0, 93.0)  # deviation 1
    pooled = sqrt((2 * 1.0**2 + 4 * 0.22**2) / 6)
    edge = 92.0 + 2 * pooled * sqrt(1 / 3 + 1 / 5)
    assert verdict(SeedValues(ours), edge - 1e-6, 0.22) == "reproduced"
    assert verdict(SeedValues(ours), edge + 1e-6, 0.22) == "worse"
    assert verdict(SeedValues(ours), edge + 1e-6, 0.22, more_is_better=False) == "better"


def test_every_cell_has_a_recipe_of_its_own() -> None:
    cells = list(paper.table("accuracy").itertuples())
    assert len({paper.recipe_of(cell).label for cell in cells}) == len(cells) == 366
    one = next(cell for cell in cells if cell.method == "art-hypersparse-no-pretrain")
    assert paper.recipe_of(one).method.pretrain_epochs == 0  # type: ignore[attr-defined]
    assert all(paper.recipe_of(cell).method.name == "art" for cell in paper.table("regularized_epochs").itertuples())


def store_with(folder: Path, cell: Any, results: list[dict[str, Any]], best_epoch: int) -> RunStore:
    store = RunStore(folder)
    for seed, result in enumerate(results):
        run = store.folder(paper.recipe_of(cell), seed)
        run.path.mkdir(parents=True)
        run.append_log(whole_entry(best_epoch=best_epoch))
        run.write_result(whole_result(epochs={"train": 1}, **result))
    return store


def test_our_runs_stand_beside_the_paper_s(tmp_path: Path) -> None:
    cells = paper.table("accuracy")
    cell = next(cells[(cells["method"] == "art-hypersparse") & (cells["sparsity"] == 0.98)].itertuples())
    part = {"last": 0.92, "best": 0.925}
    results = [{"until": None, "sparse": part, "dense": None}, {"until": "regularize", "sparse": None, "dense": part}]
    store = store_with(tmp_path, cell, results, best_epoch=53)
    found = paper.accuracy(store)
    (row,) = found[found["seeds"] > 0].to_dict("records")
    assert (row["paper"], row["best"], row["last"]) == (92.69, 92.5, 92.0)  # a run that ended early has none
    assert (row["best_verdict"], row["last_verdict"]) == ("reproduced", "worse")
    epochs = paper.regularized_epochs(store)
    (counted,) = epochs[epochs["seeds"] > 0].to_dict("records")
    assert (counted["epochs"], counted["seeds"], counted["verdict"]) == (54.0, 2, "reproduced")

"""What missing runs would decide."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse.recipe import Recipe, resolve
from hypersparse.runs.experiment import Run
from hypersparse.runs.forecast import CostRow
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import job_of, missing
from reproduction.decisions import decisions
from tests.analysis.small import write

CELL: dict[str, Any] = {"data": "cifar10", "model": "resnet32", "sparsity": 0.98}


def recipe(**method: Any) -> Recipe:
    return resolve({"data": {"name": "cifar10"}, "method": {"name": "art", "sparsity": 0.98} | method})


def test_first_numbers_come_first_then_the_most_points_a_minute(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    write(tmp_path, sparse={"last": 0.9, "best": 0.9}, **CELL)
    dearer, cheaper = recipe(sparsity=0.9), recipe(sparsity=0.95)
    not_in_paper, another = recipe(growth=1.01), recipe()
    runs = [
        *(Run(another, seed) for seed in range(4)),
        Run(not_in_paper, 0), Run(dearer, 0), Run(cheaper, 0), Run(recipe(sparsity=0.99), 0),
    ]  # fmt: skip
    left = missing(runs, store, None)
    seconds = {dearer.label: 600.0, cheaper.label: 300.0, another.label: 60.0, not_in_paper.label: 1.0}
    costs = {
        job_of(run, store).folder: CostRow(
            seconds=seconds.get(run.recipe.label, 0.0), known=run.recipe.label in seconds
        )
        for run in left
    }
    found = decisions(runs, left, costs, store, None)
    assert [(each.recipe.label, each.seeds, each.missing) for each in found] == [
        (cheaper.label, 0, 1),
        (dearer.label, 0, 1),
        (recipe(sparsity=0.99).label, 0, 1),  # its time is not known
        (another.label, 1, 3),
        (not_in_paper.label, 0, 1),
    ]
    assert [each.seconds for each in found] == [300, 600, None, 180, 1]
    first, fourth, last = found[0], found[3], found[4]
    assert first.before is None
    assert first.after == pytest.approx(2 * 0.18 * (1 + 1 / 5) ** 0.5)  # the paper's deviation is 0.18
    assert fourth.before == pytest.approx(2 * 0.22 * (1 + 1 / 5) ** 0.5)
    assert fourth.after == pytest.approx(2 * 0.22 * (1 / 4 + 1 / 5) ** 0.5)
    assert (last.before, last.after) == (None, None)

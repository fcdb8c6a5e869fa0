from pathlib import Path

import pytest

from hypersparse.errors import RunError
from hypersparse.recipe import Recipe, resolve
from hypersparse.runs.store import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path / "runs")
    for tables, seed in (({}, 0), ({}, 1), ({"method": {"sparsity": 0.99}}, 0)):
        recipe = resolve(tables)
        folder = store.folder(recipe, seed)
        folder.path.mkdir(parents=True)
        folder.write_recipe(recipe, seed)
    return store


def test_a_folder_is_named_by_label_and_seed() -> None:
    recipe = Recipe()
    assert RunStore("runs").folder(recipe, 3).path == Path("runs") / recipe.label / "seed-3"


def test_runs_are_sorted_and_need_a_recipe(store: RunStore) -> None:
    (store.root / "something" / "seed-0").mkdir(parents=True)
    found = [run.path for run in store.runs()]
    assert found == sorted(found)
    assert len(found) == 3


def test_a_missing_root_has_no_runs(tmp_path: Path) -> None:
    assert list(RunStore(tmp_path / "nothing").runs()) == []


def test_find_takes_a_path_or_a_part_of_the_name(store: RunStore) -> None:
    run = store.folder(resolve({"method": {"sparsity": 0.99}}), 0)
    key = resolve({"method": {"sparsity": 0.99}}).key
    for name in (str(run.path), f"{run.path.parent.name}/seed-0", key, "0.99", f"{key}/seed-0"):
        assert store.find(name).path == run.path


def test_find_lists_runs_if_a_name_matches_several_or_none(store: RunStore) -> None:
    with pytest.raises(RunError, match=r"matches 2 runs .*seed-0.*seed-1"):
        store.find(resolve({}).key)
    with pytest.raises(RunError, match="no run `vgg`"):
        store.find("vgg")

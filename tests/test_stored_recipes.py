"""Every stored recipe is one that this version reads, and resolves to its own result."""

import json
from pathlib import Path

import pytest

from hypersparse import zoo
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder

RESULTS = Path(__file__).parents[1] / "results"
RUNS = sorted(path.parent for path in RESULTS.glob("*/seed-*/recipe.toml"))


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_stored_recipe_resolves_to_its_result(folder: Path) -> None:
    recipe = RunFolder(folder).recipe()
    result = json.loads((folder / "result.json").read_text())
    assert recipe.label == folder.parent.name == result["label"]
    assert recipe.key == result["key"]
    assert recipe.to_mapping() == Recipe.from_mapping(result["recipe"]).to_mapping()
    assert folder.name == f"seed-{result['seed']}"


@pytest.mark.parametrize("name", zoo.names())
def test_a_network_of_the_zoo_stores_the_recipe_of_its_run(name: str) -> None:
    recipe = Recipe.from_toml(zoo.load(name).about["recipe"])
    assert recipe.label == zoo.entry(name).recipe

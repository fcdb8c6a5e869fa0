"""Every recipe that waits for a GPU trains all of its phases: an error there would cost minutes of a lease."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from hypersparse.recipe import Recipe, merge
from hypersparse.runs.experiment import Experiment
from hypersparse.training.engines import EagerStep
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.methods.test_contract_steps import NoWaiting

pytestmark = [
    pytest.mark.filterwarnings("ignore:Pruning still cost accuracy"),
    pytest.mark.filterwarnings("ignore:At the end of phase"),  # few weights are left of a narrow network
]
FOLDER = Path(__file__).parents[2] / "experiments"
WAITING = ("techniques", "competitors")
WIDTHS = {"resnet32": 4, "vgg19": 16}
SHORT = {
    "art": {"pretrain_epochs": 1, "max_regularized_epochs": 2},
    "rigl": {"update_every": 2},
    "st3": {"update_every": 2},
}


def recipes() -> dict[str, Recipe]:
    """The recipes of the experiments at 98 % or above 99 %, made tiny, by their label."""
    runs = [run for name in WAITING for run in Experiment.read(FOLDER / f"{name}.toml").runs]
    found = [tiny(run.recipe) for run in runs if sparsity_of(run.recipe) in (0.98, 0.998)]
    return {recipe.label: recipe for recipe in found}


def sparsity_of(recipe: Recipe) -> float:
    return float(recipe.to_mapping()["method"]["sparsity"])


def tiny(recipe: Recipe) -> Recipe:
    """The recipe with a narrow network, 64 synthetic images and two epochs of each phase at most."""
    classes = {"cifar10": 10, "cifar100": 100}[recipe.data.name]
    tables = recipe.to_mapping()
    method = dict(tables["method"])
    short = {name: min(value, method.get(name, value)) for name, value in SHORT.get(method["name"], {}).items()}
    tables = {
        **tables,
        "data": {"name": "synthetic", "images": 64, "test_images": 32, "size": 16, "classes": classes, "padding": 4},
        "model": {"name": recipe.model.name, "width": WIDTHS[recipe.model.name]},
        "method": {**method, **short},
    }
    return Recipe.from_mapping(merge(tables, {"training": {"epochs": 2, "batch_size": 32}}))


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps fail where a captured one would: where the host needs a value from the device."""
    work = EagerStep.work

    def strict(self: EagerStep, images: Tensor, labels: Tensor, **options: Any) -> None:
        if self.driver.method_acts:  # such a step is never captured
            return work(self, images, labels, **options)
        with NoWaiting():  # type: ignore[no-untyped-call]
            return work(self, images, labels, **options)

    monkeypatch.setattr(EagerStep, "work", strict)


@pytest.mark.slow
@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("label", recipes())
def test_each_trains_all_of_its_phases(tmp_path: Path, label: str) -> None:
    recipe = recipes()[label]
    result = train(recipe, 0, Machine(device="cpu"), tmp_path)
    assert set(result["epochs"]) == {phase.name for phase in recipe.plan()}
    assert result["kept"] == result["total"] - int(sparsity_of(recipe) * result["total"])

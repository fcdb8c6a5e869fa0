"""Planned variants are listed as missing until they are trained, and an experiment trains each of them."""

from pathlib import Path

from hypersparse.analysis.variants import variants
from hypersparse.runs.experiment import Experiment
from hypersparse.runs.recipe_names import variant
from hypersparse.runs.store import RunStore
from reproduction.planned import PLANNED, PLANNED_FOR, variants_and_planned
from tests.analysis.small import write

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_planned_variants_are_missing_until_they_are_trained(tmp_path: Path) -> None:
    found = variants_and_planned(RunStore(tmp_path))
    assert set(found["variant"]) == {name for _, name in PLANNED}
    assert found["seeds"].tolist() == [0] * len(PLANNED)

    cell = {"data": "cifar10", "model": "resnet32", "sparsity": 0.998, "epochs": {"fine-tune": 5}}
    write(tmp_path, method_options={"pretrain_epochs": 0}, **cell)
    again = variants_and_planned(RunStore(tmp_path))
    assert len(again) == len(PLANNED)
    (trained,) = again[again["seeds"] > 0].to_dict("records")
    assert (trained["sparsity"], trained["variant"]) == (0.998, "art hypersparse, without pre-training")
    assert len(variants(RunStore(tmp_path))) == 1  # `hypersparse paper variants` lists no plans of ours


def test_experiments_train_every_planned_variant() -> None:
    trained = {
        (
            each.recipe.data.name, each.recipe.model.name, each.recipe.method.name, "hypersparse",
            each.recipe.method.sparsity, variant(each.recipe.to_mapping()),  # type: ignore[attr-defined]
        )
        for name in ("variants", "short")
        for each in Experiment.read(EXPERIMENTS / f"{name}.toml").runs
    }  # fmt: skip
    assert {(*PLANNED_FOR.values(), *planned) for planned in PLANNED} <= trained

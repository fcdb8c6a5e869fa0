"""What every method promises, whatever else it does. A new file in `methods/` is tested here by being there."""

import re
from pathlib import Path

import pytest

import hypersparse
from hypersparse import Ablation, Sparsifier, methods
from hypersparse.recipe import Recipe, merge, resolve
from hypersparse.sparsity.distributions import keep_count
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.methods.contract import (
    PRUNING,
    SPARSITY,
    MakeOptimizer,
    Run,
    adamw,
    dropped_are_plus_zero,
    method_of,
    options_of,
    same,
    sgd,
)
from tests.training.small import TABLES


@pytest.mark.parametrize("name", methods.names())
def test_it_says_what_it_is(name: str) -> None:
    kind = methods.find(name)
    assert kind.__doc__
    assert kind.__doc__.strip().endswith(".")
    assert kind.citation
    assert method_of(name).label().startswith(name)


@pytest.mark.parametrize("name", methods.names())
def test_its_plan_can_be_told(name: str) -> None:
    plan = method_of(name).plan(10)
    names = [phase.name for phase in plan]
    assert names
    assert len(set(names)) == len(names)
    assert all(phase.epochs >= 0 for phase in plan)
    assert [phase.epochs for phase in plan] == [phase.epochs for phase in method_of(name).plan(10)]


@pytest.mark.parametrize("name", methods.names())
def test_its_options_survive_toml(name: str) -> None:
    recipe = Recipe(method=method_of(name))
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert Recipe.from_toml(recipe.to_toml()).key == recipe.key


@pytest.mark.parametrize("make_optimizer", [sgd, adamw])
@pytest.mark.parametrize("name", methods.names())
def test_dropped_weights_are_exactly_zero_after_every_step(name: str, make_optimizer: MakeOptimizer) -> None:
    run = Run(name, make_optimizer)
    steps: list[int] = []

    def check(sparsifier: Sparsifier) -> None:
        dropped_are_plus_zero(sparsifier)
        steps.append(0 if sparsifier.mask is None else sparsifier.mask.kept)

    run.train(check)
    total = run.sparsifier.weights.total
    if method_of(name).sparsity is not None:
        assert run.sparsifier.mask is not None
        assert run.sparsifier.mask.kept == keep_count(total, SPARSITY)
        assert int(run.sparsifier.weights.vector().count_nonzero()) <= keep_count(total, SPARSITY)
        assert sum(kept > 0 for kept in steps) >= 9  # three epochs of three steps with a mask
    else:
        assert run.sparsifier.mask is None


@pytest.mark.parametrize("name", PRUNING)
def test_named_layers_keep_exactly_their_share(name: str) -> None:
    run = Run(name, sgd, densities={"6": 0.5}, min_density=0.15)
    run.train(dropped_are_plus_zero)
    assert run.sparsifier.mask is not None
    counts = run.sparsifier.mask.kept_by_layer()
    assert counts["6.weight"] == 12  # of 24
    assert counts["0.weight"] >= 11  # of 72
    assert counts["4.weight"] >= 20  # of 128
    assert sum(counts.values()) == keep_count(run.sparsifier.weights.total, SPARSITY) == 45


@pytest.mark.parametrize("name", methods.names())
def test_the_same_seed_gives_the_same_network(name: str) -> None:
    first, second, other = Run(name, sgd), Run(name, sgd), Run(name, sgd, seed=1)
    for run in (first, second, other):
        run.train()
    assert same(first.state(), second.state())
    assert not same(first.state()["model"], other.state()["model"])


@pytest.mark.parametrize("make_optimizer", [sgd, adamw])
@pytest.mark.parametrize("name", methods.names())
def test_stopping_after_any_epoch_and_going_on_changes_nothing(
    name: str, make_optimizer: MakeOptimizer, tmp_path: Path
) -> None:
    whole = Run(name, make_optimizer)
    whole.train(save_to=tmp_path)
    epochs = whole.sparsifier.total_epoch
    for stop in range(epochs):
        resumed = Run(name, make_optimizer, seed=99)
        resumed.load(tmp_path / str(stop))
        resumed.train()
        assert resumed.sparsifier.total_epoch == epochs
        assert same(resumed.state(), whole.state()), f"stopped in epoch {stop} of {epochs}"


@pytest.mark.parametrize("ablation", ["shuffle", "redraw", "positions", "rewind"])
@pytest.mark.parametrize("name", PRUNING)
def test_it_can_be_ablated(name: str, ablation: str) -> None:
    first, second = (Run(name, sgd, ablation=Ablation(name=ablation)) for _ in range(2))  # type: ignore[arg-type]
    for run in (first, second):
        run.train(dropped_are_plus_zero)
    assert first.sparsifier.mask is not None
    assert first.sparsifier.mask.kept == keep_count(first.sparsifier.weights.total, SPARSITY)
    assert same(first.state(), second.state())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", methods.names())
def test_a_run_reports_what_it_has_cost(name: str, tmp_path: Path) -> None:
    tables = {key: table for key, table in TABLES.items() if key != "method"}
    recipe = resolve(merge(tables, {"method": {"name": name, **options_of(name)}, "training": {"epochs": 2}}))
    result = train(recipe, 0, Machine(device="cpu", threads=1), tmp_path, record=False)
    entries = (tmp_path / "log.jsonl").read_text().splitlines()
    assert result["epochs_total"] == len(entries) == sum(result["epochs"].values())
    least = sum(min(1, phase.epochs) if phase.stop_when else phase.epochs for phase in recipe.plan())
    assert least <= result["epochs_total"] <= sum(phase.epochs for phase in recipe.plan())
    steps = result["epochs_total"] * 128 * 3 * result["inference_flops"]
    assert result["training_flops"] == pytest.approx(steps + result["scoring_flops"])
    assert 0 < result["training_flops_sparse"] <= result["training_flops"]
    assert 0 <= result["inference_flops_sparse"] <= result["inference_flops"]
    assert (result["inference_flops_sparse"] < result["inference_flops"]) == (result["kept"] < result["total"])
    assert 0 <= result["effective_kept"] <= result["kept"]


@pytest.mark.parametrize("name", methods.names())
def test_it_has_a_page_that_says_whose_it_is(name: str) -> None:
    page = Path(hypersparse.__file__).parents[1] / "docs" / f"{name}.md"
    assert page.is_file(), f"write docs/{name}.md"
    citation = methods.find(name).citation
    if not citation.startswith("none"):
        first_author = re.split("[,:]", citation)[0].split()[-1]
        assert first_author in page.read_text()

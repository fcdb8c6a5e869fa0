"""One-shot methods in our own loop: which images they look at, stopping and going on, and what runs share."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hypersparse import data
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loaders import bring_images
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.methods.test_one_shot import ALL
from tests.storage.test_phase_cache import phases_trained
from tests.training.small import StopAfter, small
from tests.training.test_loop import CPU, same_network, values

QUICK: dict[str, dict[str, Any]] = {"synflow": {"rounds": 3}, "iter_snip": {"rounds": 3}}


def recipe_of(name: str, **options: Any) -> Recipe:
    return small(method={"name": name, "sparsity": 0.9, **QUICK.get(name, {}), **options})


@pytest.mark.parametrize("name", [*ALL, "magnitude"])
def test_a_run_keeps_exactly_what_it_should_and_can_be_stopped(name: str, tmp_path: Path) -> None:
    result = train(recipe_of(name), 0, CPU, tmp_path / "whole")
    assert result["kept"] == result["total"] - int(result["total"] * 0.9)
    assert result["sparse"]["last_epoch"] == (3 if name == "magnitude" else 1)
    for steps in (1, 4, 6):  # in an epoch, and at the end of one
        folder, callback = tmp_path / str(steps), StopAfter(steps)
        with pytest.raises(Stopped):
            train(recipe_of(name), 0, CPU, folder, callback=callback, stop=callback.request)
        torch.manual_seed(99)
        train(recipe_of(name), 0, CPU, folder)
        assert same_network(tmp_path / "whole", folder)
        assert values(tmp_path / "whole") == values(folder)


@pytest.mark.parametrize(("name", "more"), [("snip", 0), ("grasp", 1), ("sratio", None)])
def test_the_authors_counts(name: str, more: int | None, tmp_path: Path) -> None:
    result = train(recipe_of(name, tie_rule="authors"), 0, CPU, tmp_path)
    exact = result["total"] - int(result["total"] * 0.9)
    if more is None:
        assert exact - 12 <= result["kept"] < exact
    else:
        assert abs(result["kept"] - exact - more) <= 1


def test_sparsities_share_the_dense_training_of_magnitude_pruning(tmp_path: Path) -> None:
    phase_cache = tmp_path / "phase_cache"
    assert phases_trained(recipe_of("magnitude"), tmp_path / "first", phase_cache) == {"pre-train", "fine-tune"}
    other = recipe_of("magnitude", sparsity=0.95)
    assert phases_trained(other, tmp_path / "second", phase_cache) == {"fine-tune"}
    train(other, 0, CPU, tmp_path / "alone")
    assert same_network(tmp_path / "second", tmp_path / "alone")
    longer = recipe_of("magnitude", dense_epochs=3)
    assert "pre-train" in phases_trained(longer, tmp_path / "third", phase_cache)


def test_arts_pretraining_is_not_taken_for_magnitudes(tmp_path: Path) -> None:
    """The one holds its learning rate, the other goes through the schedule."""
    phase_cache = tmp_path / "phase_cache"
    train(small(until="pre-train"), 0, CPU, tmp_path / "art", phase_cache=phase_cache)
    assert "pre-train" in phases_trained(recipe_of("magnitude"), tmp_path / "magnitude", phase_cache)
    rates = [entry["lr"] for entry in RunFolder(tmp_path / "magnitude").log()]
    assert rates == pytest.approx([0.1, 0.01, 0.1, 0.01])


def test_weights_are_scored_with_augmented_training_images_the_same_ones_every_time() -> None:
    recipe = small()
    dataset = data.load("synthetic", (), options=recipe.data.options)
    images = bring_images(recipe, 0, dataset, torch.device("cpu"), Machine())
    looks = [[batch for batch, _ in images.initial_scoring] for _ in range(2)]
    assert all(torch.equal(one, two) for one, two in zip(*looks, strict=True))
    trained = [batch for batch, _ in images.batches]
    assert [batch.shape for batch in looks[0]] == [batch.shape for batch in trained]
    assert not torch.equal(looks[0][0], trained[0])
    other = bring_images(recipe, 1, dataset, torch.device("cpu"), Machine())
    assert not torch.equal(next(iter(other.initial_scoring))[0], looks[0][0])
    # Cropped and flipped: not all of them are in the clean images.
    clean = torch.cat([batch for batch, _ in images.batches.in_order(64)]).flatten(1)
    found = (torch.cat(looks[0]).flatten(1)[:, None] == clean[None]).all(dim=2).any(dim=1)
    assert not found.all()

"""A plain loop with `attach` gives what `hypersparse train` gives: the same mask and the same bits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import hypersparse
from hypersparse import Machine, Mask, Sparsifier, Task, data
from hypersparse.recipe import Recipe, resolve
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import load_weights_
from hypersparse.training.loaders import bring_images
from hypersparse.training.network import build_network

CPU = Machine(device="cpu", threads=1)
METHODS: dict[str, dict[str, Any]] = {
    "art": {"sparsity": 0.98, "pretrain_epochs": 1, "strength": 0.01, "growth": 3.0, "max_regularized_epochs": 3},
    "gmp": {"sparsity": 0.98},
    "magnitude": {"sparsity": 0.98, "dense_epochs": 2},
}


def by_plain_loop(recipe: Recipe) -> Sparsifier:
    """The digits recipe, written as a user writes a loop."""
    torch.manual_seed(0)
    dataset, options = data.load("digits", []), recipe.training
    model = build_network(recipe, shape=dataset.shape, classes=len(dataset.classes))
    images = bring_images(recipe, 0, dataset, torch.device("cpu"), CPU)
    settings = {name: getattr(options, name) for name in ("lr", "momentum", "nesterov", "weight_decay")}
    optimizer = torch.optim.SGD(model.parameters(), **settings, fused=True)
    sparsifier = hypersparse.attach(
        model,
        optimizer,
        recipe.method,
        epochs=options.epochs,
        task=Task(cross_entropy, images.scoring),
        lr=options.lr_schedule(),
    )
    for _ in sparsifier.epochs():
        model.train()
        for inputs, labels in images.batches:
            outputs = model(inputs)
            loss = cross_entropy(outputs, labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            sparsifier.observe(outputs, labels)
    return sparsifier


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
@pytest.mark.parametrize("name", METHODS)
def test_the_digits_recipe(name: str, tmp_path: Path) -> None:
    tables = {"data": {"name": "digits"}, "training": {"epochs": 3}, "method": {"name": name, **METHODS[name]}}
    recipe = resolve(tables)
    result = hypersparse.train(recipe, 0, CPU, tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sparsifier = by_plain_loop(recipe)
    torch.set_num_threads(threads)
    trained = build_network(recipe, shape=(1, 8, 8), classes=10)
    load_weights_(trained, tmp_path)
    assert sparsifier.mask == Mask.from_zeros(trained)
    assert sparsifier.total_epoch == len(RunFolder(tmp_path).log())
    found, expected = sparsifier.weights.model.state_dict(), trained.state_dict()
    assert all(torch.equal(found[tensor], expected[tensor]) for tensor in expected)
    assert result["sparsity"] == pytest.approx(0.98, abs=1e-4)

"""A method, a model and a tracker of somebody else's package, through the public interface only."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hypersparse import Machine, Recipe, train
from hypersparse.integrations.tracker import Trackers
from hypersparse.training.concurrency.concurrent_runs import Job

METHOD = '''
from typing import ClassVar

from hypersparse import Mask, Phase, PruningMethod
from hypersparse.options import option, options
from hypersparse.sparsity.scores import magnitude


@options
class Late(PruningMethod):
    """Prune the smallest weights before the last epochs."""

    name: ClassVar[str] = "late"
    citation: ClassVar[str] = "none"
    dense_epochs: int = option(default=1, help="Epochs before pruning.", ge=1)

    def plan(self, epochs):
        return [Phase("dense", epochs=self.dense_epochs), Phase("sparse", epochs=epochs, on_enter=self.prune)]

    def prune(self, state):
        state.weights.set_mask_(Mask.top(magnitude(state.weights), self.keep(state.weights)))
'''
MODEL = """
from torch import nn


def two_layers(shape, classes, hidden=16):
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, classes))
"""


class Losses:
    """A tracker that keeps the losses of a run."""

    def __init__(self) -> None:
        self.epochs = 0
        self.losses: list[float] = []
        self.closed = False

    def write(self, entry: object, values: dict[str, float]) -> None:
        self.losses.append(values["loss"])

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def toy_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    package = tmp_path / "site" / "toy_sparsity"
    package.mkdir(parents=True)
    (package / "late.py").write_text(METHOD)
    (package / "nets.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(package.parent))
    yield "toy_sparsity"
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_sparsity"]:
        del sys.modules[name]


def test_a_method_a_model_and_a_tracker_from_outside(toy_package: str, tmp_path: Path) -> None:
    method, model = f"{toy_package}.late:Late", f"{toy_package}.nets:two_layers"
    tables = {
        "data": {"name": "synthetic", "images": 64, "size": 8},
        "model": {"name": model, "hidden": 8},
        "training": {"epochs": 2, "batch_size": 16},
        "method": {"name": method, "sparsity": 0.9},
    }
    recipe = Recipe.from_mapping(tables, own_code=[method, model])
    tracker = Losses()
    job = Job(recipe, 0, tmp_path / "run")
    with Trackers(lambda _: tracker) as trackers:  # type: ignore[arg-type,return-value]
        result = train(recipe, 0, Machine(device="cpu"), job.folder, callback=trackers.callback(job))
    assert result["epochs"] == {"dense": 1, "sparse": 2}
    assert result["kept"] == result["total"] - int(0.9 * result["total"])
    assert len(tracker.losses) == 3
    assert tracker.closed

"""A store with three tiny runs, trained once for all tests: finished, stopped at once, and until pre-train."""

import functools
import shutil
import warnings
from pathlib import Path

import pytest

from hypersparse.recipe import Recipe, merge, resolve
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest

FINISHED, STOPPED, UNTIL = 0, 1, 2  # seeds
EPOCHS = 5  # pre-train 1, regularize 2, fine-tune 2
TABLES = {
    "data": {"name": "synthetic", "images": 128, "test_images": 64, "size": 8, "channels": 1},
    "model": {"name": "resnet8", "width": 4},
    "training": {"epochs": 2, "batch_size": 32},
    "method": {"name": "art", "sparsity": 0.95, "pretrain_epochs": 1, "max_regularized_epochs": 2},
}


def recipe(**more: str) -> Recipe:
    return resolve(merge(TABLES, more))


def run_of(store: RunStore, seed: int) -> RunFolder:
    return store.folder(recipe(), seed)


@functools.cache
def _trained(session: Path) -> Path:
    store = RunStore(session / "tiny-runs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ART says that it hit the maximum of regularized epochs
        train(recipe(), FINISHED, Machine(threads=1), run_of(store, FINISHED).path)
    train(recipe(until="pre-train"), UNTIL, Machine(threads=1), run_of(store, UNTIL).path)
    with pytest.raises(Stopped):
        train(recipe(), STOPPED, Machine(threads=1), run_of(store, STOPPED).path, stop=StopRequest(after_seconds=0))
    return store.root


def tiny_store(folder: Path, factory: pytest.TempPathFactory) -> RunStore:
    """A copy of the three runs in `folder`, to be changed at will."""
    return RunStore(shutil.copytree(_trained(factory.getbasetemp()), folder))


def cut(run: RunFolder, *, epochs: int) -> None:
    """Make a finished run look as if it had been killed after so many epochs."""
    run.result_file.unlink()
    run.final_file.unlink()
    run.cut_log(epochs)

"""An experiment is trained as far as it goes, and goes on."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.errors import DataError, DivergedError
from hypersparse.recipe import Recipe
from hypersparse.runs.experiment import Run
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import Local, failures, finished, missing, sweep
from hypersparse.training.folder import RunFolder
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest
from tests.training.small import small

pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
CPU = Machine(device="cpu")


def load(recipe: Recipe) -> Dataset:
    if recipe.data.name != "synthetic":
        raise DataError(f"{recipe.data.name} is not there.")
    return data.load(recipe.data.name, options=recipe.data.options)


def go(runs: list[Run], tmp_path: Path, **more: Any) -> list[Any]:
    store, stages = RunStore(tmp_path / "runs"), tmp_path / "stages"
    return sweep(runs, Local(CPU, load, at_once=1), store, stages=stages, **more)


def test_one_that_fails_is_noted_and_the_rest_goes_on(tmp_path: Path) -> None:
    runs = [
        Run(small(), 0),
        Run(small(training={"lr": 1e30}), 0),
        Run(small(data={"name": "cifar10"}), 0),
        Run(small(data={"images": 96}), 0),
    ]
    outcomes = go(runs, tmp_path)
    assert [type(outcome) for outcome in outcomes] == [dict, DivergedError, DataError, dict]
    store = RunStore(tmp_path / "runs")
    assert missing(runs, store, None) == runs[1:3]
    ((folder, reason),) = failures(store).items()
    assert folder == store.folder(runs[1].recipe, 0).path
    assert "stopped being finite" in reason


def test_results_that_were_kept_are_not_trained_again(tmp_path: Path) -> None:
    run, results = Run(small(), 0), tmp_path / "results"
    go([run], tmp_path, results=results)
    (kept,) = results.glob("*/seed-0")
    assert sorted(path.name for path in kept.iterdir()) == ["log.jsonl", "recipe.toml", "record.npz", "result.json"]
    elsewhere = RunStore(tmp_path / "bare machine")
    assert missing([run], elsewhere, None) == [run]
    assert missing([run], elsewhere, results) == []
    # A run that ends earlier is contained in one that went on, and not the other way round.
    shorter = Run(small(until="regularize"), 0)
    assert finished(shorter, elsewhere, results) is not None
    go([shorter], tmp_path / "short", results=tmp_path / "short results")
    assert missing([run], elsewhere, tmp_path / "short results") == [run]


def test_a_stop_leaves_what_was_not_begun(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.stop("test")
    outcomes = go([Run(small(), 0), Run(small(data={"images": 96}), 0)], tmp_path, stop=stop)
    assert all(isinstance(outcome, Stopped) for outcome in outcomes)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_goes_well_later_is_no_failure_any_more(tmp_path: Path) -> None:
    run = Run(small(), 0)
    folder = RunStore(tmp_path / "runs").folder(run.recipe, 0).path
    folder.mkdir(parents=True)
    (folder / "failed.txt").write_text("once\n")
    go([run], tmp_path)
    assert not failures(RunStore(tmp_path / "runs"))
    assert RunFolder(folder).result() is not None

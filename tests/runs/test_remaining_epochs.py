"""What is left of runs is what will be trained."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hypersparse.recipe import Recipe
from hypersparse.runs.epoch_times import expected_epochs
from hypersparse.runs.remaining_epochs import epochs_left
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.concurrent_runs import Job
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.stored import whole_entry
from tests.training.small import StopAfter, small

CPU = Machine(device="cpu", checkpoint_seconds=0.0)
STEPS = 4  # an epoch
pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")


def left(folder: Path, *runs: tuple[Recipe, int], machine: Machine = CPU, expected: int = 3) -> list[list[int]]:
    """Epochs by phase of each run, where regularizing is expected to take so many."""
    jobs = [Job(recipe, seed, folder / recipe.key / f"{seed}") for recipe, seed in runs]

    def length(recipe: Recipe, phase: Any) -> int:
        return expected if phase.stop_when else expected_epochs(recipe, phase, [])

    found = epochs_left(jobs, machine, phase_cache=folder / "phase_cache", expected=length)
    return [[epochs for _, epochs in phases] for phases in found]


def stop_in(folder: Path, recipe: Recipe, steps: int) -> RunFolder:
    """Train a run for some steps; its folder."""
    run, callback = RunFolder(folder / recipe.key / "0"), StopAfter(steps)
    with pytest.raises(Stopped):
        train(recipe, 0, CPU, run.path, callback=callback, stop=callback.request)
    return run


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_common_beginning_is_counted_once(tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cosine, sparser = small(training={"schedule": "cosine"}), small(method={"sparsity": 0.95})
    runs = [(small(), 0), (sparser, 0), (cosine, 0), (small(), 1), (small(data={"flip": False}), 0)]
    assert left(tmp_path, *runs, machine=Machine(device=device)) == [
        [2, 3, 2],
        [0, 3, 2],  # the same pre-training, another way to the mask
        [0, 0, 2],  # the same mask
        [2, 3, 2],
        [2, 3, 2],
    ]
    whole, short = small(method={"name": "imp", "sparsity": 0.9}), small(method={"name": "imp", "sparsity": 0.95})
    begin, dense, *rounds = left(tmp_path, (whole, 0), machine=Machine(device=device))[0]
    assert left(tmp_path, (whole, 0), (short, 0))[1] == [0, 0, *rounds]
    assert begin + dense == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stored_phase_is_not_left(tmp_path: Path, threads: int) -> None:
    torch.set_num_threads(threads)  # of this process; a run of such a small network takes one
    try:
        train(small(until="pre-train"), 0, CPU, tmp_path / "elsewhere", phase_cache=tmp_path / "phase_cache")
        others = [(small(), 1), (small(training={"lr": 0.05}), 0)]
        assert left(tmp_path, (small(), 0), *others) == [[0, 3, 2], [2, 3, 2], [2, 3, 2]]
    finally:
        torch.set_num_threads(1)
    for file in (tmp_path / "phase_cache").iterdir():
        file.unlink()
    assert left(tmp_path, (small(), 0)) == [[2, 3, 2]]


def test_a_run_with_a_checkpoint_goes_on_from_it_and_stores_phases_too(tmp_path: Path) -> None:
    run = stop_in(tmp_path, small(), STEPS + 2)  # in the second epoch
    assert left(tmp_path, (small(), 0)) == [[1, 3, 2]]
    sparser = small(method={"sparsity": 0.95})
    assert left(tmp_path, (small(), 0), (sparser, 0)) == [[1, 3, 2], [0, 3, 2]]
    assert left(tmp_path, (sparser, 0), (small(), 0)) == [[2, 3, 2], [1, 3, 2]]  # it is not there by then
    run.append_log(whole_entry(epoch=1, phase="pre-train"))  # after the checkpoint: will be cut off
    assert left(tmp_path, (small(), 0)) == [[1, 3, 2]]
    checkpoints = [file for file in (run.checkpoint_file, run.previous_file) if file.exists()]
    for damage in (lambda file: file.write_bytes(file.read_bytes()[:100]), Path.unlink):
        for file in checkpoints:
            damage(file)
        assert left(tmp_path, (small(), 0)) == [[2, 3, 2]]  # whatever the log says


def test_an_open_end_that_is_behind_is_known_and_one_ahead_is_at_least_an_epoch(tmp_path: Path) -> None:
    ending = small(until="regularize")
    train(ending, 0, CPU, tmp_path / ending.key / "0")
    assert left(tmp_path, (small(), 0), expected=50) == [[0, 0, 2]]
    longer = small(method={"max_regularized_epochs": 9, "strength": 1e-9, "growth": 1.0})
    stop_in(tmp_path, longer, 4 * STEPS + 1)  # in the third
    assert left(tmp_path, (longer, 0), expected=5) == [[0, 3, 2]]
    assert left(tmp_path, (longer, 0), expected=1) == [[0, 1, 2]]


def test_a_run_past_its_end_goes_on_to_the_end_of_the_plan(tmp_path: Path) -> None:
    short = {"max_regularized_epochs": 1}
    stop_in(tmp_path, small(method=short), 3 * STEPS + 1)
    assert left(tmp_path, (small(method=short, until="regularize"), 0)) == [[0, 0, 2]]

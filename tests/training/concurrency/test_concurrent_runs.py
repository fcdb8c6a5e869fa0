"""Runs side by side are the same runs as alone."""

import multiprocessing
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.errors import DivergedError, RunError
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency import concurrent_runs
from hypersparse.training.concurrency.autotune import begun, best_concurrency, seconds_a_step
from hypersparse.training.concurrency.concurrent_runs import Job, train_together
from hypersparse.training.concurrency.cuda_streams import run_concurrently
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest
from tests.training.held import model
from tests.training.small import small

pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
CPU = Machine(device="cpu")


def images(recipe: Recipe) -> Dataset:
    return data.load(recipe.data.name, options=recipe.data.options)


def jobs_in(folder: Path, recipes: Sequence[Recipe], callback: Any = None) -> list[Job]:
    return [Job(recipe, seed, folder / f"{seed}", callback) for seed, recipe in enumerate(recipes)]


def assert_same_run(one: Path, other: Path) -> None:
    first, second = load_file(one / "final.safetensors"), load_file(other / "final.safetensors")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    entries = [RunFolder(path).log() for path in (one, other)]
    for entry in [*entries[0], *entries[1]]:
        del entry["seconds"]
        entry.pop("shared", None)
    assert entries[0] == entries[1]
    assert (one / "record.npz").read_bytes() == (other / "record.npz").read_bytes()


def check_same_as_alone(tmp_path: Path, machine: Machine) -> None:
    recipes = [small(), small(method={"sparsity": 0.5}), small(training={"epochs": 1})]
    results = train_together(jobs_in(tmp_path / "packed", recipes), machine, images(recipes[0]), concurrency=3)
    for seed, recipe in enumerate(recipes):
        alone = train(recipe, seed, machine, tmp_path / "alone" / f"{seed}")
        found = results[seed]
        assert isinstance(found, dict)
        assert found["sparse"]["last"] == alone["sparse"]["last"]
        assert_same_run(tmp_path / "packed" / f"{seed}", tmp_path / "alone" / f"{seed}")


@pytest.mark.slow
def test_each_run_is_what_it_is_alone(tmp_path: Path) -> None:
    check_same_as_alone(tmp_path, CPU)


@pytest.mark.gpu
def test_eager_runs_on_the_gpu_are_what_they_are_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    check_same_as_alone(tmp_path, Machine(device="cuda", engine="eager", deterministic=True))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_captured_runs_on_the_gpu_train_side_by_side(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(device="cuda", engine="cudagraph", precision="bf16")
    recipes = [small(method={"strength": 1e-4}) for _ in range(4)]
    recipes += [small(method={"name": "rigl", "sparsity": 0.9, "update_every": 2}) for _ in range(2)]
    jobs = jobs_in(tmp_path, recipes)
    for result in train_together(
        jobs, machine, images(recipes[0]), concurrency=4, phase_cache=tmp_path / "phase_cache"
    ):
        assert isinstance(result, dict)
        assert result["kept"] == result["total"] - int(result["total"] * 0.9)
    assert "eagerly" not in caplog.text
    with machine.active() as device:
        on_device = images(recipes[0]).to(device)
        assert 1 <= best_concurrency(recipes[0], machine, device, on_device, most=3) <= 3


class CountsDense(Callback):
    """Counts the dense epochs that were really trained, over all runs."""

    def __init__(self) -> None:
        self.dense, self.lock = 0, threading.Lock()

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        with self.lock:
            self.dense += entry["stage"] == "dense" and "shared" not in entry


@pytest.mark.slow
def test_a_common_beginning_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_runs, "SECONDS_BETWEEN_LOOKS", 0.01)
    torch.set_num_threads(1)
    recipes = [small(method={"sparsity": sparsity}) for sparsity in (0.9, 0.95, 0.98)]
    callback = CountsDense()
    jobs = [Job(recipe, 0, tmp_path / f"{recipe.key}", callback) for recipe in recipes]
    results = train_together(jobs, CPU, images(recipes[0]), concurrency=2, phase_cache=tmp_path / "phase_cache")
    assert all(isinstance(result, dict) for result in results)
    assert callback.dense == 2
    for recipe in recipes:
        train(recipe, 0, CPU, tmp_path / "alone" / recipe.key)
        assert_same_run(tmp_path / recipe.key, tmp_path / "alone" / recipe.key)


class CountsPhases(Callback):
    """Counts the epochs of each phase that were really trained, over all runs."""

    def __init__(self) -> None:
        self.counts, self.lock = Counter[str](), threading.Lock()

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        with self.lock:
            self.counts[entry["phase"]] += "shared" not in entry


@pytest.mark.slow
def test_runs_that_part_after_the_mask_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_runs, "SECONDS_BETWEEN_LOOKS", 0.01)
    torch.set_num_threads(1)
    tables: list[dict[str, Any]] = [{}, {"training": {"schedule": "cosine"}}, {"method": {"sparsity": 0.95}}]
    recipes = [small(**table) for table in tables]
    callback = CountsPhases()
    jobs = [Job(recipe, 0, tmp_path / recipe.key, callback) for recipe in recipes]
    results = train_together(jobs, CPU, images(recipes[0]), concurrency=3, phase_cache=tmp_path / "phase_cache")
    epochs = [result["epochs"] for result in results if isinstance(result, dict)]
    assert len(epochs) == 3
    assert callback.counts["pre-train"] == 2
    assert callback.counts["regularize"] == epochs[0]["regularize"] + epochs[2]["regularize"]
    assert callback.counts["fine-tune"] == 6
    for recipe in recipes:
        train(recipe, 0, CPU, tmp_path / "alone" / recipe.key)
        assert_same_run(tmp_path / recipe.key, tmp_path / "alone" / recipe.key)


@pytest.mark.slow
def test_a_stored_phase_is_looked_for_by_the_name_that_its_process_gives_it(tmp_path: Path) -> None:
    recipes, phase_cache = [small(until="pre-train")] * 2, tmp_path / "phase_cache"
    torch.set_num_threads(2)  # of this process; those that train such small networks take one
    try:
        train_together(jobs_in(tmp_path, recipes), CPU, images(recipes[0]), concurrency=2, phase_cache=phase_cache)
        jobs = jobs_in(tmp_path, recipes)
        caches = concurrent_runs._caches(jobs, CPU, images(recipes[0]), phase_cache, record=True, threads=2)
        assert [cache.missing(job.recipe.plan()) for cache, job in zip(caches, jobs, strict=True)] == [[], []]
    finally:
        torch.set_num_threads(1)


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    recipes = [small(), small(training={"lr": 1e30}), small()]
    results = train_together(jobs_in(tmp_path, recipes), CPU, images(recipes[0]), concurrency=2)
    assert isinstance(results[1], DivergedError)
    assert isinstance(results[0], dict)
    assert isinstance(results[2], dict)


class StopAfterEpochs(Callback):
    """Asks for a stop after a number of epochs of all runs."""

    def __init__(self, epochs: int) -> None:
        self.request, self.left = StopRequest(), epochs

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            self.request.stop("test")


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 2])
def test_stopped_runs_go_on_later(tmp_path: Path, concurrency: int) -> None:
    held = tmp_path / "held"
    slow = small(training={"epochs": 30}, model=model(held))
    recipes = [slow, slow, small()]
    callback = StopAfterEpochs(4)
    jobs = jobs_in(tmp_path, recipes, callback)
    results = train_together(jobs, CPU, images(recipes[0]), concurrency=concurrency, stop=callback.request)
    assert all(isinstance(result, Stopped) for result in results)
    assert not (tmp_path / "2").exists()
    held.unlink()
    train_together(jobs_in(tmp_path, recipes), CPU, images(recipes[0]), concurrency=concurrency)
    for seed, recipe in enumerate(recipes):
        train(recipe, seed, CPU, tmp_path / "alone" / f"{seed}")
        assert_same_run(tmp_path / f"{seed}", tmp_path / "alone" / f"{seed}")


@pytest.mark.slow
def test_a_killed_process_is_said_and_its_run_goes_on(tmp_path: Path) -> None:
    held = tmp_path / "held"
    recipe = small(training={"epochs": 40}, model=model(held))

    class Kills(Callback):
        def finished_epoch(self, entry: dict[str, Any]) -> None:
            for child in multiprocessing.active_children():
                child.kill()

    results = train_together(jobs_in(tmp_path, [recipe] * 2, Kills()), CPU, images(recipe), concurrency=2)
    assert all(isinstance(result, RunError) and "was killed" in str(result) for result in results)
    held.unlink()
    (result,) = train_together(jobs_in(tmp_path, [recipe]), CPU, images(recipe))
    assert isinstance(result, dict)
    train(recipe, 0, CPU, tmp_path / "alone")
    assert_same_run(tmp_path / "0", tmp_path / "alone")


@pytest.mark.gpu
def test_networks_that_draw_random_numbers_are_trained_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = small(model={"name": "wide_resnet", "depth": 10, "factor": 1, "dropout": 0.3})
    machine = Machine(device="cuda", engine="eager", deterministic=True)
    train_together(jobs_in(tmp_path, [recipe] * 2), machine, images(recipe), concurrency=2)
    assert "one after another" in caplog.text
    train(recipe, 1, machine, tmp_path / "alone")
    assert_same_run(tmp_path / "1", tmp_path / "alone")


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    recipe = small()
    first = train(recipe, 0, CPU, tmp_path / "0")
    callback = CountsDense()
    (again,) = train_together([Job(recipe, 0, tmp_path / "0", callback)], CPU, images(recipe))
    assert again == first
    assert callback.dense == 0


def test_the_first_error_is_raised_after_all_have_ended() -> None:
    ended = []

    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_concurrently([fails, lambda: ended.append(1)], torch.device("cpu"))
    assert ended == [1]
    assert run_concurrently([lambda: 1, lambda: 2], torch.device("cpu")) == [1, 2]


def test_a_trial_times_runs_and_writes_nothing(tmp_path: Path) -> None:
    recipe, device = small(), torch.device("cpu")
    runs = [begun(recipe, seed, CPU, device, images(recipe), tmp_path) for seed in range(2)]
    assert seconds_a_step(runs, device, steps=3) > 0
    assert best_concurrency(recipe, CPU, device, images(recipe), most=4) == 1
    assert not list(tmp_path.iterdir())

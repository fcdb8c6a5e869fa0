"""An experiment is trained as far as it goes, and goes on."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse import data
from hypersparse.data.dataset import Dataset
from hypersparse.errors import DataError, DivergedError, RunError
from hypersparse.recipe import Recipe
from hypersparse.runs.experiment import Run
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import LocalExecutor, failures, finished, job_of, keep_finished, missing, sweep
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.concurrent_runs import Job, unfinished
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest
from tests.stored import whole_result
from tests.training.concurrency.test_concurrent_runs import assert_same_run
from tests.training.small import small

pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
CPU = Machine(device="cpu")


def load(recipe: Recipe) -> Dataset:
    if recipe.data.name != "synthetic":
        raise DataError(f"{recipe.data.name} is not there.")
    return data.load(recipe.data.name, options=recipe.data.options)


def go(runs: list[Run], tmp_path: Path, **more: Any) -> list[Any]:
    store, phase_cache = RunStore(tmp_path / "runs"), tmp_path / "phase_cache"
    return sweep(runs, LocalExecutor(CPU, load, concurrency=1), store, phase_cache=phase_cache, **more)


def test_a_failing_run_is_recorded_and_the_others_continue(tmp_path: Path) -> None:
    runs = [
        Run(small(), 0),
        Run(small(training={"lr": 1e30}), 0),
        Run(small(data={"name": "cifar10"}), 0),
        Run(small(data={"images": 96}), 0),
    ]
    told: list[type] = []
    outcomes = go(runs, tmp_path, ended=lambda job, outcome: told.append(type(outcome)))
    assert [type(outcome) for outcome in outcomes] == [dict, DivergedError, DataError, dict]
    assert told == [dict, DivergedError, DataError, dict]
    store = RunStore(tmp_path / "runs")
    assert missing(runs, store, None) == runs[1:3]
    ((folder, reason),) = failures(store).items()
    assert folder == store.folder(runs[1].recipe, 0).path
    assert "stopped being finite" in reason


def test_a_failure_that_cannot_be_recorded_does_not_stop_the_sweep(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, store = Run(small(training={"lr": 1e30}), 0), RunStore(tmp_path / "runs")
    (store.folder(run.recipe, 0).failure_file / "in the way").mkdir(parents=True)
    (outcome,) = go([run], tmp_path)
    assert isinstance(outcome, DivergedError)
    assert "could not be recorded there" in caplog.text


def test_a_finished_run_is_not_a_failure(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.failure_file.write_text("The disk was full.")
    folder.write_result(whole_result())
    assert not folder.failure_file.exists()


def test_runs_with_stored_results_are_not_trained_again(tmp_path: Path) -> None:
    run, results = Run(small(), 0), tmp_path / "results"
    go([run], tmp_path, results=results)
    (kept,) = results.glob("*/seed-0")
    assert sorted(path.name for path in kept.iterdir()) == [
        "log.jsonl",
        "recipe.toml",
        "record.npz",
        "result.json",
        "timing.jsonl",
    ]
    elsewhere = RunStore(tmp_path / "bare machine")
    assert missing([run], elsewhere, None) == [run]
    assert missing([run], elsewhere, results) == []
    # A run that ends earlier is contained in one that went on, and not the other way round.
    shorter = Run(small(until="regularize"), 0)
    assert finished(shorter, elsewhere, results) is not None
    go([shorter], tmp_path / "short", results=tmp_path / "short results")
    assert missing([run], elsewhere, tmp_path / "short results") == [run]


def test_a_stop_skips_runs_that_have_not_started(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.stop("test")
    outcomes = go([Run(small(), 0), Run(small(data={"images": 96}), 0)], tmp_path, stop=stop)
    assert all(isinstance(outcome, Stopped) for outcome in outcomes)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_succeeds_later_is_no_failure(tmp_path: Path) -> None:
    run = Run(small(), 0)
    folder = RunStore(tmp_path / "runs").folder(run.recipe, 0).path
    folder.mkdir(parents=True)
    (folder / "failed.txt").write_text("once\n")
    go([run], tmp_path)
    assert not failures(RunStore(tmp_path / "runs"))
    assert RunFolder(folder).result() is not None


@pytest.mark.parametrize("content", ["{", "[]", '{"until": "another"}'])
def test_a_damaged_result_does_not_stop_other_runs(content: str, tmp_path: Path) -> None:
    runs, store, results = [Run(small(), 0), Run(small(), 1)], RunStore(tmp_path / "runs"), tmp_path / "results"
    damaged = store.folder(runs[0].recipe, 0).path
    damaged.mkdir(parents=True)
    (damaged / "result.json").write_text(content)
    keep_finished(runs, store, results)
    assert missing(runs, store, results) == runs
    assert len(unfinished([job_of(run, store) for run in runs])) == 2
    told: list[tuple[int, type]] = []
    outcomes = go(runs, tmp_path, results=results, ended=lambda job, outcome: told.append((job.seed, type(outcome))))
    assert [type(outcome) for outcome in outcomes] == [RunError, dict]
    assert told == [(0, RunError), (1, dict)]
    assert (damaged / "result.json").read_text() == content
    assert list(failures(store)) == [damaged]


def test_a_valid_copy_in_the_results_replaces_a_damaged_one(tmp_path: Path) -> None:
    run, store, results = Run(small(), 0), RunStore(tmp_path / "runs"), tmp_path / "results"
    go([run], tmp_path, results=results)
    store.folder(run.recipe, 0).result_file.write_text("{")
    assert missing([run], store, results) == []
    assert missing([run], store, None) == [run]


class Told(Callback):
    """Notes which epochs of which run were trained, in the order in which that happened."""

    def __init__(self, job: Job, told: list[tuple[str, str]]) -> None:
        self.name, self.told = job.recipe.method.label(), told

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        self.told.append((self.name, entry["phase"]))


def test_runs_are_trained_in_order_and_share_phases(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    runs = [Run(small(method={"sparsity": sparsity}), 0) for sparsity in (0.95, 0.9)]
    go(runs, tmp_path, callback=lambda job: Told(job, told))
    assert list(dict.fromkeys(name for name, _ in told)) == ["art-hypersparse-0.95", "art-hypersparse-0.9"]
    assert [name for name, phase in told if phase == "pre-train"] == ["art-hypersparse-0.95"] * 2


def test_a_run_stopped_at_its_mask_resumes_bit_for_bit(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    go([Run(small(until="regularize"), 0)], tmp_path, callback=lambda job: Told(job, told))
    assert {phase for _, phase in told} == {"pre-train", "regularize"}
    told.clear()
    (outcome,) = go([Run(small(), 0)], tmp_path, callback=lambda job: Told(job, told))
    assert {phase for _, phase in told} == {"fine-tune"}
    assert isinstance(outcome, dict)
    assert outcome["until"] is None
    train(small(), 0, CPU, tmp_path / "whole")
    assert_same_run(RunStore(tmp_path / "runs").folder(small(), 0).path, tmp_path / "whole")


def test_runs_resumed_after_their_mask_are_packed(tmp_path: Path) -> None:
    go([Run(small(until="pre-train"), seed) for seed in range(2)], tmp_path)
    jobs = [job_of(Run(small(), seed), RunStore(tmp_path / "runs")) for seed in range(2)]
    assert unfinished(jobs) == jobs
    shorter = [job_of(Run(small(until="pre-train"), seed), RunStore(tmp_path / "runs")) for seed in range(2)]
    assert unfinished(shorter) == []


def test_a_result_is_copied_as_soon_as_its_run_ends(tmp_path: Path) -> None:
    results, seen = tmp_path / "results", list[int]()

    class Looks(Callback):
        def finished_epoch(self, entry: dict[str, Any]) -> None:
            seen.append(len(list(results.glob("*/*/result.json"))))

    go([Run(small(), 0), Run(small(), 1)], tmp_path, results=results, callback=lambda job: Looks())
    assert (seen[0], seen[-1]) == (0, 1)


def test_the_next_sweep_copies_what_a_killed_one_finished(tmp_path: Path) -> None:
    run, store, results = Run(small(), 0), RunStore(tmp_path / "runs"), tmp_path / "results"
    go([run], tmp_path)  # nothing was copied
    keep_finished([run, Run(small(), 1)], store, results)
    assert finished(run, RunStore(tmp_path / "bare"), results) is not None
    assert len(list(results.glob("*/*"))) == 1


def test_errors_of_any_type_are_recorded(tmp_path: Path) -> None:
    class Breaks(Callback):
        def finished_epoch(self, entry: dict[str, Any]) -> None:
            raise MemoryError("no room")

    (outcome,) = go([Run(small(), 0)], tmp_path, callback=lambda job: Breaks())
    assert isinstance(outcome, MemoryError)
    assert list(failures(RunStore(tmp_path / "runs")).values()) == ["MemoryError: no room"]

"""Runs on a real Ray of two workers on this machine: what dies goes on, what fails is said, and a stop saves."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hypersparse.errors import DataError, DivergedError, HypersparseError, OptionError, RunError
from hypersparse.integrations.ray import RayCluster
from hypersparse.runs.experiment import Run
from hypersparse.runs.store import RunStore
from hypersparse.runs.sweep import failures, sweep
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback
from hypersparse.training.concurrency.concurrent_runs import Job
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped, StopRequest
from tests.cli.commands import run
from tests.cli.test_sweep import EXPERIMENT, held_experiment
from tests.training.concurrency.test_concurrent_runs import CountsDense, assert_same_run
from tests.training.held import model
from tests.training.small import small

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of its own code
CPU = Machine(device="cpu", checkpoint_seconds=0.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Two workers of one core each, and an object store of 80 MB."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'hypersparse[ray]'")
    for left in (2, 1, 0):
        try:
            ray.init(
                address="local",
                num_cpus=2,
                object_store_memory=80 << 20,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
            break
        except Exception:  # it gives itself 30 s to start, which four other programs on two cores can take up
            ray.shutdown()
            if not left:
                raise
    with RayCluster(CPU) as there:
        yield there
    assert ray.is_initialized()  # whoever began it ends it
    ray.shutdown()


def go(cluster: RayCluster, runs: list[Run], folder: Path, **more: Any) -> list[Any]:
    return sweep(runs, cluster, RunStore(folder / "runs"), phase_cache=folder / "phase_cache", **more)


def folder_of(run: Run, folder: Path) -> Path:
    return RunStore(folder / "runs").folder(run.recipe, run.seed).path


def trainer(folder: Path) -> int:
    """The process that holds the lock of a run."""
    lock = folder.resolve() / ".lock"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = any(file.readlink() == lock for file in (process / "fd").iterdir())
        except OSError:  # not ours, or gone
            continue
        if held and int(process.name) != os.getpid():
            return int(process.name)
    raise AssertionError(f"nobody trains in {folder}")


class Kills(Callback):
    """Kills the worker that trains a run, so many times, each time some epochs after the last; then frees the run."""

    def __init__(self, folder: Path, times: int, held: Path) -> None:
        self.folder, self.times, self.held = folder, times, held
        self.after = 4  # the next epoch to kill after: one that no killed worker logged
        self.lost: list[int] = []  # epochs that were done and are not in the checkpoint
        self.told: list[int] = []

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        self.told.append(entry["epoch"])
        if self.times == len(self.lost) or entry["epoch"] < self.after:
            return
        os.kill(trainer(self.folder), signal.SIGKILL)
        state, logged = json.loads((self.folder / "state.json").read_text()), len(RunFolder(self.folder).log())
        self.lost.append(logged - state["epochs_finished"])
        self.after = logged + 4
        if self.times == len(self.lost):
            self.held.unlink()


@pytest.mark.slow
def test_a_worker_that_dies_costs_the_last_epoch_of_one_run(cluster: RayCluster, tmp_path: Path) -> None:
    held = tmp_path / "held"
    runs = [Run(small(training={"epochs": 60}, model=model(held)), 0), Run(small(), 1)]
    kills = Kills(folder_of(runs[0], tmp_path), 2, held)

    def callback(job: Job) -> Callback:
        return kills if job.seed == 0 else Callback()

    outcomes = go(cluster, runs, tmp_path, callback=callback)
    assert [type(outcome) for outcome in outcomes] == [dict, dict]
    assert len(kills.lost) == 2  # killed twice
    assert all(lost <= 1 for lost in kills.lost)
    assert kills.told == list(range(outcomes[0]["epochs_total"]))  # each epoch once
    for one in runs:
        train(one.recipe, one.seed, CPU, tmp_path / "alone" / f"{one.seed}")
        assert_same_run(folder_of(one, tmp_path), tmp_path / "alone" / f"{one.seed}")


@pytest.mark.slow
def test_a_run_that_fails_is_noted_and_the_rest_goes_on(cluster: RayCluster, tmp_path: Path) -> None:
    runs = [
        Run(small(training={"lr": 1e30}), 0),
        Run(small(data={"name": "missing.npz"}), 0),
        Run(small(), 0),
    ]
    outcomes = go(cluster, runs, tmp_path, results=tmp_path / "results")
    assert [type(outcome) for outcome in outcomes] == [DivergedError, DataError, dict]
    ((failed, reason),) = failures(RunStore(tmp_path / "runs")).items()
    assert failed == folder_of(runs[0], tmp_path)
    assert "stopped being finite" in reason
    assert len(list((tmp_path / "results").glob("*/seed-0/result.json"))) == 1


@pytest.mark.slow
def test_a_common_beginning_is_trained_once(cluster: RayCluster, tmp_path: Path) -> None:
    counter = CountsDense()
    runs = [Run(small(method={"sparsity": sparsity}), 0) for sparsity in (0.9, 0.95)]
    outcomes = go(cluster, runs, tmp_path, callback=lambda job: counter)
    assert all(isinstance(outcome, dict) for outcome in outcomes)
    assert counter.dense == 2  # epochs of pre-training, once


class Asks(Callback):
    def __init__(self) -> None:
        self.request = StopRequest()

    def finished_epoch(self, entry: dict[str, Any]) -> None:
        if entry["epoch"] == 3:
            self.request.stop("test")


@pytest.mark.slow
def test_a_stop_saves_and_the_same_sweep_goes_on(cluster: RayCluster, tmp_path: Path) -> None:
    asks = Asks()
    slow = small(training={"epochs": 60}, model=model(tmp_path / "held"))
    runs = [Run(slow, seed) for seed in range(3)]
    outcomes = go(cluster, runs, tmp_path, stop=asks.request, callback=lambda job: asks)
    assert all(isinstance(outcome, Stopped) for outcome in outcomes)
    assert not folder_of(runs[2], tmp_path).exists()  # two workers: it was not begun
    state = json.loads((folder_of(runs[0], tmp_path) / "state.json").read_text())
    assert state["epochs_finished"] == len(RunFolder(folder_of(runs[0], tmp_path)).log())
    shorter = [Run(replace(slow, until="pre-train"), seed) for seed in range(2)]
    assert all(isinstance(outcome, dict) for outcome in go(cluster, shorter, tmp_path))


@pytest.mark.slow
def test_a_run_whose_worker_always_dies_is_given_up(cluster: RayCluster, tmp_path: Path) -> None:
    (outcome,) = go(cluster, [Run(small(model={"name": "tests.integrations.deadly:build"}), 0)], tmp_path)
    assert isinstance(outcome, RunError)
    assert "died 3 times without getting an epoch further" in str(outcome)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_saves_and_the_same_command_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hypersparse[ray]'")
    (tmp_path / "small.toml").write_text(held_experiment(tmp_path / "held", epochs=60))
    arguments = ["sweep", "small.toml", "--executor", "ray", "--only", "method=dense", "--trust-code"]
    command = [sys.executable, "-W", "ignore", "-m", "hypersparse", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        while "epoch 0" not in (line := process.stdout.readline()):
            assert line
        os.killpg(process.pid, signal.SIGINT)  # to all of the terminal's processes, as Ctrl-C does
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "0 runs finished, 1 to go on with, 0 failed" in out
    (saved,) = tmp_path.glob("runs/*/seed-0/state.json")
    assert json.loads(saved.read_text())["epochs_finished"] >= 1
    (tmp_path / "held").unlink()
    again = run(*arguments, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "1 run finished, 0 to go on with, 0 failed" in again.stdout
    assert "epoch 0" not in again.stdout


Wrong = Callable[[], object]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: RayCluster(Machine(device="cuda:1")), "Ray hands out GPUs itself"),
        (lambda: RayCluster(CPU, gpus=1.0), "contradict each other"),
        (lambda: RayCluster(Machine(), gpus=0.0), "is above 0"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(wrong: Wrong, words: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hypersparse[ray]'")
    with pytest.raises(OptionError, match=words):
        wrong()


@pytest.mark.parametrize(("address", "words"), [("127.0.0.1:1", "Nobody answers at"), ("head", "is HOST:PORT")])
def test_a_cluster_that_is_not_there_is_said_at_once(address: str, words: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hypersparse[ray]'")
    with pytest.raises(HypersparseError, match=words), RayCluster(CPU, address=address):
        pass


def test_executors_are_named(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    done = run("sweep", "small.toml", "--executor", "rey", folder=tmp_path)
    assert done.returncode == 2
    assert "did you mean `ray`?" in done.stderr

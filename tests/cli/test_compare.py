"""A small grid, trained for real."""

import json
from pathlib import Path

import pytest
import torch

from hypersparse.cli.compare import GridOptions
from hypersparse.errors import RunError
from hypersparse.runs import epoch_times, sweep
from hypersparse.runs.store import RunStore
from hypersparse.training.concurrency.concurrent_runs import Ended, Job
from hypersparse.training.stop import Stopped, StopRequest
from tests.cli.commands import QUICK, run
from tests.runs.finished import finish

GRID = ["compare", *QUICK, "--methods", "art,dense", "--sparsity", "0.5,0.9", "--seed", "0-1", "--epochs", "1"]
PAPERS = [*GRID, "--sparsity", "0.9,0.95"]  # those of the paper share what they can
SHORT = ["--set", "art.pretrain_epochs=1", "--set", "art.max_regularized_epochs=1", "--jobs", "1"]


@pytest.mark.slow
def test_a_grid_is_trained_and_put_side_by_side(tmp_path: Path) -> None:
    done = run(*GRID, *SHORT, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "6 runs, 6 to train" in " ".join(done.stdout.split())
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/seed-*/result.json")]
    assert sorted((result["method"], result["seed"]) for result in results) == [
        *[("art", 0)] * 2,
        *[("art", 1)] * 2,
        ("dense", 0),
        ("dense", 1),
    ]
    table = (tmp_path / "comparison" / "table.md").read_text()
    assert table.count("±") >= 4
    assert {path.name for path in (tmp_path / "comparison").iterdir()} >= {"runs.csv", "accuracy.png", "paired.csv"}
    again = run(*GRID, *SHORT, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "to train" not in again.stdout
    dry = run(*GRID, *SHORT, "--dry-run", folder=tmp_path)
    assert dry.stdout == "6 runs, trained already\n"


@pytest.mark.slow
def test_names_with_spaces_between_them_and_a_folder_with_brackets(tmp_path: Path) -> None:
    folder = tmp_path / "my [/old] runs"
    folder.mkdir(parents=True)
    words = ["compare", *QUICK, "--methods", "dense, random", "--sparsity", "0.5", "--seed", "0", "--epochs", "1"]
    done = run(*words, "--runs-dir", str(folder), "-o", str(folder / "[red]"), "--no-report", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(folder / "[red]" / "table.md") in done.stdout


def test_a_folder_that_cannot_be_is_said_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "comparison").touch()
    done = run("compare", *QUICK, "--methods", "dense", "--device", "cpu", "--epochs", "1", folder=tmp_path)
    assert done.returncode == 2
    assert "dir 'comparison' is a file" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_signal_is_the_exit_code_and_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(jobs: list[Job], *_: object, stop: StopRequest, **__: object) -> list[Stopped]:
        stop.stop("SIGINT")
        return [Stopped("the parent process asked for it") for _ in jobs]

    monkeypatch.setattr(sweep, "train_together", stopped)
    monkeypatch.setattr(epoch_times, "seconds_an_epoch", lambda *_: 1.0)
    done = run(*GRID, *SHORT, folder=tmp_path)
    assert done.returncode == 130
    assert "failed:" not in done.stdout
    assert "Stopped (SIGINT). 6 of 6 runs missing; the same command goes on." in done.stdout


def test_why_a_run_failed_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(jobs: list[Job], *_: object, ended: Ended, **__: object) -> list[RunError]:
        error = RunError("No path is left.")
        for job in jobs:
            job.folder.mkdir(parents=True)
            ended(job, error)
        return [error for _ in jobs]

    monkeypatch.setattr(sweep, "train_together", failing)
    monkeypatch.setattr(epoch_times, "seconds_an_epoch", lambda *_: 1.0)
    done = run(*GRID, *SHORT, folder=tmp_path)
    assert done.returncode == 2
    notes = [*(tmp_path / "runs").glob("*/seed-*/failed.txt")]
    assert [note.read_text() for note in notes] == ["No path is left.\n"] * 6


def test_an_unknown_method_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    done = run("compare", "--methods", "art,snap", folder=tmp_path)
    assert done.returncode == 2
    assert "snap" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_says_what_it_would_take(tmp_path: Path) -> None:
    done = run(*PAPERS, *SHORT, "--dry-run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    # For each seed an epoch of pre-training, two ways to a mask, two networks to fine-tune, and a dense one.
    assert "6 runs, 6 to train: about 12 epochs, one after another: " in " ".join(done.stdout.split())
    assert "pre-train 2 2 " in " ".join(done.stdout.split())  # runs that train it, and epochs
    assert "a short trial" in done.stdout
    assert not (tmp_path / "comparison").exists()


def test_a_dry_run_of_data_that_never_will_be_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where known data may be
    monkeypatch.delenv("HYPERSPARSE_DATA", raising=False)
    asked = ["compare", "--methods", "dense", "--seed", "0", "--device", "cpu", "--dry-run", "--data-dir", "."]
    wrong = run(*asked, "--data", "no/where", folder=tmp_path)
    assert wrong.returncode == 2
    assert "no/where" in wrong.stderr
    assert wrong.stderr.count("\n") == 1
    known = run(*asked, "--data", "tinyimagenet", folder=tmp_path)
    assert known.returncode == 0, known.stderr
    assert "one after another: not known" in " ".join(known.stdout.split())


@pytest.mark.parametrize(("precision", "words"), [("fp32", "1 like it"), ("bf16", "a short trial")])
def test_a_dry_run_goes_by_finished_runs_of_the_same_precision(tmp_path: Path, precision: str, words: str) -> None:
    chosen = [*QUICK[3::2], *SHORT[1:4:2]]
    grid = GridOptions(methods="art", sparsities="0.98", data="synthetic", epochs=1, settings=chosen)
    (recipe,) = grid.recipes(tmp_path)
    finish(RunStore(tmp_path / "runs"), recipe)
    done = run(*PAPERS, *SHORT, "--device", "cpu", "--precision", precision, "--dry-run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (press,) = [line for line in done.stdout.splitlines() if line.split()[:1] == ["regularize"]]
    assert press.endswith(words)
    assert ("30.00" in press) is (precision == "fp32")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_elsewhere_can_be_planned_for_and_not_used(tmp_path: Path) -> None:
    dry = run(*PAPERS, *SHORT, "--device", "cuda", "--dry-run", folder=tmp_path)
    assert dry.returncode == 0, dry.stderr
    assert "about 12 epochs, one after another: not known" in " ".join(dry.stdout.split())
    assert "There is no `cuda` here" in dry.stdout
    assert run(*PAPERS, *SHORT, "--device", "cuda", folder=tmp_path).returncode == 2

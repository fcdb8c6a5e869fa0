"""`hypersparse sweep` on a small experiment."""

import json
import signal
from pathlib import Path

import pytest
import torch

from hypersparse.runs.store import RunStore
from tests.cli.commands import run, start
from tests.training.held import model

EXPERIMENT = """
title = "Small"
[options.data]
images = 64
test_images = 32
size = 8
[options.training]
epochs = 1
[[grid]]
data = "synthetic"
method = ["random", "dense"]
sparsity = [0.5, 0.9]
"""


def held_experiment(file: Path, *, epochs: int) -> str:
    """It with more epochs, which take long until the file is taken away."""
    table = model(file)
    longer = EXPERIMENT.replace("epochs = 1", f'epochs = {epochs}\n[options.model]\nfile = "{table["file"]}"')
    return longer + f'model = "{table["name"]}"\n'


@pytest.mark.slow
def test_what_is_missing_is_trained_and_kept(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    arguments = ["sweep", "small.toml", "--results", "results"]
    dry = run(*arguments, "--dry-run", folder=tmp_path)
    assert dry.returncode == 0, dry.stderr
    assert "Small: 3 runs, 3 to train" in dry.stdout
    (total,) = [line.split() for line in dry.stdout.splitlines() if line.startswith("all")]
    assert total[:3] == ["all", "3", "3"]  # runs and epochs, then hours, minutes or seconds
    assert total[4] in ("h", "min", "s")
    assert not (tmp_path / "runs").exists()
    some = run(*arguments, "--only", "method=dense", folder=tmp_path)
    assert "1 run finished, 0 to go on with, 0 failed" in some.stdout
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Small: 3 runs, 2 to train" in done.stdout
    assert len(list((tmp_path / "results").glob("*/seed-0/result.json"))) == 3
    again = run(*arguments, folder=tmp_path)
    assert "Small: 3 runs, 0 to train" in again.stdout
    assert (tmp_path / "runs" / "small.html").read_text().count("seed-0") >= 3  # the report of all three


@pytest.mark.slow
def test_a_dry_run_counts_the_epochs_that_are_then_trained(tmp_path: Path) -> None:
    short = "[options.method]\npretrain_epochs = 2\nmax_regularized_epochs = 1\n[[grid]]"
    papers = EXPERIMENT.replace('["random", "dense"]', '"art"').replace("[0.5, 0.9]", "[0.9, 0.95, 0.98, 0.99]")
    (tmp_path / "shared.toml").write_text(papers.replace("[[grid]]", short))
    words = ["sweep", "shared.toml", "--device", "cpu", "--jobs", "1"]
    for only, runs, counted in (["--only", "sparsity=0.9"], 1, 4), ([], 3, 6):  # 2 + 1 + 1, then thrice 0 + 1 + 1
        before = epochs_trained(tmp_path)
        dry = run(*words, *only, "--dry-run", folder=tmp_path)
        assert dry.returncode == 0, dry.stderr
        (total,) = [line.split() for line in dry.stdout.splitlines() if line.startswith("all")]
        assert total[1:3] == [str(runs), str(counted)]
        assert run(*words, *only, "--no-report", folder=tmp_path).returncode == 0
        assert epochs_trained(tmp_path) - before == counted


def epochs_trained(folder: Path) -> int:
    """Those in the logs that no other run had trained."""
    logs = [run.log() for run in RunStore(folder / "runs").runs()]
    return sum(not entry.get("shared") for log in logs for entry in log)


@pytest.mark.slow
def test_data_sets_that_differ_in_options_alone_are_not_mixed_up(tmp_path: Path) -> None:
    second = EXPERIMENT + "[[grid]]\ndata = 'synthetic'\nmethod = 'dense'\noptions.data.classes = 4\n"
    (tmp_path / "two.toml").write_text(second)
    done = run("sweep", "two.toml", "--only", "method=dense", "--no-report", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/seed-0/result.json")]
    assert {result["recipe"]["data"].get("classes"): len(result["classes"]) for result in results} == {None: 10, 4: 4}


def test_a_folder_that_cannot_be_is_said_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    done = run("sweep", "small.toml", "--results", "small.toml", "--device", "cpu", folder=tmp_path)
    assert done.returncode == 2
    assert "dir 'small.toml' is a file" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("data", "words"), [('"cifar10"', "not known"), ('["synthetic", "cifar10"]', "at least")])
def test_where_data_are_missing_the_time_is_not_known(data: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(f'title = "Two"\n[[grid]]\ndata = {data}\nmodel = "resnet8"\nmethod = "dense"\n')
    dry = run("sweep", "two.toml", "--device", "cpu", "--dry-run", folder=tmp_path)
    assert dry.returncode == 0, dry.stderr
    (total,) = [line.split(maxsplit=3) for line in dry.stdout.splitlines() if line.startswith("all")]
    assert total[3].startswith(words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_elsewhere_can_be_planned_for_and_not_used(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('title = "One"\n[[grid]]\ndata = "synthetic"\nmethod = "dense"\n')
    dry = run("sweep", "one.toml", "--device", "cuda", "--dry-run", folder=tmp_path)
    assert dry.returncode == 0, dry.stderr
    assert "There is no `cuda` here" in dry.stdout
    assert "not known" in dry.stdout
    assert run("sweep", "one.toml", "--device", "cuda", folder=tmp_path).returncode == 2


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    done = run("sweep", "none.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "none.toml cannot be read" in done.stderr


@pytest.mark.slow
def test_a_sweep_that_is_killed_or_interrupted_goes_on(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(held_experiment(tmp_path / "held", epochs=40))
    arguments = ["sweep", "small.toml", "--results", "results", "--jobs", "1", "--trust-code"]
    for kind, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        process = start(*arguments, folder=tmp_path)
        assert process.stdout is not None
        while " epoch " not in (line := process.stdout.readline()):
            assert line
        process.send_signal(kind)
        process.communicate(timeout=120)
        assert process.returncode == code
    (tmp_path / "held").unlink()
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "results").glob("*/seed-0/result.json"))) == 3
    for log in (tmp_path / "results").glob("*/seed-0/log.jsonl"):
        assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == list(range(40))

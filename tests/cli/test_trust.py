"""Own code on the command line: named there or trusted, else left alone."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.cli.commands import SHORT, run, run_alone, the_run

CODE = """
from pathlib import Path
from torch import nn
from hypersparse import ART
Path(__file__).with_name("imported").touch()

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

class Mine(ART):
    pass
"""
OWN = ["--model", "own_code_here:net", "--method", "own_code_here:Mine"]
EXPERIMENT = """
[[grid]]
data = "synthetic"
model = "own_code_here:net"
method = ["own_code_here:Mine"]
sparsity = 0.9
seeds = 2
[options.data]
images = 64
test_images = 32
size = 8
[options.training]
epochs = 1
[options.method]
pretrain_epochs = 1
max_regularized_epochs = 1
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of own code, and that code."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_code_here.py").write_text(CODE)
    done = run("train", *SHORT, *OWN, "--no-report", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, from which nothing was imported yet."""
    copied = shutil.copytree(trained, tmp_path / "copy")
    (copied / "imported").unlink()
    sys.modules.pop("own_code_here", None)
    yield copied
    sys.modules.pop("own_code_here", None)


READING = {
    "runs": ["runs"],
    "report": ["report"],
    "show": ["show", "net"],
    "analyze curves": ["analyze", "coverage"],
    "analyze layers": ["analyze", "layers"],
    "paper": ["paper"],
    "pack": ["pack", "net", "-o", "packed"],
}


@pytest.mark.parametrize("what", READING)
def test_runs_of_own_code_are_read_without_it(what: str, folder: Path) -> None:
    done = run(*READING[what], folder=folder)
    assert (done.returncode, done.stderr.count("Traceback")) in ((0, 0), (2, 0)), done.stderr
    assert not (folder / "imported").exists()
    if what == "runs":
        assert "own_code_here:Mine" in done.stdout


LOADING = {
    "evaluate": ["evaluate", "net"],
    "export": ["export", "net", "-o", "out.hsp"],
    "shrink": ["shrink", "net"],
    "serve": ["serve", "net", "--no-browser"],
    "train": ["train", "--recipe", "stored.toml"],
    "plan": ["plan", "--recipe", "stored.toml"],
    "sweep": ["sweep", "experiment.toml"],
}


@pytest.mark.parametrize("what", LOADING)
def test_what_needs_own_code_asks_for_trust(what: str, folder: Path) -> None:
    (folder / "experiment.toml").write_text(EXPERIMENT)
    shutil.copy(the_run(folder).recipe_file, folder / "stored.toml")
    done = run(*LOADING[what], folder=folder)
    assert done.returncode == 2, done.stdout
    assert "own_code_here:" in done.stderr
    assert "--trust-code" in done.stderr
    assert not (folder / "imported").exists()


def test_a_name_on_the_command_line_is_trust(folder: Path) -> None:
    done = run("evaluate", "net", "--model", "own_code_here:net", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "imports" not in done.stderr
    assert (folder / "imported").exists()


def test_trusted_names_are_printed_first(folder: Path) -> None:
    done = run("evaluate", "net", "--trust-code", folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["imports 'own_code_here:net', which a file names"]
    shutil.copy(the_run(folder).recipe_file, folder / "stored.toml")
    done = run("plan", "--recipe", "stored.toml", "--trust-code", folder=folder)
    assert done.returncode == 0, done.stderr
    assert [line.split("'")[1] for line in done.stderr.splitlines()] == ["own_code_here:Mine", "own_code_here:net"]


def test_the_same_command_resumes_a_run_of_own_code(folder: Path) -> None:
    the_run(folder).result_file.unlink()
    done = run("train", *SHORT, *OWN, "--no-report", folder=folder)
    assert done.returncode == 0, done.stderr
    assert the_run(folder).result_file.exists()


def test_a_network_needs_no_method_to_be_evaluated(folder: Path) -> None:
    (folder / "own_code_here.py").write_text(CODE.replace("class Mine", "class Other"))
    done = run("evaluate", "net", "--model", "own_code_here:net", folder=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_trusted_sweep_trains_in_processes(folder: Path) -> None:
    (folder / "experiment.toml").write_text(EXPERIMENT)
    arguments = ["sweep", "experiment.toml", "--jobs", "2", "--no-report"]
    done = run_alone(*arguments, "--trust-code", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs finished" in done.stdout, done.stdout
    assert run_alone(*arguments, folder=folder).returncode == 2


@pytest.mark.slow
def test_modules_of_the_current_folder_are_not_taken_for_ours(folder: Path) -> None:
    """A folder that was unpacked may hold a file with any name; only `python -m`, by Python's own rule, looks there."""
    for name in ("payload", "pandas", "matplotlib", "onnxruntime"):
        (folder / f"{name}.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    command = Path(sys.executable).with_name("hypersparse")
    if not command.exists():
        pytest.skip("hypersparse is not installed as a command here")
    for arguments in (["report"], ["runs"], ["analyze", "layers"], ["show", "net"]):
        assert subprocess.run([command, *arguments], cwd=folder, capture_output=True, timeout=240).returncode in (0, 2)
        assert not (folder / "imported").exists()


@pytest.mark.parametrize("command", [["show", "net"], ["analyze", "coverage"]], ids=["show", "analyze"])
def test_settings_in_the_current_folder_start_nothing(command: list[str], folder: Path) -> None:
    """Matplotlib reads a `matplotlibrc` that lies there."""
    (folder / "matplotlibrc").write_text("text.usetex: True\nbackend: module://own_code_here\n")
    for name in ("latex", "xelatex", "lualatex"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {folder}/imported\n")
        (folder / name).chmod(0o755)
    with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
        run_alone(*command, folder=folder)
    assert not (folder / "imported").exists()

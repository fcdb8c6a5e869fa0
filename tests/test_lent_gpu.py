"""`scripts/lent-gpu`: an experiment that begins on one machine and ends on another."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = str(ROOT / "scripts/lent-gpu")
EXPERIMENT = """
[[grid]]
data = "synthetic"
model = "resnet8"
method = "art"
sparsity = [0.9, 0.98]
options.training.epochs = 12
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "lent for minutes"),
        (["start"], "`start` needs an argument"),
        (["start", "missing.toml"], "there is no experiment missing.toml"),
        (["collect", "folder"], "no sweep was started"),
        (["continue", "missing"], "missing/unfinished.tar.gz"),
    ],
)
def test_wrong_arguments_are_said_and_leave_nothing(tmp_path: Path, words: list[str], sentence: str) -> None:
    environment = {**os.environ, "LENT_GPU_STATE": str(tmp_path / "state")}
    done = subprocess.run([SCRIPT, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert sentence in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


def test_what_would_travel_is_weighed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("data\n")
    (tmp_path / "code.py").write_bytes(bytes(3 * 2**20))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/part").write_bytes(bytes(61 * 2**20))

    def weigh(*paths: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([SCRIPT, "weigh", *paths], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (weigh().returncode, weigh().stdout) == (0, "3.0 MiB of 64\n")
    heavy = weigh("data")
    assert (heavy.returncode, heavy.stdout) == (2, "64.0 MiB of 64\n")
    assert "smaller parts" in heavy.stderr


@pytest.mark.slow
def test_runs_go_on_elsewhere_and_only_new_results_are_collected(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(EXPERIMENT)
    (tmp_path / "results/old-run/seed-0").mkdir(parents=True)
    shutil.copytree(ROOT / "hypersparse", tmp_path / "hypersparse")

    def script(machine: str, *words: str) -> str:
        environment = {**os.environ, "LENT_GPU_STATE": str(tmp_path / machine), "PYTHON": sys.executable}
        environment["PYTHONPATH"] = str(ROOT)
        done = subprocess.run(
            [SCRIPT, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    script("one", "start", "all.toml", "--device", "cpu", "--jobs", "1")
    shutil.rmtree(tmp_path / "hypersparse")
    assert (tmp_path / "one/code/hypersparse/__main__.py").exists()
    for _ in range(120):
        if list((tmp_path / "one/runs").glob("*/seed-0/log.jsonl")):
            break
        script("one", "wait", "1")
    script("one", "stop")
    script("one", "collect", str(tmp_path / "moved"), "all")
    assert {path.name.partition(".")[0] for path in (tmp_path / "moved").iterdir()} >= {"results", "unfinished"}
    script("two", "continue", str(tmp_path / "moved"))
    script("two", "start", "all.toml", "--device", "cpu")
    assert "2 runs finished, 0 to go on with" in script("two", "wait", "240")
    script("two", "collect", str(tmp_path / "home"))
    listed = subprocess.run(
        ["tar", "tzf", str(tmp_path / "home/results.tar.gz.00")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len([path for path in listed if path.endswith("result.json")]) == 2
    assert not any("old-run" in path for path in listed)

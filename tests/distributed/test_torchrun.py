"""`torchrun --nproc-per-node N -m hypersparse train`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hypersparse.errors import OptionError
from hypersparse.runs.torchrun import ranks_of_torchrun
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.machine import Machine

pytestmark = [pytest.mark.ddp, pytest.mark.slow]
TRAIN = ["train", "--device", "cpu", "--no-report"]
SHORT = [
    "--model",
    "mlp",
    "--epochs",
    "1",
    "--set",
    "method.pretrain_epochs=1",
    "--set",
    "method.max_regularized_epochs=1",
]
OWN_MODEL = """
import os
from torch import nn
from hypersparse.errors import DataError

def network(*, shape, classes):
    if os.environ["RANK"] == "1":
        raise DataError("This machine has no disk left.")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


def torchrun(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "hypersparse", *TRAIN, "--runs-dir", str(folder / "runs"), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{folder}"}
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


def test_two_processes_train_one_run_and_print_once(tmp_path: Path) -> None:
    done = torchrun(tmp_path, *SHORT)
    assert done.returncode == 0, done.stderr
    epochs = [line for line in done.stdout.splitlines() if " loss " in line]
    assert [line.split()[0] for line in epochs] == ["pre-train", "regularize", "fine-tune"]
    assert done.stdout.count("files:") == done.stdout.count("data:") == 1
    assert done.stderr.count("Pruning still cost accuracy") <= 1
    (run,) = (tmp_path / "runs").glob("*/seed-0")
    result = RunFolder(run).result()
    assert result is not None
    assert result["machine"].get("ranks") == 2
    assert not list(run.glob("*.error*"))


def test_an_error_of_one_process_ends_all_and_is_printed_once(tmp_path: Path) -> None:
    (tmp_path / "own_model.py").write_text(OWN_MODEL)
    done = torchrun(tmp_path, "--trust-code", "--model", "own_model:network")
    assert done.returncode != 0
    assert done.stderr.count("This machine has no disk left.") == 1, done.stderr
    assert "Traceback" not in done.stderr.partition("error: This machine")[0]


def test_processes_without_a_gpu_of_their_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "",
        "MASTER_PORT": "",
    }.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(OptionError, match=r"2 processes were started, and 1 GPU found\. Pass `--nproc-per-node 1`"),
        ranks_of_torchrun(Machine(device="cuda"), os.environ),
    ):
        pass


def test_an_error_of_all_processes_is_printed_once(tmp_path: Path) -> None:
    done = torchrun(tmp_path, "--seed", "0-2")
    assert done.returncode != 0
    assert done.stderr.count("Several processes train one run") == 1, done.stderr

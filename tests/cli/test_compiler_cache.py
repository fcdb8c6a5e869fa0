"""What is compiled can be kept and taken along."""

import os
from pathlib import Path

import pytest
import torch

from hypersparse.training.machine import Machine
from tests.cli.commands import QUICK, SHORT, run, run_alone


@pytest.mark.slow
def test_what_was_compiled_is_kept_where_one_says(tmp_path: Path) -> None:
    small = [*QUICK, "--model", "mlp", "--method", "dense", "--epochs", "1"]
    arguments = ["train", *small, "--engine", "compiled", "--compiler-cache", "cache"]
    done = run_alone(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = [path for path in (tmp_path / "cache" / "torch").rglob("*") if path.is_file()]
    assert kept
    moved = tmp_path / "elsewhere"
    (tmp_path / "cache").rename(moved)
    before = {path.relative_to(moved) for path in moved.rglob("*.cpp")}
    again = run_alone(*arguments[:-1], str(moved), "--seed", "1", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert {path.relative_to(moved) for path in moved.rglob("*.cpp")} == before  # nothing was written anew


@pytest.mark.parametrize("command", ["train", "sweep", "compare"])
def test_commands_that_train_have_torch_and_triton_keep_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    monkeypatch.setattr(
        Machine, "torch_device", lambda _: told.extend(map(os.environ.get, names)) or torch.device("cpu")
    )
    (tmp_path / "one.toml").write_text('title = "One"\n[[grid]]\ndata = "synthetic"\nmethod = "dense"\n')
    asked = {"sweep": ["one.toml", "--dry-run"], "compare": ["--data", "synthetic", "--dry-run"], "train": SHORT}
    done = run(command, *asked[command], "--device", "cpu", "--compiler-cache", "kept", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert told[-2:] == [str(tmp_path / "kept" / "torch"), str(tmp_path / "kept" / "triton")]


def test_a_folder_that_cannot_be_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("train", *SHORT, "--compiler-cache", "file/cache", folder=tmp_path)
    assert done.returncode == 2
    assert "file/cache" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_cluster_keeps_its_own(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('title = "One"\n[[grid]]\ndata = "synthetic"\nmethod = "dense"\n')
    done = run("sweep", "one.toml", "--executor", "ray", "--compiler-cache", "kept", folder=tmp_path)
    assert done.returncode == 2
    assert "`--compiler-cache` is for `--executor local`" in done.stderr

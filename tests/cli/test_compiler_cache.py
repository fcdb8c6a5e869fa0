"""What is compiled can be kept and taken along."""

from pathlib import Path

import pytest

from tests.cli.commands import QUICK, run_alone


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

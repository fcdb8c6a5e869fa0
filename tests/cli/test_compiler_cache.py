"""What is compiled can be kept and taken along."""

from pathlib import Path

import pytest

from tests.cli.test_train import SHORT, run


@pytest.mark.slow
def test_what_was_compiled_is_kept_where_one_says(tmp_path: Path) -> None:
    arguments = ["train", *SHORT, "--engine", "compiled", "--compiler-cache", "cache"]
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = [path for path in (tmp_path / "cache" / "torch").rglob("*") if path.is_file()]
    assert kept
    moved = tmp_path / "elsewhere"
    (tmp_path / "cache").rename(moved)
    before = {path.relative_to(moved) for path in moved.rglob("*.cpp")}
    again = run(*arguments[:-1], str(moved), "--seed", "1", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert {path.relative_to(moved) for path in moved.rglob("*.cpp")} == before  # nothing was written anew

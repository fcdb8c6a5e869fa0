"""A result names the code that made it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hypersparse.training import result

COMMIT = re.compile(r"[0-9a-f]{40}")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a file of the package, alone."""
    file = tmp_path / "hypersparse" / "training" / "result.py"
    file.parent.mkdir(parents=True)
    shutil.copyfile(result.__file__, file)
    monkeypatch.setattr(result, "__file__", str(file))
    return file


def git(folder: Path, *command: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "-C", str(folder), *command], check=True, capture_output=True)


def test_code_without_git_has_its_version_and_a_digest(package: Path, tmp_path: Path) -> None:
    version = result.code_version.__wrapped__
    first = version()
    assert re.fullmatch(r"\d+\.\d+\.\d+\+sha256\.[0-9a-f]{16}", first)
    assert version() == first
    git(tmp_path, "init")
    assert version() == first  # somebody else's repository
    package.write_text(package.read_text() + "# changed\n")
    assert version() != first


def test_code_in_a_checkout_has_its_commit(package: Path, tmp_path: Path) -> None:
    version = result.code_version.__wrapped__
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "x")
    assert COMMIT.fullmatch(version())
    package.write_text(package.read_text() + "# changed\n")
    assert re.fullmatch(rf"{COMMIT.pattern}-dirty\+sha256\.[0-9a-f]{{16}}", version())

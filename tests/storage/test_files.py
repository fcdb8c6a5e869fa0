import os
import subprocess
from pathlib import Path

import pytest

from hypersparse.storage.files import HOUR, remove_leftovers
from hypersparse.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_next_start_removes_what_a_killed_process_left(tmp_path: Path, dead: int) -> None:
    run = RunFolder(tmp_path)
    run.history.folder.mkdir()
    gone = [tmp_path / f".checkpoint.safetensors.{dead}", tmp_path / f".log.jsonl.{os.getpid()}"]
    gone.append(run.history.folder / f".0003.safetensors.{dead}")
    stays = [tmp_path / f".result.json.{os.getppid()}", tmp_path / f".mine.{dead}", tmp_path / ".wandb.json"]
    for path in (*gone, *stays):
        path.touch()
    with run.locked():
        pass
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in stays)


def test_where_others_write_only_old_files_are_removed(tmp_path: Path, dead: int) -> None:
    names = [f".{name}.safetensors.{process}" for name in ("old", "new") for process in (dead, os.getpid())]
    for name in names:
        path = tmp_path / name
        path.touch()
        if "old" in name:
            time = path.stat().st_mtime - 2 * HOUR
            os.utime(path, (time, time))
    remove_leftovers(tmp_path, alone=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])

import errno
import fcntl
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from hypersparse.errors import RunError
from hypersparse.storage.lock import NAME, RunLock, is_locked
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.callbacks import Callback
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.training.small import small


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked():
        assert is_locked(tmp_path)
        with pytest.raises(RunError, match="Another process is training"), RunFolder(tmp_path).locked():
            pass
    assert not is_locked(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    run = RunFolder(tmp_path)
    with run.locked():
        run.check_lock()
        assert not is_locked(tmp_path)
    assert f"{tmp_path} is on a file system without locks" in caplog.text


def test_a_lock_replaced_between_opening_and_locking_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = fcntl.flock, [2]

    def replaced(file: int, how: int) -> None:
        if left[0]:
            left[0] -= 1
            (tmp_path / NAME).unlink()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    run = RunFolder(tmp_path)
    with run.locked():
        run.check_lock()
        assert left == [0]


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "mine.txt"
    other.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / NAME).symlink_to(other)
    with pytest.raises(RunError, match="could not be written"), RunFolder(tmp_path / "run").locked():
        pass
    assert other.read_text() == "mine"


@pytest.mark.parametrize("again", [False, True])
def test_two_processes_do_not_train_one_run(tmp_path: Path, again: bool) -> None:
    class Meddler(Callback):
        def stepped(self, step: int) -> None:
            (tmp_path / NAME).unlink(missing_ok=True)
            if again:
                (tmp_path / NAME).touch()

    machine = Machine(device="cpu", checkpoint_seconds=0.0)
    with pytest.raises(RunError, match="was deleted or replaced during training"):
        train(small(), 0, machine, tmp_path, callback=Meddler())
    assert not RunFolder(tmp_path).has_checkpoint()
    assert RunFolder(tmp_path).log() == []


def _wait(began: Any, done: Any) -> None:
    began.set()
    done.wait()


def test_a_forked_process_does_not_hold_the_lock_of_its_parent(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    context = multiprocessing.get_context("fork")
    began, done = context.Event(), context.Event()
    process = context.Process(target=_wait, args=(began, done))
    process.start()
    began.wait()
    assert is_locked(tmp_path)
    lock.close()
    free = not is_locked(tmp_path)
    done.set()
    process.join()
    assert free

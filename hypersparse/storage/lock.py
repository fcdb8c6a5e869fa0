"""The lock of a run folder: one process trains there at a time."""

import errno
import fcntl
import logging
import os
from pathlib import Path
from weakref import WeakSet

from hypersparse.errors import RunError
from hypersparse.regular_file import open_regular
from hypersparse.storage.files import writing

NAME = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without locks
ATTEMPTS = 10  # if other processes replace the file
log = logging.getLogger("hypersparse")


class RunLock:
    """The lock of a folder, held until it is closed or the process ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._supported = True
        for _ in range(ATTEMPTS):
            with writing(self._path):
                # Does not truncate and follows no link, since the file may belong to another program.
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            _open.add(self)
            try:
                self._lock()
                self.check()
            except _ReplacedError:
                self.close()
                continue
            except BaseException:
                self.close()
                raise
            return
        raise RunError(f"The lock {self._path} is replaced again and again; find out by whom, and try again.")

    def check(self) -> None:
        """Raise an error if the lock file was deleted or replaced: another process may then train here."""
        if not self._supported:
            return
        try:
            same = os.path.samestat(os.fstat(self._file), os.stat(self._path, follow_symlinks=False))  # noqa: PTH116
        except FileNotFoundError:
            same = False
        if not same:
            raise _ReplacedError(
                f"The lock {self._path} was deleted or replaced during training, so another process may train there. "
                "Make sure that none does, and run the same command to go on."
            )

    def close(self) -> None:
        """Release the lock."""
        _open.discard(self)
        os.close(self._file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"Another process is training in {self._path.parent}; wait for it or stop it.") from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            self._supported = False
            log.warning(
                "%s is on a file system without locks; make sure that only one process trains there.",
                self._path.parent,
            )


_open: WeakSet[RunLock] = WeakSet()


def _close_all() -> None:
    """Close all locks in a forked process, which would otherwise hold them after its parent has ended."""
    for lock in list(_open):
        lock.close()


os.register_at_fork(after_in_child=_close_all)


class _ReplacedError(RunError):
    """The lock file is no longer the locked one."""


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of this run folder; writes nothing."""
    try:
        lock = open_regular(folder / NAME)
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False

"""Whether somebody is training in a run folder right now."""

import fcntl
from pathlib import Path


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of this run folder; nothing is written to find out."""
    try:
        lock = (folder / ".lock").open()
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks: training could not have taken one either
            return False
    return False

"""Opens files that may be a stranger's: only regular ones, or links to such."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """The file, open for reading; raises OSError for a pipe, a device, a socket or a folder.

    Reading a pipe would wait for ever, and a device for what it likes.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # so that opening a pipe does not wait either
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")

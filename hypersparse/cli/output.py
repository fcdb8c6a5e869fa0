"""Standard output and error whose failure ends no command, but sets the exit code."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

CLOSED_PIPE = 141  # what a shell reports of a program that SIGPIPE has ended


class StandardStream(io.FileIO):
    """A file descriptor that drops what it can no longer write, and remembers why.

    A run takes hours and the pipe behind it may be `| head -1`: training goes on without its output.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None

    def write(self, content: object, /) -> int:
        """Write, or drop all that comes after the first failure: output with a gap would mislead."""
        if self.failure is None:
            try:
                return super().write(content)  # type: ignore[arg-type]
            except OSError as error:
                self.failure = error
        return memoryview(content).nbytes  # type: ignore[arg-type]


@contextmanager
def standard_streams() -> Iterator[list[StandardStream]]:
    """Inside, output that cannot be encoded is printed as `?`, and output that cannot be written is dropped."""
    before = sys.stdout, sys.stderr
    streams: list[StandardStream] = []
    sys.stdout, sys.stderr = (_tolerant(stream, streams) for stream in before)
    try:
        yield streams
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def code_of_failure(streams: list[StandardStream]) -> int:
    """The exit code of a successful command: 0, 141 after a closed pipe, 1 after other lost output."""
    sys.stdout.flush()
    sys.stderr.flush()
    failures = [stream.failure for stream in streams if stream.failure is not None]
    if not failures:
        return 0
    if failures[0].errno == errno.EPIPE:
        return CLOSED_PIPE
    print(f"error: The output was cut off ({failures[0].strerror}); the command itself went on.", file=sys.stderr)
    return 1


def _tolerant(stream: TextIO | None, streams: list[StandardStream]) -> TextIO:
    if stream is None:  # closed by `>&-`
        return io.TextIOWrapper(io.FileIO(os.devnull, "w"))
    if not isinstance(stream, io.TextIOWrapper) or stream not in (sys.__stdout__, sys.__stderr__):
        return stream  # a caller's own, such as a test's
    stream.flush()
    raw = StandardStream(stream.fileno())
    streams.append(raw)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors="replace", line_buffering=stream.isatty()
    )

"""Notices code and programs that start while a file is read, by Python's audit events."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hypersparse
import hypersparse_runtime

MARK = "hs_payload"  # in every text of every hostile file, and the name of a module in the current folder
STARTS = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
    "subprocess.Popen",
    "webbrowser.open",
    "pickle.find_class",
    "socket.connect",
    "socket.getaddrinfo",
    "urllib.Request",
}
OURS = tuple(str(Path(package.__file__).parent) for package in (hypersparse, hypersparse_runtime))
LIBRARIES = (sys.prefix, sys.base_prefix, str(Path.home() / ".cache" / "hypersparse" / "kernels"), *OURS)
TOPS = {*sys.stdlib_module_names, *packages_distributions(), "hypersparse", "hypersparse_runtime", "tests"}


class Watch:
    """Collects what happens inside `during` that no reader may do. A hook stays for the life of a process."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._found, self._on = f"{folder}/", list[str](), False
        sys.addaudithook(self._hear)

    @contextmanager
    def during(self) -> Iterator[list[str]]:
        """What is found from now on, until the end of the block."""
        self._found, self._on = [], True
        try:
            yield self._found
        finally:
            self._on = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on:
            return
        self._on = False  # what is done here is not the reader's
        try:
            if problem := self._problem(event, arguments):
                self._found.append(f"{event}: {problem[:200]}")
        finally:
            self._on = True

    def _problem(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event in STARTS:
            return repr(arguments)
        if event == "import":
            return _strange_import(arguments[0])
        if event == "compile":
            return _marked(arguments[0])
        if event == "exec":
            return _marked_code(arguments[0], self._folder)
        if event == "ctypes.dlopen":
            name = str(arguments[0])
            return "" if arguments[0] is None or "/" not in name or name.startswith(LIBRARIES) else name
        return ""


def _marked(source: object) -> str:
    text = source.decode(errors="replace") if isinstance(source, bytes) else str(source)
    return text if MARK in text else ""


def _marked_code(code: object, folder: str) -> str:
    if not isinstance(code, CodeType):
        return ""
    own = [code.co_filename, *code.co_names, *(value for value in code.co_consts if isinstance(value, str))]
    inner = (_marked_code(value, folder) for value in code.co_consts)
    return next((text for text in own if MARK in text or text.startswith(folder)), "") or next(filter(None, inner), "")


def _strange_import(name: str) -> str:
    """Libraries try optional ones by names of their own; this package imports what is installed."""
    frame: FrameType | None = sys._getframe(3)
    while frame and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    ours = frame is not None and frame.f_code.co_filename.startswith(OURS)
    return name if MARK in name or (ours and name.partition(".")[0] not in TOPS) else ""

"""A byte stream split into files of a limited size, with an index."""

import hashlib
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from hypersparse.errors import OptionError, RunError
from hypersparse.regular_file import open_regular
from hypersparse.storage.files import write_json, writing
from hypersparse.storage.schemas import Count, Word, read_json

INDEX = "index.json"
VERSION = 1
PART_NAME = re.compile(r"part-\d{3,}\.hspack")
MIN_PART_BYTES = 1024  # bytes; avoids a huge number of files
CHUNK = 1 << 20


@with_config(ConfigDict(strict=True, extra="forbid"))
class Part(TypedDict):
    """One file of a pack, in the index."""

    file: Word
    bytes: Count
    sha256: Word


@with_config(ConfigDict(strict=True, extra="forbid"))
class IndexTables(TypedDict):
    """The index of a pack."""

    version: int
    parts: list[Part]
    runs: list[Word]


@dataclass(frozen=True)
class Index:
    """The parts of a pack, and the names of its runs as `<label>/seed-<n>`."""

    parts: list[Part]
    runs: list[str]

    def write(self, folder: Path) -> None:
        """Write the index into the folder of the parts, after all parts are complete."""
        write_json(folder / INDEX, {"version": VERSION, "parts": self.parts, "runs": self.runs})

    @classmethod
    def read(cls, folder: Path) -> "Index":
        """Read the index from a folder of parts."""
        if not (folder / INDEX).exists():
            raise RunError(
                f"{folder} is not a pack: it has no {INDEX}, which `hypersparse pack` writes last. "
                "Copy it too, or pack again."
            )
        tables = read_json(folder / INDEX, IndexTables, "Copy it again or pack again.")
        if tables["version"] != VERSION:
            raise RunError(f"{folder} is a pack of version {tables['version']}; this hypersparse reads {VERSION}.")
        names = [part["file"] for part in tables["parts"]]
        if unknown := next((name for name in names if not PART_NAME.fullmatch(name)), None):
            raise RunError(f"{folder / INDEX} names a part {unknown!r}; parts are called part-000.hspack and so on.")
        return cls(tables["parts"], tables["runs"])

    def check(self, folder: Path) -> None:
        """Compare the size and digest of every part with the index."""
        for part in self.parts:
            path, expected = folder / part["file"], part["bytes"]
            try:
                size, digest = path.stat().st_size, _sha256(path, expected)
            except FileNotFoundError:
                raise RunError(f"{path} is missing; copy it again.") from None
            except OSError as error:
                raise RunError(f"{path} cannot be read: {error.strerror}.") from None
            if size != expected:
                raise RunError(f"{path} has {size:,} bytes instead of {expected:,}; copy it again.")
            if digest != part["sha256"]:
                raise RunError(f"{path} was altered: its SHA-256 is not the one in {INDEX}; copy it again.")


class PartWriter(io.RawIOBase):
    """Writes a stream into part-000.hspack, part-001.hspack ... of at most `max_bytes` each."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        if max_bytes < MIN_PART_BYTES:
            raise OptionError(f"A part of a pack must have at least {MIN_PART_BYTES:,} bytes; got {max_bytes:,}.")
        super().__init__()
        self.parts: list[Part] = []
        self._folder, self._max_bytes = folder, max_bytes
        self._file: BinaryIO | None = None
        self._hash, self._size = hashlib.sha256(), 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Write as much as fits into the current part; returns the number of bytes written."""
        if self._file is None:
            self._file = self._path().open("wb")
            self._hash, self._size = hashlib.sha256(), 0
        chunk = memoryview(data)[: self._max_bytes - self._size]
        self._file.write(chunk)
        self._hash.update(chunk)
        self._size += len(chunk)
        if self._size == self._max_bytes:
            self._finish_part()
        return len(chunk)

    def close(self) -> None:
        """Finish the last part."""
        self._finish_part()
        super().close()

    def _path(self) -> Path:
        return self._folder / f"part-{len(self.parts):03d}.hspack"

    def _finish_part(self) -> None:
        if self._file is None:
            return
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        self.parts.append({"file": self._path().name, "bytes": self._size, "sha256": self._hash.hexdigest()})
        self._file = None


class PartReader(io.RawIOBase):
    """Reads the parts of a pack as one stream."""

    def __init__(self, folder: Path, parts: Sequence[Part]) -> None:
        super().__init__()
        self._paths = [folder / part["file"] for part in parts]
        self._file: BinaryIO | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; returns 0 at the end of the stream."""
        while self._file is not None or self._paths:
            if self._file is None:
                self._file = open_regular(self._paths.pop(0))
            data = self._file.read(len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            self._file.close()
            self._file = None
        return 0

    def close(self) -> None:
        """Close the current part."""
        if self._file is not None:
            self._file.close()
        super().close()


def clear(folder: Path) -> None:
    """Remove an earlier pack, index first, so that an incomplete pack is never read."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        for path in folder.iterdir():
            if PART_NAME.fullmatch(path.name):
                path.unlink()


def _sha256(path: Path, size: int) -> str:
    """Digest of a file; reads little more than `size` bytes of a longer file."""
    found = hashlib.sha256()
    with open_regular(path) as file:
        while file.tell() <= size and (chunk := file.read(CHUNK)):
            found.update(chunk)
    return found.hexdigest()

"""One long stream of bytes as files of a limited size, and the index that says what belongs to it."""

import hashlib
import io
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
SMALLEST_PART = 1024  # bytes; below it the files would outnumber what they hold
CHUNK = 1 << 20


@with_config(ConfigDict(strict=True, extra="forbid"))
class PartTable(TypedDict):
    """One file of a pack, in the index."""

    file: Word
    bytes: Count
    sha256: Word


@with_config(ConfigDict(strict=True, extra="forbid"))
class IndexTables(TypedDict):
    """The index of a pack."""

    version: int
    parts: list[PartTable]
    runs: list[Word]


@dataclass(frozen=True)
class Part:
    """One file of a pack."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Index:
    """What a pack consists of, and the runs inside as `<label>/seed-<n>`."""

    parts: tuple[Part, ...]
    runs: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write it into the folder of the parts; it comes last and means that all of them are there."""
        write_json(folder / INDEX, {"version": VERSION, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> "Index":
        """The index of a folder of parts."""
        if not (folder / INDEX).exists():
            raise RunError(
                f"{folder} is not a pack: it has no {INDEX}, which `hypersparse pack` writes last. "
                "Copy it too, or pack again."
            )
        tables = read_json(folder / INDEX, IndexTables, "Copy it again or pack again.")
        if tables["version"] != VERSION:
            raise RunError(f"{folder} is a pack of version {tables['version']}; this hypersparse reads {VERSION}.")
        parts = tuple(Part(**part) for part in tables["parts"])
        if stranger := next((part.file for part in parts if not PART_NAME.fullmatch(part.file)), None):
            raise RunError(f"{folder / INDEX} names a part {stranger!r}; parts are called part-000.hspack and so on.")
        return cls(parts, tuple(tables["runs"]))

    def check(self, folder: Path) -> None:
        """Compare every part with what the index says of it."""
        for part in self.parts:
            path = folder / part.file
            try:
                size, digest = path.stat().st_size, _sha256(path, part.bytes)
            except FileNotFoundError:
                raise RunError(f"{path} is missing; copy it again.") from None
            except OSError as error:
                raise RunError(f"{path} cannot be read: {error.strerror}.") from None
            if size != part.bytes:
                raise RunError(f"{path} has {size:,} bytes instead of {part.bytes:,}; copy it again.")
            if digest != part.sha256:
                raise RunError(f"{path} was altered: its SHA-256 is not the one in {INDEX}; copy it again.")


class PartWriter(io.RawIOBase):
    """Writes a stream into part-000.hspack, part-001.hspack ... of at most `max_bytes` each."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        if max_bytes < SMALLEST_PART:
            raise OptionError(f"A part of a pack has at least {SMALLEST_PART:,} bytes; got {max_bytes:,}.")
        super().__init__()
        self.parts: list[Part] = []
        self._folder, self._max_bytes = folder, max_bytes
        self._file: BinaryIO | None = None
        self._hash, self._size = hashlib.sha256(), 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Write as much as fits into the current part, and say how much that was."""
        if self._file is None:
            self._file = self._path().open("wb")
            self._hash, self._size = hashlib.sha256(), 0
        taken = memoryview(data)[: self._max_bytes - self._size]
        self._file.write(taken)
        self._hash.update(taken)
        self._size += len(taken)
        if self._size == self._max_bytes:
            self._finish_part()
        return len(taken)

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
        self.parts.append(Part(self._path().name, self._size, self._hash.hexdigest()))
        self._file = None


class PartReader(io.RawIOBase):
    """Reads the parts of a pack as the one stream they are."""

    def __init__(self, folder: Path, parts: Sequence[Part]) -> None:
        super().__init__()
        self._paths = [folder / part.file for part in parts]
        self._file: BinaryIO | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from where the stream stands; 0 at its end."""
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
        """Close the part that is open."""
        if self._file is not None:
            self._file.close()
        super().close()


def clear(folder: Path) -> None:
    """Remove an earlier pack, index first, so that a half-written one is never taken for whole."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        for path in folder.iterdir():
            if PART_NAME.fullmatch(path.name):
                path.unlink()


def _sha256(path: Path, size: int) -> str:
    """Of a file, or of the beginning of one that is longer than it should be."""
    found = hashlib.sha256()
    with open_regular(path) as file:
        while file.tell() <= size and (chunk := file.read(CHUNK)):
            found.update(chunk)
    return found.hexdigest()

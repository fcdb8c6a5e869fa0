"""Safe reading of `.npz` files: headers are checked against size limits before any array is decompressed."""

import io
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypersparse.errors import DataError
from hypersparse.regular_file import open_regular

Arrays = dict[str, npt.NDArray[Any]]

SUFFIX = ".npy"
MAX_NAME_LENGTH, MAX_MESSAGE_LENGTH = 100, 300
MAX_HEADER_BYTES = 2**14  # of an array
# A file of zeros expands to 1,032 times its size, MNIST to 5 times.
MAX_EXPANSION, SMALL_BYTES = 100, 2**26
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1  # of a member's flags


@dataclass(frozen=True)
class ArrayHeader:
    """The shape and type of an array, from its header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


def read_headers(path: Path) -> dict[str, ArrayHeader]:
    """Read the headers of all arrays without decompressing them; their total size is bounded by the file's size."""
    with _archive(path) as archive:
        members = _members(archive)
        return {name: _header(archive, member)[0] for name, member in members.items()}


def read_arrays(path: Path, names: Collection[str] | None = None) -> Arrays:
    """Read the named arrays, or all; pickled objects are refused and checksums are verified."""
    with _archive(path) as archive:
        members = _members(archive)
        return {name: _array(archive, members[name]) for name in (members if names is None else names)}


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the file as a zip archive; every failure becomes a `DataError`."""
    try:
        with open_regular(path) as file:
            if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it holds a single array")
            with zipfile.ZipFile(file) as archive:
                yield archive
    except Exception as error:  # zipfile and numpy raise anything from NotImplementedError to struct.error
        message = str(error).partition("\n")[0][:MAX_MESSAGE_LENGTH] or type(error).__name__
        raise DataError(f"{path} is not a complete .npz file of plain arrays ({message}).") from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members of all arrays by name, after checking them and their total size."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(SUFFIX)
        if name == info.filename:
            continue
        if not name.isprintable() or len(name) > MAX_NAME_LENGTH:
            raise ValueError(f"{name[:MAX_NAME_LENGTH]!r} is not a valid array name")
        if name in members:
            raise ValueError(f"it has two arrays `{name}`")
        if info.flag_bits & ENCRYPTED:
            raise ValueError(f"`{name}` is encrypted")
        if info.compress_type not in METHODS:
            raise ValueError(f"`{name}` uses the compression method {info.compress_type}; only deflate is supported")
        members[name] = info
    assert archive.fp is not None
    size, claimed = archive.fp.seek(0, io.SEEK_END), sum(info.file_size for info in members.values())
    limit = SMALL_BYTES + MAX_EXPANSION * size
    if claimed > limit:
        advice = "save it with `np.savez`, without compression"
        raise ValueError(f"its {size} bytes would expand to {claimed}, above the limit of {limit}; {advice}")
    return members


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[ArrayHeader, int]:
    """Read the header of an array, and the number of bytes it takes."""
    with archive.open(member) as stream:
        start = io.BytesIO(stream.read(MAX_HEADER_BYTES))
    version = np.lib.format.read_magic(start)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"`{member.filename}` has the version {version}; only 1.0 and 2.0 are supported")
    shape, _, dtype = read(start)
    header = ArrayHeader(shape, dtype)
    if dtype.hasobject or (dtype.itemsize == 0 and header.size):
        raise ValueError(f"`{member.filename}` has the unsupported type {dtype}")
    if any(side < 0 for side in shape) or header.size * dtype.itemsize + start.tell() != member.file_size:
        raise ValueError(f"`{member.filename}` claims the shape {shape} of {dtype} in {member.file_size} bytes")
    return header, start.tell()


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    _header(archive, member)
    with archive.open(member) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # reading to the end verifies the checksum
    return array

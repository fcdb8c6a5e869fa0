"""Arrays in an `.npz` file: what it says of them first, then, if they are as large as it says, the arrays."""

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
LONGEST_NAME, LONGEST_SENTENCE = 100, 300
MOST_HEADER = 2**14  # bytes before an array's numbers
# A file of zeros inflates to 1,032 times its size; MNIST to 5 times.
MOST_EXPANSION, SMALL_BYTES = 100, 2**26
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1  # of a member's flags


@dataclass(frozen=True)
class Header:
    """What a file says of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)


def read_headers(path: Path) -> dict[str, Header]:
    """The type and shape of every array, which fit into a bounded multiple of the file's size; nothing is expanded."""
    with _archive(path) as archive:
        members = _members(archive)
        return {name: _header(archive, member)[0] for name, member in members.items()}


def read_arrays(path: Path, names: Collection[str] | None = None) -> Arrays:
    """These arrays, or all in the file; none is unpickled, and the checksum of each is tested."""
    with _archive(path) as archive:
        members = _members(archive)
        return {name: _array(archive, members[name]) for name in (members if names is None else names)}


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The file as a zip; whatever goes wrong with it is one sentence."""
    try:
        with open_regular(path) as file:
            if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it holds a single array")
            with zipfile.ZipFile(file) as archive:
                yield archive
    except Exception as error:  # zipfile and numpy raise anything from NotImplementedError to struct.error
        said = str(error).partition("\n")[0][:LONGEST_SENTENCE] or type(error).__name__
        raise DataError(f"{path} is not a whole .npz file of plain arrays ({said}).") from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Arrays by their names, once it is known that all of them can be expanded."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(SUFFIX)
        if name == info.filename:
            continue
        if not name.isprintable() or len(name) > LONGEST_NAME:
            raise ValueError(f"{name[:LONGEST_NAME]!r} is no name of an array")
        if name in members:
            raise ValueError(f"it has two arrays `{name}`")
        if info.flag_bits & ENCRYPTED:
            raise ValueError(f"`{name}` is encrypted")
        if info.compress_type not in METHODS:
            raise ValueError(f"`{name}` is compressed by the method {info.compress_type}, and only deflate is known")
        members[name] = info
    assert archive.fp is not None
    size, claimed = archive.fp.seek(0, io.SEEK_END), sum(info.file_size for info in members.values())
    most = SMALL_BYTES + MOST_EXPANSION * size
    if claimed > most:
        advice = "save it with `np.savez`, without compression"
        raise ValueError(f"its {size} bytes claim to expand to {claimed}, and {most} are the most; {advice}")
    return members


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[Header, int]:
    """What a member says of its array, and how many bytes it says it in."""
    with archive.open(member) as stream:
        start = io.BytesIO(stream.read(MOST_HEADER))
    version = np.lib.format.read_magic(start)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"`{member.filename}` has the version {version}, and only 1.0 and 2.0 are known")
    shape, _, dtype = read(start)
    header = Header(shape, dtype)
    if dtype.hasobject or (dtype.itemsize == 0 and header.size):
        raise ValueError(f"`{member.filename}` is of the type {dtype}")
    if any(side < 0 for side in shape) or header.size * dtype.itemsize + start.tell() != member.file_size:
        raise ValueError(f"`{member.filename}` claims {shape} numbers of {dtype} in {member.file_size} bytes")
    return header, start.tell()


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    _header(archive, member)
    with archive.open(member) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # the end is where the checksum is tested
    return array

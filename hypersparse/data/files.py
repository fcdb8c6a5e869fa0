"""Files of a data set: find them in folders, download them atomically, and check their digests."""

import hashlib
import http.client
import os
import tarfile
import urllib.request
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hypersparse.data.dataset import Progress
from hypersparse.errors import DataError
from hypersparse.regular_file import open_regular

CHUNK_BYTES = 1 << 20
LARGEST_MEMBER_BYTES = 1 << 28  # CIFAR-100's training file has 155 MB; guards against decompression bombs
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Archive:
    """A downloadable archive and the folder it unpacks to; either of them holds the data set."""

    file: str
    unpacked: str
    url: str
    sha256: str
    size: int  # bytes


def find(folders: Sequence[Path], names: Sequence[str]) -> Path | None:
    """The first of `names` in the first folder that has one."""
    paths = (folder / name for folder in folders for name in names)
    return next((path for path in paths if path.exists()), None)


def locate(archive: Archive, folders: Sequence[Path], *, download: bool, progress: Progress | None) -> Path:
    """The path of the data set, unpacked or as an archive; downloads it into the last folder if it is missing."""
    if found := find(folders, (archive.unpacked, archive.file)):
        return found
    places = " or ".join(str(folder) for folder in folders) or "a folder and name that folder"
    advice = f"Put {archive.file} or its unpacked folder {archive.unpacked} into {places}."
    if not folders or not download:
        raise DataError(f"{archive.file} was not found. {advice}")
    target = folders[-1] / archive.file
    try:
        fetch(archive, target, progress)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        problem = f"{archive.file} was not found and could not be downloaded from {archive.url} to {target}"
        raise DataError(f"{problem} ({reason}). {advice}") from error
    return target


def fetch(archive: Archive, target: Path, progress: Progress | None) -> None:
    """Download to `target`, which appears only if it is complete and its digest is correct."""
    digest, done = hashlib.sha256(), 0
    with (
        urllib.request.urlopen(archive.url, timeout=PATIENCE_SECONDS) as answer,
        replacing(target) as file,
    ):
        while done <= archive.size and (chunk := answer.read(CHUNK_BYTES)):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if progress:
                progress(f"Downloading {archive.file}", done, archive.size)
        if digest.hexdigest() != archive.sha256:
            came = f"{done} bytes with SHA-256 {digest.hexdigest()}, expected {archive.size} with {archive.sha256}"
            raise DataError(f"{archive.file} arrived damaged from {archive.url} ({came}); try again.")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that is renamed to `path` after the block, or deleted if the block raises an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_file(path: Path) -> bytes:
    """The content of a file of the data set."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size  # as much as is asked for is allocated, before anything is read
            content = file.read(min(size, LARGEST_MEMBER_BYTES) + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); get the data set again.") from error
    if len(content) > LARGEST_MEMBER_BYTES:
        raise DataError(f"{path} has more than {LARGEST_MEMBER_BYTES} bytes; get the data set again.")
    return content


def check_archive(path: Path, archive: Archive) -> None:
    """Raise an error unless an archive has the published digest; call it before reading the archive."""
    try:
        with open_regular(path) as file:
            came = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); get the data set again.") from error
    if came != archive.sha256:
        problem = f"{path} is not the published archive (its SHA-256 is {came}, expected {archive.sha256})"
        raise DataError(f"{problem}; delete it and get it again, or unpack it to use the files in it.")


def check_sha256(content: bytes, sha256: str, path: Path) -> bytes:
    """Return the content if it has the published digest; raise an error otherwise."""
    came = hashlib.sha256(content).hexdigest()
    if came != sha256:
        problem = f"{path} is truncated or altered ({len(content)} bytes with SHA-256 {came}, expected {sha256})"
        raise DataError(f"{problem}; delete it and get it again.")
    return content


def tar_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Read the named members of a .tar.gz into memory, without unpacking it to disk."""
    contents: dict[str, bytes] = {}
    try:
        with open_regular(path) as file, tarfile.open(fileobj=file, mode="r:gz") as archive:
            for member in archive:
                if member.name in names and member.name not in contents:
                    contents[member.name] = _content(archive, member, path)
                if len(contents) == len(names):
                    break
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}); delete it and get it again.") from error
    if missing := sorted(set(names) - contents.keys()):
        raise DataError(f"{path} has no member {missing[0]}; delete it and get it again.")
    return contents


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bytes:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None or member.size > LARGEST_MEMBER_BYTES:
        limit = f"a plain file of at most {LARGEST_MEMBER_BYTES} bytes"
        raise DataError(f"{member.name} in {path} must be {limit}; delete the archive and get it again.")
    with file:
        return file.read()

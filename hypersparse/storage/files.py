"""Atomic writes of files, and SHA-256 digests inside safetensors files."""

import errno
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from hypersparse.errors import RunError
from hypersparse.regular_file import open_regular

DIGEST = "hypersparse_sha256"  # in a safetensors file's metadata: SHA-256 of the file with zeros in its place
NO_DIGEST = "0" * 64
LONGEST_HEADER = 100_000_000  # bytes; the limit of safetensors
CHUNK = 1 << 20
LEFTOVER = re.compile(r"\.[\w.-]+\.(?:toml|jsonl?|safetensors|npz|txt|csv|png|svg|html|md)\.(\d{1,9})")  # .name.process
HOUR = 3600.0  # seconds


def write_atomically(path: Path, write: Callable[[Path], object], *, previous: Path | None = None) -> None:
    """Call `write` with a temporary file beside `path`, then rename it: a kill leaves the old file or the new one.

    With `previous` the old file is kept under that name. A kill between the two renames leaves only this one.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            write(beside)
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
            if previous and path.exists():
                path.replace(previous)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], *, previous: Path | None = None
) -> None:
    """Write a safetensors file atomically, with its own SHA-256 in its metadata."""

    def write(beside: Path) -> None:
        # Not safetensors' save_file: it hides the reason of a failure, and its files are readable by their owner only.
        plain = {name: tensor.contiguous() for name, tensor in tensors.items()}  # some are channels-last
        with beside.open("wb") as file:
            file.writelines(_with_digest(save(plain, metadata={**metadata, DIGEST: NO_DIGEST})))

    write_atomically(path, write, previous=previous)


def _with_digest(content: bytes) -> tuple[bytes, memoryview]:
    """Head and body of a safetensors file. The head is sorted, since the library writes metadata in random order."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of eight
    head, body = len(header).to_bytes(8, "little") + header, memoryview(content)[8 + length :]
    digest = hashlib.sha256(head)
    digest.update(body)
    entry = f'"{DIGEST}":"{{}}"'
    return head.replace(entry.format(NO_DIGEST).encode(), entry.format(digest.hexdigest()).encode(), 1), body


def has_its_digest(path: Path) -> bool | None:
    """Whether the content of a safetensors file is what `write_tensors` wrote; None for a file without a digest."""
    with open_regular(path) as file:
        head = file.read(8)
        head += file.read(min(int.from_bytes(head, "little"), LONGEST_HEADER))
        found = re.search(rf'"{DIGEST}":"([0-9a-f]{{64}})"'.encode(), head)
        if found is None:
            return None
        digest = hashlib.sha256(head[: found.start(1)] + NO_DIGEST.encode() + head[found.end(1) :])
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest().encode() == found[1]


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda beside: beside.write_text(text))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, to_json(value, indent=1) + "\n")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON of a value; numbers that are not finite become null."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def remove_leftovers(folder: Path, *, alone: bool) -> None:
    """Delete temporary files of killed processes.

    Without `alone` other processes may write to the folder, also from other machines, so files of the last hour stay.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        found = LEFTOVER.fullmatch(path.name)
        if found is None:
            continue
        number = int(found[1])
        own, old = number == os.getpid(), time.time() - path.lstat().st_mtime > HOUR
        if (alone and own) or ((alone or old) and not is_alive(number)):
            path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Whether this machine has a process of this id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they are missing."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `RunError` with the reason."""
    reasons = {
        errno.ENOSPC: "the disk is full: make room or choose another place",
        errno.EDQUOT: "the disk quota is used up: make room or choose another place",
        errno.EROFS: "the file system is read-only: choose another place",
        errno.EACCES: "permission is denied: choose another place",
        errno.ENOENT: "its folder does not exist: make it or choose another place",
        errno.ENOTDIR: "a part of the path is not a folder: choose another place",
        errno.EEXIST: "a file is in the way: choose another place",
    }
    try:
        yield
    except OSError as error:
        reason = reasons.get(error.errno or 0, f"{error.strerror or error}: choose another place")
        raise RunError(f"{path} could not be written, {reason}. What was saved before is untouched.") from error

"""Files that appear whole or not at all."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from hypersparse.errors import RunError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, then rename it: a kill leaves the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            write(beside)
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically."""

    def write(beside: Path) -> None:
        # Not safetensors' save_file: it hides why a disk refused, and makes files nobody else can read.
        plain = {name: tensor.contiguous() for name, tensor in tensors.items()}  # some are channels-last
        beside.write_bytes(_same_every_time(save(plain, metadata=dict(metadata))))

    write_atomically(path, write)


def _same_every_time(content: bytes) -> bytes:
    """A safetensors file with its header sorted: the library writes metadata in a random order."""
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of eight
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""

    def write(beside: Path) -> None:
        beside.write_text(text)

    write_atomically(path, write)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are not there yet."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one sentence why a file could not be written."""
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

"""WebDataset: tar files ("shards") in which files of one name are a sample, such as `0001.jpg` and `0001.cls`."""

import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from hypersparse.data.dataset import Dataset, Progress
from hypersparse.data.decode import SUFFIXES
from hypersparse.data.files import read_file
from hypersparse.data.folder import ImageOptions
from hypersparse.data.shards import Integers, class_names, joined, split_files
from hypersparse.errors import DataError
from hypersparse.regular_file import open_regular

SUFFIX = ".tar"
CLASS_NAMES = "classnames.txt"  # one for each class, beside the shards
LARGEST_HEADER_BYTES = 1 << 20  # of tar's headers, and of a label
LABELS = ("cls", "json")  # an integer, or a JSON object with the integer `label`


def is_one(path: Path) -> bool:
    """Whether a folder holds shards, itself or in folders of splits."""
    return any(any(place.glob(f"*{SUFFIX}")) for place in (path, *path.iterdir()) if place.is_dir())


def read(path: Path, *, progress: Progress | None = None, **values: Any) -> Dataset:
    """Find all images of all shards; they are read and decoded later, each where it lies in its shard."""
    options = ImageOptions(**values)
    files = split_files(path, SUFFIX)
    total, done, parts = sum(map(len, files.values())), 0, {}
    for part, shards in files.items():
        found = []
        for shard in shards:
            found.append(_samples_of(shard))
            done += 1
            if progress:
                progress("Listing shards", done, total)
        parts[part] = joined(shards, found)
    names = path / CLASS_NAMES
    named = read_file(names).decode(errors="replace").splitlines() if names.exists() else None
    classes = class_names(parts, named)
    return options.dataset(path.resolve().name, parts["train"], parts["test"], classes, progress)


@dataclass
class _Found:
    """What was found in a shard so far: samples, and the parts of the one at hand."""

    shard: Path
    key: str = ""
    image: tuple[int, int] | None = None  # first byte and size
    label: int | None = None
    samples: list[tuple[int, int, int]] = field(default_factory=list)

    def finish(self) -> None:
        """End a sample; one without an image is left out."""
        if self.image is not None:
            if self.label is None:
                names = " or ".join(f"`{self.key}.{ending}`" for ending in LABELS)
                raise DataError(f"{self.shard} has the image `{self.key}` and no {names} with its label after it.")
            self.samples.append((*self.image, self.label))
        self.image = self.label = None


class _Headers:
    """A tar file from which only headers are read, so that none of a stranger's can fill the memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, count: int) -> bytes:
        """So many bytes, if a header can have them."""
        if not 0 <= count <= LARGEST_HEADER_BYTES:
            raise ValueError(f"a header of {count} bytes")
        return self._file.read(count)


def _samples_of(shard: Path) -> tuple[Integers, Integers, Integers]:
    """First bytes, sizes and labels of the images in a shard."""
    found = _Found(shard)
    try:
        with open_regular(shard) as file, tarfile.open(fileobj=_Headers(file), mode="r:") as archive:  # type: ignore[call-overload]
            before = -1
            while (member := archive.next()) is not None:
                archive.members.clear()  # it keeps all it has seen
                if member.size < 0 or archive.offset <= before:
                    raise ValueError(f"{member.name[:100]!r} claims {member.size} bytes")
                before = archive.offset
                if member.isreg() and not member.issparse():
                    _add(found, member, file)
    except DataError:
        raise
    except Exception as error:  # tarfile raises anything from OSError to RecursionError
        raise DataError(
            f"{shard} is truncated, damaged or compressed ({error}); an uncompressed tar file was expected."
        ) from error
    found.finish()
    columns = np.array(found.samples, np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _add(found: _Found, member: tarfile.TarInfo, file: IO[bytes]) -> None:
    folder, _, name = member.name.rpartition("/")
    stem, _, ending = name.partition(".")
    if not stem:  # macOS leaves such files behind
        return
    if (key := f"{folder}/{stem}" if folder else stem) != found.key:
        found.finish()
        found.key = key
    ending = ending.lower()
    if f".{ending}" in SUFFIXES:
        found.image = member.offset_data, member.size
    elif ending in LABELS and found.label is None:
        file.seek(member.offset_data)
        found.label = _label(
            file.read(min(member.size, LARGEST_HEADER_BYTES)), ending, f"{key}.{ending} in {found.shard}"
        )


def _label(content: bytes, ending: str, name: str) -> int | None:
    try:
        value = json.loads(content)  # of `cls` too: a number
        if ending == "json":
            value = value.get("label") if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        value = "other text"
    if ending == "json" and value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**31:
        raise DataError(f"{name} should hold the number of a class; it holds {str(value)[:100]!r}.")
    return value

"""Images inside large files: which files belong to which split, and where in them each image lies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from hypersparse.data.encoded import EncodedSplit
from hypersparse.data.files import LARGEST_MEMBER_BYTES
from hypersparse.errors import DataError
from hypersparse.regular_file import open_regular

TRAIN = ("train", "training")
TEST = ("validation", "valid", "val", "dev", "test", "testing")  # the first of these that is there
MAX_CLASSES = 2**20

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FileRanges:
    """Encoded images that are parts of a few files. Nothing is open or in memory, so workers can share it."""

    files: Sequence[Path]
    which: npt.NDArray[np.int32]  # the file of each image
    starts: Integers  # its first byte there
    sizes: Integers  # its number of bytes

    def __post_init__(self) -> None:
        if len(self.sizes) and not 0 < self.sizes.min() <= self.sizes.max() <= LARGEST_MEMBER_BYTES:
            bad = int(np.flatnonzero((self.sizes <= 0) | (self.sizes > LARGEST_MEMBER_BYTES))[0])
            raise DataError(f"{self.name(bad)} has {self.sizes[bad]} bytes; 1 to {LARGEST_MEMBER_BYTES} were expected.")

    def __len__(self) -> int:
        return len(self.sizes)

    def read(self, number: int) -> bytes:
        path, size = self.files[self.which[number]], int(self.sizes[number])
        try:
            with open_regular(path) as file:
                file.seek(int(self.starts[number]))
                content = file.read(size)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}); get the data set again.") from error
        if len(content) != size:
            raise DataError(f"{path} has become shorter; start again.")
        return content

    def name(self, number: int) -> str:
        """Names an image in errors: how many come before it in its file."""
        file = self.which[number]
        return f"image {number - int(np.searchsorted(self.which, file))} of {self.files[file]}"


def joined(files: Sequence[Path], parts: Sequence[tuple[Integers, Integers, Integers]]) -> EncodedSplit:
    """The images of these files, in their order, from the first bytes, sizes and labels of the images in each."""
    counts = [len(labels) for _, _, labels in parts]
    if not sum(counts):
        raise DataError(f"{files[0].parent} has no images in {', '.join(file.name for file in files[:3])}.")
    which = np.repeat(np.arange(len(files), dtype=np.int32), counts)
    starts, sizes, labels = (np.concatenate([part[index] for part in parts]) for index in range(3))
    return EncodedSplit(FileRanges(tuple(files), which, starts, sizes), np.arange(len(which)), torch.from_numpy(labels))


def split_files(folder: Path, suffix: str) -> dict[str, list[Path]]:
    """The files with this suffix by split: `train` and `test`, as their names or those of their folders say.

    `train-00000-of-00002.parquet`, `data/train-0.tar` and `train/0.arrow` belong to `train`. A split for validation
    is preferred to `test`, whose labels are often missing.
    """
    found: dict[str, list[Path]] = {}
    for place in (folder, folder / "data", *sorted(path for path in folder.iterdir() if path.is_dir())):
        for file in sorted(place.glob(f"*{suffix}")):
            if file.name[0] != "." and (name := _split_name(file, folder)) and file not in found.get(name, ()):
                found.setdefault(name, []).append(file)
    train = next((found[name] for name in TRAIN if name in found), [])
    test = next((found[name] for name in TEST if name in found), [])
    for files, names in ((train, TRAIN), (test, TEST)):
        if not files:
            raise DataError(
                f"{folder} has no {suffix} file of the split `{names[0]}`; their names or folders should begin with "
                f"{', '.join(names[:-1])} or {names[-1]}."
            )
    return {"train": train, "test": test}


def _split_name(file: Path, folder: Path) -> str | None:
    places = [file.stem] if file.parent == folder else [file.parent.name, file.stem]
    words = [word for place in places for word in re.split(r"[^a-z]+", place.lower())]
    return next((word for word in words if word in TRAIN + TEST), None)


def class_names(splits: Mapping[str, EncodedSplit], names: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the classes: the given ones, or the labels' numbers."""
    for part, split in splits.items():
        low, high = int(split.labels.min()), int(split.labels.max())
        if low < 0 or high >= (MAX_CLASSES if names is None else len(names)):
            raise DataError(
                f"The {part} labels must be in 0..{len(names) - 1 if names else MAX_CLASSES}; got {low}..{high}."
            )
    if names is None:
        return tuple(map(str, range(1 + max(int(split.labels.max()) for split in splits.values()))))
    if strange := next((name for name in names if not name.isprintable()), None):
        raise DataError(f"Names of classes must be printable; got {strange[:100]!r}.")
    return tuple(names)

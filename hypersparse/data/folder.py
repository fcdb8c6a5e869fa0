"""A folder of images as a data set: `train/<class>/*` and `val/<class>/*` (or `test/<class>/*`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from hypersparse.data.dataset import Dataset, Progress
from hypersparse.data.decode import SUFFIXES, NamedFiles
from hypersparse.data.encoded import EncodedSplit
from hypersparse.data.files import read_file
from hypersparse.errors import DataError, OptionError
from hypersparse.options import option, options

TEST_FOLDERS = ("val", "test")


@options
class ImageOptions:
    """Preprocessing of images that are files."""

    size: int | None = option(
        default=None, help="Crop every image to its central square and resize it to this side.", ge=1
    )
    augment: Literal["none", "random-resized-crop"] = option(
        default="none", help="What is cropped for training before `padding` and `flip`: random-resized-crop needs size."
    )

    def __post_init__(self) -> None:
        if self.augment != "none" and self.size is None:
            raise OptionError(f"`augment={self.augment}` needs the side of the crops; set `size`, such as size=224.")

    def dataset(
        self, name: str, train: EncodedSplit, test: EncodedSplit, classes: tuple[str, ...], progress: Progress | None
    ) -> Dataset:
        """The data set of these images, preprocessed so."""
        train, test = replace(train, size=self.size), replace(test, size=self.size)
        mean, std = train.statistics(progress)
        train = replace(train, random_crop=self.augment != "none")
        return Dataset(name, train, test, classes, mean, std)


def read(path: Path, *, progress: Progress | None = None, **values: Any) -> Dataset:
    """List all images; classes are the sorted folder names, images are sorted by file name and read as RGB."""
    chosen = ImageOptions(**values)
    test_folder = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), path / TEST_FOLDERS[0])
    train_files, test_files = _files_by_class(path / "train"), _files_by_class(test_folder)
    classes = tuple(train_files)
    if unknown_names := sorted(test_files.keys() - train_files.keys()):
        raise DataError(f"{test_folder} has the class {unknown_names[0]}, of which {path / 'train'} has no images.")
    train, test = _split(train_files, classes), _split(test_files, classes)
    return chosen.dataset(path.resolve().name, train, test, classes, progress)


def _files_by_class(folder: Path) -> dict[str, list[Path]]:
    if not folder.is_dir():
        raise DataError(f"{folder} is missing: an image folder holds train/<class>/* and val/<class>/*.")
    subfolders = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    files = {subfolder.name: _images_in(subfolder) for subfolder in subfolders}
    if not files:
        raise DataError(f"{folder} must hold one folder of images for each class; it has no folders.")
    if empty := [name for name in files if not files[name]]:
        raise DataError(f"{folder / empty[0]} holds no images ({', '.join(SUFFIXES)}).")
    return files


def _images_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] != ".")


def _split(files: Mapping[str, Sequence[Path]], classes: Sequence[str]) -> EncodedSplit:
    names = [str(file) for name in files for file in files[name]]
    labels = [number for number, name in enumerate(classes) for _ in files.get(name, ())]
    return EncodedSplit(NamedFiles(names, _read), np.arange(len(names)), torch.tensor(labels))


def _read(name: str) -> bytes:
    return read_file(Path(name))

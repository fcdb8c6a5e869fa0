"""Data sets: each is read by one function into tensors that fit on the training device.

    data = load("digits")
    data = load("cifar10", [Path("~/data").expanduser()])
    data = load("path/to/folder/of/images", options={"size": 32})
    data = load("arrays.npz")

A new data set is one file here with a function like `digits.load`, and one row in `READERS`.
Pillow is imported by the functions that need it, when they are called.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hypersparse.data import cifar, digits, folder, huggingface, npz, synthetic, tiny_imagenet, webdataset
from hypersparse.data.dataset import Dataset, Progress, Split
from hypersparse.errors import DataError, OptionError, unknown

__all__ = ["Dataset", "Progress", "Split", "load", "names"]


class Reader(Protocol):
    """Reads a data set from `folders`, or downloads it into the last one."""

    def __call__(
        self, folders: Sequence[Path], *, download: bool, progress: Progress | None, **options: Any
    ) -> Dataset: ...


READERS: Mapping[str, Reader] = {
    "cifar10": partial(cifar.load, cifar.CIFAR10),
    "cifar100": partial(cifar.load, cifar.CIFAR100),
    "digits": digits.load,
    "synthetic": synthetic.load,
    "tinyimagenet": tiny_imagenet.load,
}


def load(
    name: str,
    folders: Sequence[Path] = (),
    *,
    options: Mapping[str, Any] = {},
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """A data set by name, or by the path of a folder or an `.npz` file.

    A folder holds images, Arrow or Parquet files of Hugging Face `datasets`, or shards of WebDataset.

    `folders` are searched in this order; downloads and caches are written to the last one.

    >>> data = load("synthetic", options={"images": 20, "size": 8})
    >>> len(data.train), len(data.test), data.shape
    (20, 256, (3, 8, 8))
    """
    if taken := options.keys() & {"download", "folders", "path", "progress"}:
        raise OptionError(f"`{min(taken)}` is not an option of a data set.")
    if name in READERS:
        return READERS[name](folders, download=download, progress=progress, **options)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return _read_folder(path, folders[-1] if folders else None, progress, options)
    if path.is_file() and path.suffix == ".npz":
        return npz.read(path, **options)
    if path.name != name or path.suffix:
        raise DataError(f"`{name}` must be an image folder or an .npz file; there is none at that path.")
    raise DataError(unknown("data set", name, READERS))


def _read_folder(path: Path, cache: Path | None, progress: Progress | None, options: Mapping[str, Any]) -> Dataset:
    """Read a folder by what is in it."""
    if huggingface.kind_of(path) is not None:
        return huggingface.read(path, cache=cache, progress=progress, **options)
    read = webdataset.read if webdataset.is_one(path) else folder.read
    return read(path, progress=progress, **options)


def names() -> list[str]:
    """The names of the built-in data sets.

    >>> names()
    ['cifar10', 'cifar100', 'digits', 'synthetic', 'tinyimagenet']
    """
    return sorted(READERS)

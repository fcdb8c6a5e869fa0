"""A data set in one `.npz` file: `x_train`, `y_train`, `x_test`, `y_test`, perhaps `classes`."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hypersparse.data.dataset import Dataset, Split, channel_statistics, no_options
from hypersparse.errors import DataError
from hypersparse.regular_file import open_regular

Arrays = dict[str, npt.NDArray[Any]]

ALIASES = {
    "train_images": "x_train",
    "train_labels": "y_train",
    "test_images": "x_test",
    "test_labels": "y_test",
}
MOST_CHANNELS = 4  # a last axis this short is taken for channels


def read(path: Path, **options: Any) -> Dataset:
    """Images N x H x W, N x H x W x C or N x C x H x W of any number type, or rows of features N x F.

    uint8 stays uint8, everything else becomes float32. Labels are whole numbers 0..K-1.
    """
    no_options(str(path), options)
    arrays = {ALIASES.get(key, key): array for key, array in read_arrays(path).items()}
    if missing := sorted(set(ALIASES.values()) - arrays.keys()):
        raise DataError(f"{path} has no array `{missing[0]}`; it has: {', '.join(sorted(arrays))}.")
    try:
        train = Split(_images(arrays["x_train"]), _labels(arrays["y_train"]))
        test = Split(_images(arrays["x_test"]), _labels(arrays["y_test"]))
        mean, std = channel_statistics(train.images)
        return Dataset(path.stem, train, test, _classes(arrays, train.labels), mean, std)
    except DataError as error:
        raise DataError(f"{path} cannot be used: {error}") from None


def read_arrays(path: Path) -> Arrays:
    """Every array in the file; none is unpickled, and the checksum of each is tested."""
    try:
        with open_regular(path) as file:  # np.load(path) would leave it open when it is damaged
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            return dict(archive)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole .npz file of plain arrays ({error}).") from error


def _images(array: npt.NDArray[Any]) -> Tensor:
    if array.dtype.kind not in "uifb":
        raise DataError(f"images must be numbers; got {array.dtype}.")
    if array.ndim not in (2, 3, 4):
        raise DataError(f"images must have 2, 3 or 4 axes, the first one counting them; got {array.ndim}.")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] <= MOST_CHANNELS < array.shape[1]:
        array = array.transpose(0, 3, 1, 2)
    is_bytes = array.dtype == np.uint8 and array.ndim == 4
    return torch.from_numpy(np.ascontiguousarray(array, np.uint8 if is_bytes else np.float32))


def _labels(array: npt.NDArray[Any]) -> Tensor:
    if array.dtype.kind not in "ui":
        raise DataError(f"labels must be whole numbers 0..K-1; got {array.dtype}.")
    if array.ndim == 2 and array.shape[1] == 1:  # a column, as Keras stores them
        array = array[:, 0]
    return torch.from_numpy(np.ascontiguousarray(array, np.int64))


def _classes(arrays: Mapping[str, npt.NDArray[Any]], labels: Tensor) -> tuple[str, ...]:
    if "classes" in arrays:
        return tuple(str(name) for name in arrays["classes"].reshape(-1))
    present = torch.unique(labels)
    if not torch.equal(present, torch.arange(len(present))):
        came = f"{len(present)} different ones in {int(present[0])}..{int(present[-1])}"
        raise DataError(f"`y_train` must hold every label 0..K-1 unless `classes` names them; got {came}.")
    return tuple(str(number) for number in range(len(present)))

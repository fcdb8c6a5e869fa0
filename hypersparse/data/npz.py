"""A data set in one `.npz` file: `x_train`, `y_train`, `x_test`, `y_test`, optionally `classes`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hypersparse.data.dataset import Dataset, Split, channel_statistics, no_options
from hypersparse.data.npz_file import ArrayHeader, read_arrays, read_headers
from hypersparse.errors import DataError

ALIASES = {
    "train_images": "x_train",
    "train_labels": "y_train",
    "test_images": "x_test",
    "test_labels": "y_test",
}
MAX_CHANNELS = 4  # a last axis of at most this length is the channels
MAX_CLASSES = 2**20


def read(path: Path, **options: Any) -> Dataset:
    """Read images [N, H, W], [N, H, W, C] or [N, C, H, W] of any number type, or features [N, F].

    uint8 images stay uint8, all other types become float32. Labels are integers 0..K-1. Types and shapes are checked
    before decompression. Reading takes at most three times the memory of the arrays.
    """
    no_options(str(path), options)
    headers = read_headers(path)
    names = {ALIASES.get(key, key): key for key in headers}
    if missing := sorted(set(ALIASES.values()) - names.keys()):
        raise DataError(f"{path} has no array `{missing[0]}`; it has: {', '.join(sorted(names))}.")
    used = [name for name in (*ALIASES.values(), "classes") if name in names]
    try:
        _check({name: headers[names[name]] for name in used})
        found = read_arrays(path, [names[name] for name in used])
        arrays = {name: found.pop(names[name]) for name in used}
        train = Split(_images(arrays.pop("x_train")), _labels(arrays["y_train"]))
        test = Split(_images(arrays.pop("x_test")), _labels(arrays["y_test"]))
        mean, std = channel_statistics(train.images)
        return Dataset(path.stem, train, test, _classes(arrays, train.labels), mean, std)
    except DataError as error:
        sentence = str(error)
        raise DataError(sentence if str(path) in sentence else f"{path} cannot be used: {sentence}") from None


def _check(headers: Mapping[str, ArrayHeader]) -> None:
    """Check the types and shapes of the arrays."""
    types = []
    for part in ("train", "test"):
        images, labels = headers[f"x_{part}"], headers[f"y_{part}"]
        types.append(_type_and_shape(images))
        if labels.dtype.kind not in "ui":
            raise DataError(f"labels must be integers 0..K-1; got {labels.dtype}.")
        if len(labels.shape) != 1 and labels.shape[1:] != (1,):
            raise DataError(f"labels must be a 1-D array; got the shape {list(labels.shape)}.")
        if images.shape[0] != labels.shape[0]:
            raise DataError(f"There are {images.shape[0]} images but {labels.shape[0]} labels.")
    if types[0] != types[1]:
        (first, shape), (second, other) = types
        raise DataError(
            f"training and test images must have the same type and shape; got {first} {list(shape)} "
            f"and {second} {list(other)}."
        )
    names = headers.get("classes")
    if names is not None and (names.dtype.kind not in "USui" or names.size > MAX_CLASSES):
        raise DataError(f"`classes` must be at most {MAX_CLASSES} names; got {names.size} of {names.dtype}.")


def _type_and_shape(header: ArrayHeader) -> tuple[str, tuple[int, ...]]:
    """The type of the images after reading, and the shape of one."""
    if header.dtype.kind not in "uifb":
        raise DataError(f"images must be numbers; got {header.dtype}.")
    if len(header.shape) not in (2, 3, 4):
        raise DataError(f"images must have 2, 3 or 4 axes, the first one for the images; got {len(header.shape)}.")
    if not header.size:
        raise DataError(f"A data set needs images with pixels; got the shape {list(header.shape)}.")
    is_bytes = header.dtype == np.uint8 and len(header.shape) > 2
    return "uint8" if is_bytes else "float32", header.shape[1:]


def _images(array: npt.NDArray[Any]) -> Tensor:
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] <= MAX_CHANNELS < array.shape[1]:
        array = array.transpose(0, 3, 1, 2)
    is_bytes = array.dtype == np.uint8 and array.ndim == 4
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # overflow to infinity is reported later, with other infinite values
        return torch.from_numpy(np.ascontiguousarray(array, np.uint8 if is_bytes else np.float32))


def _labels(array: npt.NDArray[Any]) -> Tensor:
    """Labels from a 1-D array, or from a column as Keras stores them."""
    return torch.from_numpy(np.ascontiguousarray(array.reshape(-1), np.int64))


def _classes(arrays: Mapping[str, npt.NDArray[Any]], labels: Tensor) -> tuple[str, ...]:
    if "classes" in arrays:
        names = arrays["classes"].reshape(-1).tolist()
        texts = tuple(name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names)
        if unprintable := next((text for text in texts if not text.isprintable()), None):
            raise DataError(f"`classes` must be printable names; got {unprintable[:100]!r}.")
        return texts
    present = torch.unique(labels)
    if len(present) > MAX_CLASSES:
        raise DataError(f"labels must have at most {MAX_CLASSES} classes; got {len(present)}.")
    if not torch.equal(present, torch.arange(len(present))):
        came = f"{len(present)} distinct labels in {int(present[0])}..{int(present[-1])}"
        raise DataError(f"`y_train` must hold every label 0..K-1 unless `classes` names them; got {came}.")
    return tuple(str(number) for number in range(len(present)))

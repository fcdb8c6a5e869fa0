"""What a data set is: images and labels to train on, others to test on, and how to normalize them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hypersparse.errors import DataError, OptionError

Progress = Callable[[str, int, int], None]
"""Told what is going on, how much of it is done, and how much there is (0 if nobody knows)."""

IMAGES_AT_ONCE = 2048  # bounds the memory that double precision takes in `channel_statistics`, and flags


@dataclass(frozen=True, eq=False)
class Split:
    """Images and their labels: uint8 [N, C, H, W] or float32 [N, ...], and int64 [N]."""

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype not in (torch.uint8, torch.float32):
            raise DataError(f"Images must be uint8 or float32; got {self.images.dtype}.")
        if self.images.dtype == torch.uint8 and self.images.ndim != 4:
            shape = list(self.images.shape)
            raise DataError(f"uint8 images must have the shape [N, C, H, W]; got {shape}.")
        if self.labels.dtype != torch.int64 or self.labels.ndim != 1:
            came = f"{self.labels.dtype} {list(self.labels.shape)}"
            raise DataError(f"Labels must be int64 [N]; got {came}.")
        if len(self.images) != len(self.labels):
            raise DataError(f"There are {len(self.images)} images but {len(self.labels)} labels.")
        if 0 in self.images.shape or self.images.ndim < 2:
            raise DataError(f"A data set needs images with pixels; got the shape {list(self.images.shape)}.")

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Split":
        """The same on a device."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Everything training needs to know about its data.

    `mean` and `std` are per channel, for pixels scaled to [0, 1] (uint8) or values as they are (float32).
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        train, test = self.train.images, self.test.images
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            came = f"{train.dtype} {list(train.shape[1:])} and {test.dtype} {list(test.shape[1:])}"
            raise DataError(f"Training and test images of {self.name} must be of one kind; got {came}.")
        for part, split in (("training", self.train), ("test", self.test)):
            low, high = int(split.labels.min()), int(split.labels.max())
            if low < 0 or high >= len(self.classes):
                expected = f"must be in 0..{len(self.classes) - 1}"
                raise DataError(f"The {part} labels of {self.name} {expected}; got {low}..{high}.")
            if bad := _not_finite(split.images):
                raise DataError(f"{bad} of {len(split)} {part} images of {self.name} hold NaN or infinite values.")
        if not len(self.mean) == len(self.std) == self.shape[0]:
            came = f"{len(self.mean)} and {len(self.std)}"
            raise DataError(f"{self.name} needs a mean and a std for each of {self.shape[0]} channels; got {came}.")
        if not all(deviation > 0 for deviation in self.std):
            raise DataError(f"Every std of {self.name} must be positive; got {self.std}.")

    def to(self, device: torch.device) -> "Dataset":
        """The same with its images on a device, where several runs can share them."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image: (C, H, W)."""
        return tuple(self.train.images.shape[1:])


def _not_finite(images: Tensor) -> int:
    """How many images hold values that are NaN or infinite."""
    if not images.is_floating_point():
        return 0
    chunks = torch.split(images, IMAGES_AT_ONCE)
    return sum(int((~chunk.isfinite().flatten(1).all(dim=1)).sum()) for chunk in chunks)


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, of pixels scaled to [0, 1] if they are uint8.

    A channel that never changes gets the deviation 1, so that dividing by it is harmless.

    >>> channel_statistics(torch.tensor([[[[0, 255]], [[51, 51]]]], dtype=torch.uint8))
    ((0.5, 0.2), (0.5, 1.0))
    """
    scale = 255.0 if images.dtype == torch.uint8 else 1.0
    others = [axis for axis in range(images.ndim) if axis != 1]
    count = images.numel() // images.shape[1]
    chunks = torch.split(images, IMAGES_AT_ONCE)
    mean = torch.stack([chunk.double().sum(others) for chunk in chunks]).sum(0) / count
    center = mean.reshape(-1, *[1] * (images.ndim - 2))
    squares = torch.stack([(chunk.double() - center).square().sum(others) for chunk in chunks]).sum(0)
    std = (squares / count).sqrt()
    if not bool(torch.isfinite(mean).all() and torch.isfinite(std).all()):
        raise DataError("The training images hold values that are NaN or infinite.")
    std = torch.where(std > 0, std, torch.full_like(std, scale))
    return tuple((mean / scale).tolist()), tuple((std / scale).tolist())


def no_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise unless `options` is empty: said by readers that have nothing to choose."""
    if options:
        raise OptionError(f"Data set `{name}` has no options; got `{min(options)}`.")

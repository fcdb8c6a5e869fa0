"""`Dataset`: training and test images with labels, class names, and statistics for normalization."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hypersparse.data.encoded import EncodedSplit
from hypersparse.errors import DataError, OptionError

Progress = Callable[[str, int, int], None]
"""Receives a description of the work, the amount done and the total (0 if unknown)."""

CHUNK_IMAGES = 2048  # bounds the memory of temporary float64 and bool tensors


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

    def __getitem__(self, part: slice | Tensor) -> "Split":
        """Some of the images: a slice, or a tensor of their places."""
        return Split(self.images[part], self.labels[part])

    def read(self, places: Tensor, crop_seed: str | None = None) -> Tensor:
        """The images at these places; only encoded ones can be cropped at random."""
        assert crop_seed is None
        return self.images.index_select(0, places)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image: (C, H, W)."""
        return tuple(self.images.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """The type of the pixels."""
        return self.images.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of images and labels."""
        return self.images.nbytes + self.labels.nbytes


AnySplit = Split | EncodedSplit


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images, class names and channel statistics.

    `mean` and `std` are per channel, of pixels scaled to [0, 1] (uint8) or of unscaled values (float32).
    """

    name: str
    train: AnySplit
    test: AnySplit
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        kinds = [(split.dtype, list(split.shape)) for split in (self.train, self.test)]
        if kinds[0] != kinds[1]:
            came = " and ".join(f"{dtype} {shape}" for dtype, shape in kinds)
            raise DataError(f"Training and test images of {self.name} must have the same type and shape; got {came}.")
        for part, split in (("training", self.train), ("test", self.test)):
            low, high = int(split.labels.min()), int(split.labels.max())
            if low < 0 or high >= len(self.classes):
                expected = f"must be in 0..{len(self.classes) - 1}"
                raise DataError(f"The {part} labels of {self.name} {expected}; got {low}..{high}.")
            if split.dtype.is_floating_point and (bad := _not_finite(split.images)):
                raise DataError(f"{bad} of {len(split)} {part} images of {self.name} hold NaN or infinite values.")
        if not len(self.mean) == len(self.std) == self.shape[0]:
            came = f"{len(self.mean)} and {len(self.std)}"
            raise DataError(f"{self.name} needs a mean and a std for each of {self.shape[0]} channels; got {came}.")
        if not all(deviation > 0 for deviation in self.std):
            raise DataError(f"Every std of {self.name} must be positive; got {self.std}.")

    def to(self, device: torch.device, *, progress: Progress | None = None) -> "Dataset":
        """The same data set with its images decoded on a device, where several runs can share them.

        Training images that are cropped at random stay encoded.
        """
        parts = [split if self.must_stream(split) else _on_device(split, device, progress)
                 for split in (self.train, self.test)]  # fmt: skip
        return replace(self, train=parts[0], test=parts[1])

    def bytes_needed(self, device: torch.device) -> int:
        """Bytes of the images and labels that `to` would put on a device."""
        parts = [split for split in (self.train, self.test) if not self.must_stream(split)]
        return sum(split.nbytes for split in parts if isinstance(split, EncodedSplit) or split.labels.device != device)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image: (C, H, W)."""
        return self.train.shape

    @staticmethod
    def must_stream(split: AnySplit) -> bool:
        """Whether images cannot be decoded once, since every crop of them is another one."""
        return isinstance(split, EncodedSplit) and split.random_crop


def _on_device(split: AnySplit, device: torch.device, progress: Progress | None) -> Split:
    images = split.decode(progress) if isinstance(split, EncodedSplit) else split.images
    return Split(images.to(device), split.labels.to(device))


def _not_finite(images: Tensor) -> int:
    """The number of images with NaN or infinite values."""
    chunks = torch.split(images, CHUNK_IMAGES)
    return sum(int((~chunk.isfinite().flatten(1).all(dim=1)).sum()) for chunk in chunks)


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel; uint8 pixels are first scaled to [0, 1].

    A constant channel has the deviation 1, to avoid a division by zero.

    >>> channel_statistics(torch.tensor([[[[0, 255]], [[51, 51]]]], dtype=torch.uint8))
    ((0.5, 0.2), (0.5, 1.0))
    """
    scale = 255.0 if images.dtype == torch.uint8 else 1.0
    others = [axis for axis in range(images.ndim) if axis != 1]
    count = images.numel() // images.shape[1]
    chunks = torch.split(images, CHUNK_IMAGES)
    mean = torch.stack([chunk.double().sum(others) for chunk in chunks]).sum(0) / count
    center = mean.reshape(-1, *[1] * (images.ndim - 2))
    squares = torch.stack([(chunk.double() - center).square().sum(others) for chunk in chunks]).sum(0)
    std = (squares / count).sqrt()
    if not bool(torch.isfinite(mean).all() and torch.isfinite(std).all()):
        raise DataError("The training images hold values that are NaN or infinite.")
    std = torch.where(std > 0, std, torch.full_like(std, scale))
    return tuple((mean / scale).tolist()), tuple((std / scale).tolist())


def no_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise an error unless `options` is empty, for data sets without options."""
    if options:
        raise OptionError(f"Data set `{name}` has no options; got `{min(options)}`.")

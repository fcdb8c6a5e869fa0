"""`EncodedSplit`: images that stay encoded in their files, and are decoded all at once or batch by batch."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from hypersparse.data.decode import Source, bombs_raise, check_size, decode_image, decode_images, in_threads

if TYPE_CHECKING:
    from hypersparse.data.dataset import Progress

MEASURED_IMAGES = 2000  # decoded for mean and deviation; the error of a mean of so many is 0.005 at most


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """Some images of a source, in this order, and their labels (int64 [N]).

    `size` crops the central square of every image and resizes it. With `random_crop` a random part is taken instead
    for every training batch, so that such images cannot be decoded once.
    """

    source: Source
    numbers: npt.NDArray[np.int64]
    labels: Tensor
    size: int | None = None
    random_crop: bool = False
    dtype = torch.uint8

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice | Tensor) -> "EncodedSplit":
        """Some of the images: a slice, or a tensor of their places."""
        places = part.numpy() if isinstance(part, Tensor) else part
        return replace(self, numbers=self.numbers[places], labels=self.labels[part])

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image: (3, H, W)."""
        if self.size is not None:
            return 3, self.size, self.size
        with bombs_raise():
            return self._decode(0, None).shape

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded images and of the labels."""
        channels, height, width = self.shape
        return len(self) * channels * height * width + self.labels.nbytes

    @cached_property
    def images(self) -> Tensor:
        """All decoded images: uint8 [N, 3, H, W], resized to `size`."""
        return self.decode()

    def decode(self, progress: "Progress | None" = None) -> Tensor:
        """As `images`, with a report of the progress, and not kept."""
        return torch.from_numpy(decode_images(self.source, self.numbers.tolist(), size=self.size, progress=progress))

    def read(self, places: Tensor, crop_seed: str | None = None) -> Tensor:
        """Decode the images at these places; with a seed random crops of them, each decided by it and the place."""
        images = _empty_batch((len(places), *self.shape))
        with bombs_raise():
            for row, place in enumerate(places.tolist()):
                random = None if crop_seed is None else Random(f"{crop_seed}-{place}")
                image = self._decode(place, random)
                check_size(image, self._name(place), self.shape, self._name(0))
                images[row] = torch.from_numpy(np.ascontiguousarray(image))
        return images

    def statistics(self, progress: "Progress | None" = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel, of at most 2,000 images that are evenly spaced in their order."""
        count = min(len(self), MEASURED_IMAGES)
        pixels, sums, squares = 0, np.zeros(3, object), np.zeros(3, object)  # whole numbers of any size: exact
        places = (place * len(self) // count for place in range(count))
        for done, (number, values, squared) in enumerate(in_threads(self._sums, places), 1):
            pixels, sums, squares = pixels + number, sums + values, squares + squared
            if progress:
                progress("Measuring images", done, count)
        variance = [(pixels * square - total**2) / pixels**2 for total, square in zip(sums, squares, strict=True)]
        mean = tuple(float(total / pixels) / 255 for total in sums)
        return mean, tuple(math.sqrt(value) / 255 if value > 0 else 1.0 for value in variance)

    def _sums(self, place: int) -> tuple[int, npt.NDArray[Any], npt.NDArray[Any]]:
        """The number of pixels of an image, and the sums of their values and squares by channel."""
        image = self._decode(place, None)
        check_size(image, self._name(place), self.shape, self._name(0))
        values = image.reshape(3, -1).astype(np.int64)
        return values.shape[1], values.sum(axis=1).astype(object), (values**2).sum(axis=1).astype(object)

    def _decode(self, place: int, random: Random | None) -> npt.NDArray[np.uint8]:
        return decode_image(self.source.read(int(self.numbers[place])), self._name(place), self.size, random)

    def _name(self, place: int) -> str:
        return self.source.name(int(self.numbers[place]))


def _empty_batch(shape: tuple[int, ...]) -> Tensor:
    """Memory for a batch; in a worker it is shared with the process that trains, so that nothing is copied later.

    Copied to there, the batches and the decoders' memory would leave such holes that a worker held sixty batches.
    """
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    memory = torch.UntypedStorage._new_shared(math.prod(shape))  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=torch.uint8).set_(memory, 0, shape)  # type: ignore[call-overload, no-any-return]

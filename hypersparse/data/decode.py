"""Decoding of image files to uint8 pixels: allowed formats only, in threads for many images."""

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hypersparse.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

    from hypersparse.data.dataset import Progress

FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
IMAGES_PER_TASK = 64  # of a thread; a future for each image would take a kilobyte each
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of a random crop: torchvision's RandomResizedCrop

T = TypeVar("T")
Pixels = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]


class Source(Protocol):
    """Encoded images by their number; it can be sent to other processes."""

    def __len__(self) -> int:
        """The number of images."""

    def read(self, number: int) -> bytes:
        """The content of an image file."""

    def name(self, number: int) -> str:
        """Names an image in errors."""


@dataclass(frozen=True)
class NamedFiles:
    """Images that a function reads by their names."""

    names: Sequence[str]
    read_bytes: Callable[[str], bytes]

    def __len__(self) -> int:
        return len(self.names)

    def read(self, number: int) -> bytes:
        """The content of a file."""
        return self.read_bytes(self.names[number])

    def name(self, number: int) -> str:
        """The file's name."""
        return str(self.names[number])


def decode_images(
    source: Source, numbers: Sequence[int], *, size: int | None, progress: "Progress | None" = None
) -> Pixels:
    """Decode images of one size to uint8 [N, 3, H, W]."""
    first_name = source.name(numbers[0])
    with bombs_raise():
        first = decode_image(source.read(numbers[0]), first_name, size)
    images = np.empty((len(numbers), *first.shape), np.uint8)

    def decode(start: int) -> int:
        end = min(start + IMAGES_PER_TASK, len(numbers))
        for index in range(start, end):
            name = source.name(numbers[index])
            image = decode_image(source.read(numbers[index]), name, size)
            check_size(image, name, first.shape, first_name)
            images[index] = image
        return end

    for end in in_threads(decode, range(0, len(numbers), IMAGES_PER_TASK)):
        if progress:
            progress("Decoding images", end, len(numbers))
    return images


def in_threads(work: Callable[[int], T], tasks: Iterable[int]) -> Iterator[T]:
    """The results of `work` for the tasks in order, computed in threads; Pillow releases the GIL while it decodes."""
    pool = ThreadPoolExecutor()
    try:
        with bombs_raise():
            yield from pool.map(work, tasks)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def bombs_raise() -> Iterator[None]:
    """Turn Pillow's warning about too many pixels into an error; threads share warning filters, so set them once."""
    from PIL.Image import DecompressionBombWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", DecompressionBombWarning)
        yield


def decode_image(content: bytes, name: str, size: int | None, crop: Random | None = None) -> Pixels:
    """Decode one image file to uint8 [3, H, W]; call it in `bombs_raise`.

    With `size`, the central square is cropped and resized, or with `crop` a random rectangle.
    """
    from PIL import UnidentifiedImageError
    from PIL.Image import DecompressionBombError, DecompressionBombWarning, Resampling
    from PIL.Image import open as open_image

    try:
        # Some of Pillow's other formats start programs, and many are rarely tested.
        image = _rgb(open_image(io.BytesIO(content), formats=FORMATS))
    except (DecompressionBombError, DecompressionBombWarning):
        raise DataError(f"{name} has more pixels than an image may have; replace or remove it.") from None
    except UnidentifiedImageError:  # Pillow's message does not name the file
        raise DataError(f"{name} cannot be read as an image ({', '.join(FORMATS)}); replace or remove it.") from None
    except Exception as error:  # the decoders raise anything from OSError to SyntaxError
        raise DataError(f"{name} cannot be read as an image ({error}); replace or remove it.") from error
    if size is not None:
        box = random_box(image.width, image.height, crop) if crop else middle_box(image.width, image.height, 1, 1)
        image = image.crop(box).resize((size, size), Resampling.BILINEAR)
    return np.asarray(image, np.uint8).transpose(2, 0, 1)


def _rgb(file: "Image") -> "Image":
    with file:
        if file.mode.startswith(("I", "F")):
            raise ValueError(f"its pixels have more than 8 bits (mode {file.mode})")
        return file.convert("RGB")


def middle_of(image: "Image", width: int, height: int, *, resampling: int) -> "Image":
    """The largest central crop with this aspect ratio, resized to this size."""
    return image.crop(middle_box(image.width, image.height, width, height)).resize((width, height), resampling)


def middle_box(width: int, height: int, across: int, down: int) -> Box:
    """The largest central rectangle with the ratio `across` to `down`: left, top, right, bottom.

    >>> middle_box(6, 2, 1, 1)
    (2, 0, 4, 2)
    """
    scale = min(width / across, height / down)
    across, down = max(round(scale * across), 1), max(round(scale * down), 1)
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def random_box(width: int, height: int, random: Random) -> Box:
    """A random rectangle with 8 to 100 % of the area and a ratio of 3/4 to 4/3, as torchvision's RandomResizedCrop."""
    for _ in range(TRIES):
        area = width * height * random.uniform(*AREA)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        left, top = (int(random.random() * (side + 1)) for side in (width - across, height - down))
        if 0 < across <= width and 0 < down <= height:
            return left, top, left + across, top + down
    ratio = min(max(width / height, RATIO[0]), RATIO[1])  # of a very long or very high image, the middle
    scale = min(width / ratio, height)
    return middle_box(width, height, max(round(scale * ratio), 1), max(round(scale), 1))


def check_size(image: Pixels, name: str, shape: tuple[int, ...], first: str) -> None:
    """Raise an error unless an image has the shape of the first one."""
    if image.shape != shape:
        came = f"{_size_text(image.shape)} pixels where {first} has {_size_text(shape)}"
        advice = "all images must have the same size; for files of images, set the option `size` (such as size=32)"
        raise DataError(f"{name} has {came}; {advice}.")


def _size_text(shape: tuple[int, ...]) -> str:
    return f"{shape[2]} x {shape[1]}"

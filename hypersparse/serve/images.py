"""Decoding of uploaded images to the pixels that a network expects. The bytes are not trusted."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from hypersparse.data import digits
from hypersparse.data.decode import middle_of
from hypersparse.errors import DataError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # that browsers show; other decoders are not used
MOST_PIXELS = 40_000_000  # 160 MB decoded, at 4 bytes a pixel
SEEN = 512  # pixels on the longer side, enough to find ink
LEAST_CONTRAST = 16  # of 255, between ink and paper
INNER = 20 / 28  # of the side, the size of a centred drawing in MNIST
DIGIT = (1, digits.SIDE, digits.SIDE)

Pixels = npt.NDArray[np.uint8]
Shape = tuple[int, ...]


class TooManyPixels(DataError):  # noqa: N818  # named as what came
    """An image that would need too much memory."""


def decode(content: bytes) -> Image.Image:
    """Decode the first picture of a file to RGB, upright, with white for transparent pixels."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as file:
            _check_size(*file.size)
            if file.mode.startswith(("I", "F")):
                raise DataError("The image has more than 8 bits a pixel; save it with 8.")
            file.load()
            ImageOps.exif_transpose(file, in_place=True)  # copies of large images need much memory
            if "A" in file.getbands() or "transparency" in file.info:
                return _on_white(file if file.mode == "RGBA" else file.convert("RGBA"))
            return file if file.mode == "RGB" else file.convert("RGB")
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise TooManyPixels(_too_many("far too many")) from None
    except Exception:  # decoders raise anything from OSError to SyntaxError
        known = ", ".join(FORMATS)
        raise DataError(f"This is not a whole image that can be read; send one of {known}.") from None


def pixels_of(image: Image.Image, shape: Shape, *, drawn: bool, dark_on_light: bool = False) -> Pixels:
    """The pixels for a network with the input `shape` (channels, height, width): the centre of an image, resized.

    Digits of 8 x 8 are located in the image. Other drawings with one channel are centred as in MNIST, dark on light if
    the network was trained so.
    """
    channels, height, width = shape
    if shape == DIGIT and image.size != (width, height):
        return digits.from_drawing(ink_of(image))[None]
    if channels == 1 and drawn:
        centred = _centred(ink_of(image), height, width)
        return (255 - centred if dark_on_light else centred)[None]
    # A box filter was the best of five. 500 test images of CIFAR-10 (accuracy 93.8 %) were enlarged five times by
    # bicubic interpolation: shrunk with a box filter the accuracy is 92.0 %, with the bilinear filter of image folders
    # 86.6 %. Photographs were not tested.
    shrinks = image.width >= width and image.height >= height
    resampling = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
    return _planes(middle_of(image, width, height, resampling=resampling), channels)


def ink_of(image: Image.Image) -> Pixels:
    """Ink as 255 on paper of any colour: the difference from the border of the picture."""
    small = image.convert("L")
    small.thumbnail((SEEN, SEEN))
    grey = np.asarray(small, np.float32)
    rim = float(np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])))
    distance: npt.NDArray[np.float32] = np.abs(grey - rim)
    most = float(distance.max())
    if most < LEAST_CONTRAST:
        raise DataError("Nothing is drawn: the picture has one colour.")
    return (distance / most * 255).astype(np.uint8)


def as_png(pixels: Pixels) -> bytes:
    """Pixels [channels, height, width] as a PNG file."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _on_white(image: Image.Image) -> Image.Image:
    paper = Image.new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def _planes(image: Image.Image, channels: int) -> Pixels:
    array: Any = np.asarray(image.convert("L" if channels == 1 else "RGB"), np.uint8)
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _centred(ink: Pixels, height: int, width: int) -> Pixels:
    rows, columns = (np.flatnonzero((ink > 127).any(axis)) for axis in (1, 0))
    drawn = Image.fromarray(ink).crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    scale = min(max(round(INNER * side), 1) / taken for side, taken in ((width, drawn.width), (height, drawn.height)))
    size = (max(round(scale * drawn.width), 1), max(round(scale * drawn.height), 1))  # a thin line keeps one pixel
    small = np.asarray(drawn.resize(size, Image.Resampling.BOX), np.uint8)
    weight = max(float(small.sum()), 1.0)
    middle = [float((small.sum(1 - axis) * (np.arange(small.shape[axis]) + 0.5)).sum()) / weight for axis in (0, 1)]
    spaces = [(side, small.shape[axis], middle[axis]) for axis, side in enumerate((height, width))]
    top, left = (min(max(round(side / 2 - at), 0), side - taken) for side, taken, at in spaces)
    field = np.zeros((height, width), np.uint8)
    field[top : top + small.shape[0], left : left + small.shape[1]] = small
    return field


def _check_size(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise TooManyPixels(_too_many(f"{width} x {height}"))


def _too_many(came: str) -> str:
    return (
        f"An image may have {MOST_PIXELS // 10**6} million pixels at most, and this one has {came}; send a smaller one."
    )

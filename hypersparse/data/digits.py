"""`digits`: the 1797 handwritten digits of 8 x 8 pixels in scikit-learn; needs no download."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hypersparse.data.dataset import Dataset, Progress, Split, channel_statistics, no_options
from hypersparse.errors import DataError

TEST_IMAGES_PER_CLASS = 36  # 360 of 1797, one fifth; a class has 174 to 183
BRIGHTNESS = 15  # pixels are 0..16; 16 * 15 still fits into a byte
SIDE, BLOCK = 8, 4  # a pixel is the number of set pixels in a 4 x 4 block of a 32 x 32 bitmap
# Digits of the data set fill the height of the 32 x 32 bitmap, are about DRAWN_WIDTH wide, and set about DRAWN_INK
# pixels (deviation 34). Width and narrowness were selected from sixty pairs, by the accuracy of one network (99 % on
# the data set) on the same drawings; new drawings will do slightly worse. It recognized 92 to 94 % of digits drawn by a
# program with pens of 8 to 28 of 320 pixels (half of the sevens: most in the data set have a bar), and 88 % of printed
# ones. Scaling to 24 x 32 alone gave 45 to 84 %, less for thin pens, and 75 %.
DRAWN_WIDTH, DRAWN_NARROW, DRAWN_INK = (
    18,
    0.45,
    312,
)  # digits narrower than this fraction of their height, such as ones, stay narrow


def load(
    folders: Sequence[Path] = (), *, download: bool = False, progress: Progress | None = None, **options: Any
) -> Dataset:
    """1437 training and 360 test images in a fixed split, with 36 test images per class."""
    no_options("digits", options)
    table = np.loadtxt(_file(), delimiter=",", dtype=np.int64)  # 64 pixels and the label in each row
    pixels, target = table[:, :-1].reshape(-1, SIDE, SIDE), table[:, -1]
    images = torch.from_numpy((pixels * BRIGHTNESS).astype(np.uint8))[:, None]
    labels = torch.from_numpy(target.copy())
    is_test = torch.from_numpy(_test_split(target))
    train = Split(images[~is_test], labels[~is_test])
    mean, std = channel_statistics(train.images)
    classes = tuple(str(digit) for digit in range(10))
    return Dataset("digits", train, Split(images[is_test], labels[is_test]), classes, mean, std)


def from_drawing(ink: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Convert a drawing [height, width], 255 where there is ink, to an image [8, 8] like those of the data set.

    Position, size and stroke width of the digit are normalized.

    >>> drawing = np.zeros((100, 100), np.uint8)
    >>> drawing[10:90, 45:55] = 255
    >>> from_drawing(drawing)[4].tolist()
    [0, 0, 120, 240, 240, 60, 0, 0]
    """
    from PIL import Image, ImageFilter

    rows, columns = (np.flatnonzero((ink > 127).any(axis)) for axis in (1, 0))
    if not len(rows):
        raise DataError("The drawing is empty; draw a digit.")
    side = SIDE * BLOCK
    drawn = Image.fromarray(ink).crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    shape = drawn.width / drawn.height
    width = max(round(DRAWN_WIDTH * min(shape / DRAWN_NARROW, 1)), 1)
    height = max(round(side * min(2 / shape, 1)), 1)  # a horizontal line is not a digit and stays a line
    bitmap = Image.new("L", (side, side))
    bitmap.paste(drawn.resize((width, height), Image.Resampling.BOX), ((side - width) // 2, (side - height) // 2))
    blurred = np.asarray(bitmap.filter(ImageFilter.GaussianBlur(1)), np.int64) * 256 + np.asarray(bitmap)
    darkest = np.partition(blurred.ravel(), -DRAWN_INK)[-DRAWN_INK]  # normalizes the stroke width
    is_set = blurred >= max(darkest, 256)
    counts: npt.NDArray[np.int64] = is_set.reshape(SIDE, BLOCK, SIDE, BLOCK).sum((1, 3))
    return (counts * BRIGHTNESS).astype(np.uint8)


def _file() -> Path:
    """The file in scikit-learn, which is not imported: that takes half a second and needs scipy.stats."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("The digits are a part of scikit-learn, which is not installed; pip install scikit-learn.")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():
        raise DataError(f"This scikit-learn has no {file}; install another version, 1.4 or later.")
    return file


def _test_split(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    random = np.random.RandomState(0)  # numpy guarantees a fixed stream for RandomState, unlike default_rng
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        of_class = random.permutation(np.flatnonzero(labels == label))
        is_test[of_class[:TEST_IMAGES_PER_CLASS]] = True
    return is_test

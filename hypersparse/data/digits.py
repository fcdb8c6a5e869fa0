"""`digits`: 1797 handwritten digits of 8 x 8 pixels that come with scikit-learn: no download."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hypersparse.data.dataset import Dataset, Progress, Split, channel_statistics, no_options
from hypersparse.errors import DataError

TEST_IMAGES_PER_CLASS = 36  # 360 of 1797, a fifth, as every class has 174 to 183
BRIGHTNESS = 15  # pixels are 0..16; 16 * 15 still fits into a byte
SIDE, BLOCK = 8, 4  # a pixel counts what is set in 4 x 4 of a bitmap of 32 x 32
# How bitmaps of the data set look: every digit is as high as the bitmap, about as wide as this, and as many of the 1024
# are set (deviation 34) whatever the digit. Width and narrowness are the best of sixty tried, by one network of 99 %,
# on the drawings counted here, so that new ones will be told less often: 92 to 94 % of digits drawn by a program with
# pens of 8 to 28 of 320 pixels (of sevens half: most of the data set have a bar), 88 % of printed ones; where digits
# were only scaled to 24 x 32, 45 to 84 %, fewer the thinner the pen, and 75 %.
DRAWN_WIDTH, DRAWN_NARROW, DRAWN_INK = 18, 0.45, 312  # narrower than this share of the height is kept narrow: ones


def load(
    folders: Sequence[Path] = (), *, download: bool = False, progress: Progress | None = None, **options: Any
) -> Dataset:
    """1437 training and 360 test images, the same ones always, with 36 test images of each class."""
    no_options("digits", options)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy((bunch.images * BRIGHTNESS).astype(np.uint8))[:, None]
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    is_test = torch.from_numpy(_chosen_for_test(bunch.target))
    train = Split(images[~is_test], labels[~is_test])
    mean, std = channel_statistics(train.images)
    classes = tuple(str(digit) for digit in range(10))
    return Dataset("digits", train, Split(images[is_test], labels[is_test]), classes, mean, std)


def from_drawing(ink: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A drawing [height, width], 255 where there is ink, as an image of the data set [8, 8].

    Where the digit stands, how large it is and how thick the pen was makes no difference.

    >>> drawing = np.zeros((100, 100), np.uint8)
    >>> drawing[10:90, 45:55] = 255
    >>> from_drawing(drawing)[4].tolist()
    [0, 0, 120, 240, 240, 60, 0, 0]
    """
    from PIL import Image, ImageFilter

    rows, columns = (np.flatnonzero((ink > 127).any(axis)) for axis in (1, 0))
    if not len(rows):
        raise DataError("Nothing is drawn: there is no ink on the picture.")
    side = SIDE * BLOCK
    drawn = Image.fromarray(ink).crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    shape = drawn.width / drawn.height
    width = max(round(DRAWN_WIDTH * min(shape / DRAWN_NARROW, 1)), 1)
    height = max(round(side * min(2 / shape, 1)), 1)  # a line across is no digit, and stays one
    bitmap = Image.new("L", (side, side))
    bitmap.paste(drawn.resize((width, height), Image.Resampling.BOX), ((side - width) // 2, (side - height) // 2))
    blurred = np.asarray(bitmap.filter(ImageFilter.GaussianBlur(1)), np.int64) * 256 + np.asarray(bitmap)
    darkest = np.partition(blurred.ravel(), -DRAWN_INK)[-DRAWN_INK]  # makes a thin pen thicker and a thick one thinner
    is_set = blurred >= max(darkest, 256)
    counts: npt.NDArray[np.int64] = is_set.reshape(SIDE, BLOCK, SIDE, BLOCK).sum((1, 3))
    return (counts * BRIGHTNESS).astype(np.uint8)


def _chosen_for_test(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    random = np.random.RandomState(0)  # numpy promises never to change this stream, unlike default_rng's
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        of_class = random.permutation(np.flatnonzero(labels == label))
        is_test[of_class[:TEST_IMAGES_PER_CLASS]] = True
    return is_test

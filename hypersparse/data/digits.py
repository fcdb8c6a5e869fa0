"""`digits`: 1797 handwritten digits of 8 x 8 pixels that come with scikit-learn: no download."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hypersparse.data.dataset import Dataset, Progress, Split, channel_statistics, no_options

TEST_IMAGES_PER_CLASS = 36  # 360 of 1797, a fifth, as every class has 174 to 183
BRIGHTNESS = 15  # pixels are 0..16; 16 * 15 still fits into a byte


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


def _chosen_for_test(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    random = np.random.RandomState(0)  # numpy promises never to change this stream, unlike default_rng's
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        of_class = random.permutation(np.flatnonzero(labels == label))
        is_test[of_class[:TEST_IMAGES_PER_CLASS]] = True
    return is_test

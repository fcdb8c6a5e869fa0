import hashlib

import pytest
import torch

from hypersparse.data import digits
from hypersparse.errors import OptionError


def checksum(values: torch.Tensor) -> str:
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


def test_the_split_is_stratified_and_pinned() -> None:
    data = digits.load()
    assert (len(data.train), len(data.test), data.shape) == (1437, 360, (1, 8, 8))
    assert data.test.labels.bincount().tolist() == [36] * 10
    assert data.train.labels.bincount().tolist() == [142, 146, 141, 147, 145, 146, 145, 143, 138, 144]
    assert checksum(data.train.labels) == "d32f600c27af162c"
    assert checksum(data.test.labels) == "2e1e9c835fd60b23"
    assert checksum(data.test.images) == "5f7c1b20bbca1b6f"


def test_pixels_fill_a_byte_and_the_statistics_are_of_the_training_images() -> None:
    data = digits.load()
    assert (int(data.train.images.min()), int(data.train.images.max())) == (0, 240)
    pixels = data.train.images.double() / 255
    assert data.mean == pytest.approx((float(pixels.mean()),))
    assert data.std == pytest.approx((float(pixels.std(correction=0)),))
    assert data.classes == tuple("0123456789")


def test_there_is_nothing_to_choose() -> None:
    with pytest.raises(OptionError, match="no options"):
        digits.load(size=16)

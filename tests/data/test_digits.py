import hashlib
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from hypersparse.data import digits
from hypersparse.errors import DataError, OptionError


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


def test_options_are_refused() -> None:
    with pytest.raises(OptionError, match="no options"):
        digits.load(size=16)


def ink(rows: slice, columns: slice, side: int = 64) -> np.ndarray:
    drawn = np.zeros((side, side), np.uint8)
    drawn[rows, columns] = 255
    return drawn


def test_a_drawing_at_any_position_becomes_an_image_like_the_data_set() -> None:
    ring = ink(slice(8, 56), slice(20, 44))
    ring[14:50, 26:38] = 0
    digit = digits.from_drawing(ring)
    assert (digit.shape, digit.dtype) == ((8, 8), np.uint8)
    assert digit[0].max() > 0  # as high as the image
    assert digit[7].max() > 0
    assert digit[:, 0].max() == 0  # and narrower than it is high
    assert digit[:, 7].max() == 0
    assert digit[2:6, 3:5].max() < digit[2:6, 2].min()  # with a hole
    set_pixels = digit.astype(int).sum() / digits.BRIGHTNESS
    assert set_pixels == pytest.approx(digits.DRAWN_INK, abs=40)
    moved = np.roll(ring, (6, -18), (0, 1))
    assert (digits.from_drawing(moved) == digit).all()
    assert (digits.from_drawing(ring.repeat(3, 0).repeat(3, 1)) == digit).all()


def test_a_vertical_line_stays_narrow_and_a_horizontal_line_stays_low() -> None:
    upright = digits.from_drawing(ink(slice(5, 60), slice(30, 34)))
    assert upright[:, :2].max() == upright[:, 6:].max() == 0
    across = digits.from_drawing(ink(slice(30, 34), slice(5, 60)))
    assert across[0].max() == across[7].max() == 0


def test_an_empty_drawing_raises_an_error() -> None:
    with pytest.raises(DataError, match="drawing is empty"):
        digits.from_drawing(np.zeros((10, 10), np.uint8))


def test_the_images_are_those_of_scikit_learn() -> None:
    bunch, data = load_digits(), digits.load()
    is_test = digits._test_split(bunch.target)
    assert (data.train.images[:, 0].numpy() == bunch.images[~is_test] * digits.BRIGHTNESS).all()
    assert (data.test.labels.numpy() == bunch.target[is_test]).all()


@pytest.mark.parametrize(("spec", "sentence"), [(None, "is not installed"), ("elsewhere", "has no")])
def test_a_missing_scikit_learn_is_said(
    spec: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = spec and ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(digits, "find_spec", lambda name: found)
    with pytest.raises(DataError, match=sentence):
        digits.load()

"""What a file says is done to pixels, by hand."""

import numpy as np
import pytest

from hypersparse.export.input_normalization import Normalisation


@pytest.mark.parametrize("scale", [255, 1, 2])
def test_pixels_are_scaled_as_the_file_says(scale: float) -> None:
    rule = Normalisation.read({"normalisation": {"scale": scale, "mean": [0.0, 0.5], "std": [1.0, 0.25]}}, 2)
    assert rule is not None
    pixels = np.array([[[[scale]], [[0]]], [[[0]], [[scale]]]], np.uint8)  # two images of two channels
    assert rule(pixels).tolist() == [[[[1.0]], [[-2.0]]], [[[0.0]], [[2.0]]]]
    assert rule(pixels[:, :, 0, 0]).tolist() == [[1.0, -2.0], [0.0, 2.0]]
    assert rule(pixels).dtype == np.float32


@pytest.mark.parametrize(
    "said", [None, [], {}, {"scale": 1, "mean": [0.0, 0.0], "std": [1.0, 1.0]}, {"scale": 1, "mean": [0.0]}]
)
def test_what_cannot_be_used_is_nothing(said: object) -> None:
    assert Normalisation.read({"normalisation": said}, 1) is None

"""Arrays as int8 with a scale for each row."""

import numpy as np
import pytest

from hypersparse_runtime.row_quantization import (
    LEAST_SCALE,
    dequantize_rows,
    from_bytes,
    is_quantizable,
    quantize_rows,
    to_bytes,
)


def test_numbers_computed_by_hand() -> None:
    # The scale of row 0 is 254 / 127 = 2; 3 / 2 = 1.5 and 5 / 2 = 2.5 are ties, which go to even numbers.
    array = np.array([[254, 3, 5, -7.2], [0, -0.5, 0.001, 0], [0, 0, 0, 0]], np.float32)
    steps, scales = quantize_rows(array)
    assert steps[0].tolist() == [127, 2, 2, -4]
    # 0.5 / 127 = 1.00787 * 2^-8; bfloat16 has the steps 2^-15 there, and 129 of them are the nearest.
    assert scales.tolist() == [2.0, 129 * 2.0**-15, float(LEAST_SCALE)]
    assert steps[1].tolist() == [0, -127, 1, 0]  # 0.001 is a quarter of a step and stays a weight
    assert steps[2].tolist() == [0, 0, 0, 0]
    assert dequantize_rows(steps, scales)[0].tolist() == [254, 4, 4, -8]


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_what_was_quantized_stays_as_it_is(size: float) -> None:
    array = (np.random.default_rng(0).standard_normal((500, 3, 3, 3)) * size).astype(np.float32)
    steps, scales = quantize_rows(array)
    assert (np.abs(steps.reshape(500, -1).astype(int)).max(axis=1) == 127).all()
    again, same = quantize_rows(dequantize_rows(steps, scales))
    assert (again == steps).all()
    assert (same == scales).all()
    apart = np.abs(dequantize_rows(steps, scales) - array) / scales.reshape(-1, 1, 1, 1)
    assert apart[array != 0].max() < 1
    assert (np.abs(steps.astype(int)) > 1).mean() > 0.9
    assert (apart[np.abs(steps.astype(int)) > 1]).max() <= 0.5


def test_kept_weights_are_counted_as_before() -> None:
    array = np.random.default_rng(0).standard_normal((10, 1000)).astype(np.float32) ** 5
    array[:, ::3] = 0
    steps, _ = quantize_rows(array)
    assert (np.rint(array / np.abs(array).max(axis=1, keepdims=True) * 127) == 0).sum() > 5000
    assert ((steps != 0) == (array != 0)).all()
    assert (np.sign(steps) == np.sign(array)).all()


def test_scales_as_bytes() -> None:
    _, scales = quantize_rows(np.random.default_rng(0).standard_normal((50, 4)))
    assert (from_bytes(to_bytes(scales)) == scales).all()
    for upper in (0x0000, 0x8000, 0x007F, 0xBF80, 0x7F80, 0x7FC0, 0x7C00):  # 0, -0, subnormal, -1, inf, NaN, 2^121
        assert from_bytes(np.array([0x3F80, upper], np.uint16)) is None


@pytest.mark.parametrize(
    "array", [np.ones(3, np.float32), np.ones((2, 2)), np.full((2, 2), np.nan, np.float32), np.full((2, 2), 3e38, "f4")]
)
def test_what_has_no_rows_or_no_scales(array: np.ndarray) -> None:
    assert not is_quantizable(array)

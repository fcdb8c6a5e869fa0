"""Arrays as int8: whole steps, and the size of a step for each row (first axis), which is a layer's output channel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

STEPS = 127  # of a row's largest magnitude
LEAST_SCALE, MOST_SCALE = np.float32(2.0**-126), np.float32(2.0**120)  # 127 steps are finite and none is subnormal

Scales = NDArray[np.float32]


def quantize_rows(array: NDArray[Any]) -> tuple[NDArray[np.int8], Scales]:
    """Steps in -127..127 and a scale for each row, so that `array` is about `steps * scales`.

    A scale is the row's largest magnitude / 127, rounded to bfloat16. The largest magnitude becomes 127 steps, and
    products of steps and scales are exact in float32. Quantizing what was quantized gives the same steps and scales.
    What is not zero does not become zero: magnitudes of less than half a step become one step.

    >>> steps, scales = quantize_rows(np.array([[127.0, -2.6, 0.25], [0.0, 0.0, 0.0]]))
    >>> steps.tolist(), scales.tolist()[0]
    ([[127, -3, 1], [0, 0, 0]], 1.0)
    """
    rows = array.reshape(len(array), -1)
    largest = np.abs(rows).max(axis=1, initial=0)
    scales = np.maximum(_bfloat16(largest / STEPS), LEAST_SCALE)
    steps = np.rint(rows / scales.reshape(-1, 1))
    steps = np.where(steps == 0, np.sign(rows), steps)
    return steps.astype(np.int8).reshape(array.shape), scales


def dequantize_rows(steps: NDArray[np.int8], scales: Scales) -> NDArray[np.float32]:
    """The array that steps and scales stand for; exact."""
    wide = scales.astype(np.float32).reshape(-1, *[1] * (steps.ndim - 1))
    return np.asarray(steps.astype(np.float32) * wide)


def quantized_exactly(array: NDArray[Any]) -> tuple[NDArray[np.int8], Scales] | None:
    """Steps and scales that stand for an array exactly; None if there are none."""
    if not is_quantizable(array) or not array.size:
        return None
    steps, scales = quantize_rows(array)
    return (steps, scales) if np.array_equal(dequantize_rows(steps, scales), array) else None


def is_quantizable(array: NDArray[Any]) -> bool:
    """Whether an array has rows of finite numbers for which there are scales."""
    if array.dtype != np.float32 or array.ndim < 2 or not np.isfinite(array).all():
        return False
    return float(np.abs(array).max(initial=0)) <= STEPS * float(MOST_SCALE)


def to_bytes(scales: Scales) -> NDArray[np.uint16]:
    """The upper halves of float32: bfloat16."""
    return (scales.astype("<f4").view("<u4") >> 16).astype("<u2")


def from_bytes(upper: NDArray[np.uint16]) -> Scales | None:
    """The scales; None if one is not positive, not finite, or beyond the limits."""
    scales = (upper.astype("<u4") << 16).view("<f4").astype(np.float32)
    fits = bool(((scales >= LEAST_SCALE) & (scales <= MOST_SCALE)).all())  # of a NaN neither is true
    return scales if fits else None


def _bfloat16(numbers: NDArray[Any]) -> Scales:
    """Rounded to 8 bits of significand, ties to even."""
    bits = numbers.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32)

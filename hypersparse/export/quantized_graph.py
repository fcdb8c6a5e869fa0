"""A `QuantizedGraph`: a network in integers, and what they mean.

Everything is symmetric: the integer 0 is 0.

Values. A value is `scale` times its integers, which are in `low..high`:

| value | range | type |
| --- | --- | --- |
| of a layer or sum behind which a ReLU is; pools and reshapes of it | 0..255 | uint8 |
| any other | -127..127 | int8 |
| the network's output, of a layer or sum | -32767..32767 | int16 |

A ReLU or clip that alone reads the output of a layer or sum is no node of its own: that output is clamped to its range.

Weights are int8 with a scale for each output channel, see `row_quantization`. Biases are int32, in units of the input's
scale times the channel's. No sum reaches 2^31 for any input; `quantize` checks it.

Sums become the output's integers by an int32 `multiplier` m below 2^31 and a `shift` s of 1 to 62:

    requantized(a) = (a * m + 2^(s - 1)) >> s      in int64, with an arithmetic shift: halves are rounded up

Every output is clamped to its range. Nodes, with x the integers they read:

| op | arrays | output |
| --- | --- | --- |
| conv, linear | `weight`, `bias`; `multiplier`, `shift` by channel | requantized(sum + bias) |
| mean, avg_pool | `multiplier`, `shift`, of one element | requantized(sum of the window and its zeros) |
| elementwise | `table` | table[x - lowest x] |
| arithmetic (only `mul`) | `multiplier`, `shift` of one element | requantized(x0 * x1) |
| concat | `multiplier`, `shift` by input | requantized(x) of one input behind the other |
| add | `multiplier` by input, `shift` of one element | (x0 * m0 + x1 * m1 + 2^(s - 1)) >> s, in int32 |
| plane | `multiplier`, `shift` of one element, int32 `value` | (x * m + value + 2^(s - 1)) >> s, in int32 |
| relu, clip | none | x, with the scale of the input |
| max_pool, flatten | none | as in floating point, with the scale and range of the input |

Options are those of the graph's nodes. A batch norm that follows no layer becomes a depthwise convolution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import ModelError
from hypersparse_runtime.graph import Shape
from hypersparse_runtime.row_quantization import STEPS

UNSIGNED = 255
MULTIPLIER_BITS, MOST_SHIFT = 31, 62
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class QuantizedValue:
    """What the integers of a value mean."""

    scale: float
    low: int
    high: int

    @property
    def dtype(self) -> str:
        """The type that holds them."""
        if self.low >= 0 and self.high <= UNSIGNED:
            return "uint8"
        return "int8" if self.most <= STEPS else "int16"

    @property
    def most(self) -> int:
        """Their largest magnitude."""
        return max(-self.low, self.high)


@dataclass(frozen=True, eq=False)
class QuantizedNode:
    """One operation on integers."""

    op: str
    inputs: tuple[str, ...]
    output: str
    arrays: Arrays = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class QuantizedGraph:
    """A network in integers."""

    input_shape: Shape
    nodes: tuple[QuantizedNode, ...]
    values: Mapping[str, QuantizedValue]  # by name
    shapes: Mapping[str, Shape]  # of values, of one image
    about: Mapping[str, Any]

    @property
    def output(self) -> str:
        """The name of the network's value."""
        return self.nodes[-1].output


def multiplier_and_shift(factor: float) -> tuple[int, int]:
    """m and s so that m / 2^s is the factor, with 31 bits where s permits.

    >>> multiplier_and_shift(0.75), multiplier_and_shift(2.0**-40)
    ((1610612736, 31), (4194304, 62))
    """
    if not 0 <= factor < 2**MULTIPLIER_BITS / 2:
        raise ModelError(f"Integers would be multiplied by {factor:.3g}; calibrate with other images.")
    shift = min(MULTIPLIER_BITS - frexp(factor)[1], MOST_SHIFT)
    multiplier = round(factor * 2.0**shift)
    return (multiplier, shift) if multiplier < 2**MULTIPLIER_BITS else (multiplier // 2, shift - 1)


def clamped(low: float, high: float, scale: float, limits: tuple[int, int]) -> tuple[int, int]:
    """The integers between two bounds and within the limits."""
    first, last = (float(np.clip(np.rint(bound / scale), *limits)) for bound in (low, high))
    return int(first), int(last)


def factors(numbers: NDArray[np.float64] | Sequence[float]) -> dict[str, NDArray[Any]]:
    """Multipliers and shifts."""
    pairs = [multiplier_and_shift(float(number)) for number in numbers]
    return {
        "multiplier": np.array([pair[0] for pair in pairs], np.int32),
        "shift": np.array([pair[1] for pair in pairs], np.uint8),
    }

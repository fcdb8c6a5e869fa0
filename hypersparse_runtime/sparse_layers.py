"""The network of the sparse runtime: shapes of values, and layers of entries (row, channel, tap, weight)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hypersparse_runtime.checked_step import Step
    from hypersparse_runtime.value_steps.base import Writing

Pair = tuple[int, int]
Array = NDArray[Any]
SOFTMAX = ("softmax", "log_softmax")


def distinct(numbers: Array) -> Array:
    """The different numbers, in order. `np.unique` hashes them since numpy 2.3: 14 times as long for 2^19 of them.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    found: Array = ordered[first]
    return found


@dataclass(frozen=True, eq=False)
class Entries:
    """Nonzero weights: their row (output channel), input channel, tap and value.

    The taps of a dot are the positions that it reads.
    """

    row: Array
    channel: Array
    y: Array
    x: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.row)

    def where(self, chosen: Array) -> "Entries":
        """The entries at a mask or indices."""
        return Entries(*(part[chosen] for part in (self.row, self.channel, self.y, self.x, self.weight)))

    def scaled(self, scale: Array) -> "Entries":
        """The entries with each row multiplied by its scale."""
        return replace(self, weight=self.weight * scale[self.row])


class ValueStep(ABC):
    """What a layer does that reads and writes whole values, as a step of the kernel: see `value_steps`."""

    kind: ClassVar[str]
    alike: ClassVar[bool] = False  # whether its output is laid like its input
    one_by_one: ClassVar[bool] = False  # whether it takes one image at a time; its vectors are full of tokens

    @abstractmethod
    def words(self, at: "Writing") -> dict[str, int]:
        """The words specific to it; `blocks` is an estimate of its operations."""

    @classmethod
    @abstractmethod
    def check(cls, step: "Step") -> None:
        """Check the memory that a step reads and writes, by its words and tables."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One step over whole images, with the operations fused into it."""

    kind: str  # in `kernel_tables.KINDS`
    input: str
    output: str
    rows: Array  # the output channels that are computed
    entries: Entries | None = None  # of conv and dot
    bias: Array | None = None  # a number an output channel
    plane: Array | None = None  # numbers of the output's shape that are added
    residual: str | None = None  # a value that is added
    offset: Array | None = None  # a number an output channel: max(residual + offset, floor) is added; NaN: nothing is
    floor: Array | None = None
    lazy_bias: Array | None = None  # offset and floor of each input channel: max(input + offset, floor) is read
    relu: bool = False
    clip: tuple[float, float] | None = None  # what it is kept between, in the place of a ReLU
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    work: Any = None  # a `ValueStep`, or one of the classes in `winograd` and `int8`

    @property
    def others(self) -> tuple[str, ...]:
        """All values that it reads besides its input and its residual."""
        other = getattr(self.work, "other", None)
        return () if other is None else (other,)

    @property
    def reads(self) -> tuple[str, ...]:
        """All values that it reads."""
        return (self.input, *(() if self.residual is None else (self.residual,)), *self.others)

    @property
    def is_whole(self) -> bool:
        """Whether it reads every channel of its inputs and makes every channel of its output."""
        return isinstance(self.work, ValueStep)

    @property
    def activated(self) -> bool:
        """Whether it ends in an activation, after which nothing can be added."""
        return self.relu or self.clip is not None

    def activation(self, sums: Array) -> Array:
        """The activation of the sums."""
        if self.clip is not None:
            clipped: Array = np.clip(sums, *self.clip)
            return clipped
        return np.maximum(sums, 0) if self.relu else sums


@dataclass(frozen=True, eq=False)
class Network:
    """Layers in their order, and the shapes of the values between them as (channels, height, width)."""

    layers: tuple[Layer, ...]
    shapes: dict[str, tuple[int, int, int]]
    vectors: frozenset[str]  # values of height and width 1 that lie close together
    output: str
    output_shape: tuple[int, ...]

    @property
    def one_by_one(self) -> bool:
        """Whether it takes one image at a time."""
        return any(isinstance(layer.work, ValueStep) and layer.work.one_by_one for layer in self.layers)

    def products(self) -> int:
        """The multiplications for one image, edges counted like the inside."""
        sizes = self.shapes
        return sum(len(each.entries) * prod(sizes[each.output][1:]) for each in self.layers if each.entries is not None)

"""`View`: axes laid over the elements of a value, so that reshaping, permuting and slicing move nothing.

A value of the engine has channels, rows and columns. An axis of a view is a product of factors. A factor is a count
and a stride in the value's dense order; a stride of 0 expands.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np

from hypersparse_runtime.graph import Shape
from hypersparse_runtime.sparse_layers import Array

Factor = tuple[int, int]  # count and stride
Axis = tuple[Factor, ...]


@dataclass(frozen=True)
class View:
    """Axes over the elements of a value, from `first` on."""

    value: str
    axes: tuple[Axis, ...]
    first: int = 0

    @classmethod
    def whole(cls, value: str, shape: Shape) -> "View":
        """All elements in their order.

        >>> View.whole("x", (2, 3)).axes
        (((2, 3),), ((3, 1),))
        """
        strides = [prod(shape[place + 1 :]) for place in range(len(shape))]
        return cls(value, tuple(((side, stride),) for side, stride in zip(shape, strides, strict=True)))

    @property
    def shape(self) -> Shape:
        """The lengths of its axes."""
        return tuple(prod(count for count, _ in axis) for axis in self.axes)

    def permuted(self, order: Sequence[int]) -> "View":
        """The view with its axes in another order."""
        return replace(self, axes=tuple(self.axes[axis] for axis in order))

    def sliced(self, axis: int, start: int, count: int, step: int) -> "View | None":
        """Every `step`-th element of an axis; None if an axis of several factors would be split."""
        factors = _merged(self.axes[axis])
        if len(factors) > 1:
            inner = prod(size for size, _ in factors[1:])
            if step == 1 and start % inner == 0 and count % inner == 0:
                head, *rest = factors
                return self._with(axis, ((count // inner, head[1]), *rest), start // inner * head[1])
            if count != 1:
                return None
            moved, left = 0, start
            for place, (_, stride) in enumerate(factors):
                below = prod(size for size, _ in factors[place + 1 :])
                moved, left = moved + left // below * stride, left % below
            return self._with(axis, ((1, 0),), moved)
        stride = factors[0][1] if factors else 0
        return self._with(axis, ((count, stride * step),), start * stride)

    def _with(self, axis: int, factors: Axis, moved: int) -> "View":
        return replace(self, axes=(*self.axes[:axis], factors, *self.axes[axis + 1 :]), first=self.first + moved)

    def expanded(self, shape: Shape) -> "View":
        """The view with axes of length one repeated, and new axes in front."""
        missing = len(shape) - len(self.axes)
        before = zip(((),) * missing + self.axes, (1,) * missing + self.shape, shape, strict=True)
        return replace(self, axes=tuple(axis if side == to else ((to, 0),) for axis, side, to in before))

    def reshaped(self, shape: Shape) -> "View | None":
        """The same elements in other axes; None if a factor would be split unevenly.

        >>> View.whole("x", (4, 6)).permuted((1, 0)).reshaped((2, 3, 4)).axes
        (((2, 3),), ((3, 1),), ((4, 6),))
        >>> View.whole("x", (4, 6)).permuted((1, 0)).reshaped((8, 3)) is None
        True
        """
        left = [factor for axis in self.axes for factor in axis if factor[0] != 1]
        axes = []
        for side in shape:
            taken, wanted = [], side
            while wanted > 1:
                count, stride = left.pop(0)
                part = gcd(count, wanted)
                if part == count:
                    taken.append((count, stride))
                elif part == wanted:
                    taken.append((part, count // part * stride))
                    left.insert(0, (count // part, stride))
                else:
                    merged = _merged(((count, stride), *left[:1]))
                    if not left or len(merged) > 1:
                        return None
                    left[0] = merged[0]
                    continue
                wanted //= part
            axes.append(tuple(taken))
        return replace(self, axes=tuple(axes))

    def indices(self) -> Array:
        """The position of every element in the value's dense order."""
        axes = [_places(axis) for axis in self.axes]
        found = np.full(self.shape, self.first, dtype=np.int64)
        for place, places in enumerate(axes):
            found += places.reshape(-1, *[1] * (len(axes) - 1 - place))
        return found

    def is_whole(self, shape: Shape) -> bool:
        """Whether it is a value of this shape in its order."""
        plain = View.whole(self.value, shape).reshaped(self.shape) if prod(shape) == prod(self.shape) else None
        return self.first == 0 and plain is not None and plain.merged() == self.merged()

    def covers(self, shape: Shape) -> bool:
        """Whether it has each element of a value of this shape exactly once."""
        factors = sorted((stride, count) for axis in self.axes for count, stride in axis if count != 1)
        distance = 1
        for stride, count in factors:
            if stride != distance:
                return False
            distance *= count
        return self.first == 0 and distance == prod(shape)

    def merged(self) -> tuple[Axis, ...]:
        """The view with the fewest factors, for comparing views."""
        return tuple(_merged(axis) for axis in self.axes)

    def of(self, value: str) -> "View":
        """The same axes over another value."""
        return replace(self, value=value)


def _merged(axis: Axis) -> Axis:
    """
    >>> _merged(((2, 3), (3, 1), (1, 7)))
    ((6, 1),)
    """
    found: list[Factor] = []
    for count, stride in axis:
        if count == 1:
            continue
        if found and found[-1][1] == count * stride:
            found[-1] = (found[-1][0] * count, stride)
        else:
            found.append((count, stride))
    return tuple(found)


def _places(axis: Axis) -> Array:
    places = np.zeros(1, dtype=np.int64)
    for count, stride in axis:
        places = (places[:, None] + np.arange(count) * stride).reshape(-1)
    return places

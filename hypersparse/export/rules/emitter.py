"""`Emitter`: writes the graph nodes for one call of PyTorch."""

from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from hypersparse.export.aten_call import Call
from hypersparse_runtime.graph import Node, Shape
from hypersparse_runtime.names import MADE

NOTHING: MappingProxyType[str, str] = MappingProxyType({})


class UnfitError(Exception):
    """A graph has no operations for a call."""


def without_batch(full: Shape) -> Shape:
    """The shape in the graph of a tensor with a batch of one: without one axis of length one in front.

    >>> without_batch((1, 3, 4)), without_batch((5, 3)), without_batch((1,))
    ((3, 4), (5, 3), (1,))
    """
    return full[1:] if len(full) > 1 and full[0] == 1 else full or (1,)


def need(condition: object) -> None:
    """Reject the call unless the condition holds."""
    if not condition:
        raise UnfitError


class Emitter:
    """The nodes of one call. Shapes that include the batch of one are called full."""

    def __init__(self, call: Call) -> None:
        self.call, self.state, self.given = call, call.state, call.arguments
        self.nodes: list[Node] = []
        self.shapes: dict[str, Shape] = {}

    def full(self, node: Any = None) -> Shape:
        """The full shape of a tensor, by default of the call's output."""
        value = (node or self.call.node).meta["val"]
        need(isinstance(value, Tensor))
        first, *rest = value.shape or (1,)
        need(all(isinstance(side, int) for side in rest))
        need(not self.state.batch_in_front or (rest and (first == 1 or not isinstance(first, int))))
        if not isinstance(first, int):
            need(self.state.batch_size is not None and str(first) == self.state.batch_size)
            first = 1
        return (first, *rest)

    def is_value(self, argument: Any) -> bool:
        """Whether an argument depends on the input."""
        return isinstance(argument, fx.Node) and argument in self.state.values

    def is_constant(self, argument: Any) -> bool:
        """Whether an argument is an array of the model, or is computed from some."""
        known = (self.state.arrays, self.state.constants)
        return isinstance(argument, fx.Node) and any(argument in each for each in known)

    def tensor(self, argument: Any) -> Tensor:
        """A constant argument."""
        need(self.is_constant(argument))
        if argument in self.state.constants:
            return self.state.constants[argument]
        return torch.from_numpy(self.state.tensors[self.state.arrays[argument]])

    def array(self, argument: Any, shape: Shape | None = None) -> str:
        """The name of an argument's array, or of a copy in another shape."""
        tensor = self.tensor(argument)
        if argument in self.state.arrays and shape in (None, tuple(tensor.shape)):
            return self.state.arrays[argument]
        return self.made_array(argument.name, tensor if shape is None else tensor.reshape(shape))

    def arrays(self, shape: Shape | None = None) -> dict[str, str]:
        """The names of the arguments `weight` and `bias`, or of copies in another shape; a missing one is left out."""
        given = {role: self.given[role] for role in ("weight", "bias")}
        return {role: self.array(argument, shape) for role, argument in given.items() if argument is not None}

    def made_array(self, name: str, tensor: Tensor) -> str:
        """The name of a new array."""
        array = tensor.detach().cpu().numpy()
        floats = array if array.dtype.kind == "f" else array.astype(np.float32)
        called, number = f"{MADE}{name}", 0
        while called in self.state.tensors and not self._same(self.state.tensors[called], floats):
            number += 1
            called = f"{MADE}{name}.{number}"
        self.state.tensors[called] = np.array(floats)
        return called

    @staticmethod
    def _same(one: Any, two: Any) -> bool:
        return one.shape == two.shape and one.dtype == two.dtype and bool(np.array_equal(one, two))

    def emit(self, op: str, inputs: Sequence[str], made: Shape, tensors: Any = NOTHING, /, **options: Any) -> str:
        """Add a node that makes a value of the shape `made`; returns its name."""
        name = f"{self.call.output}.{len(self.nodes)}"
        self.nodes.append(Node(op, tuple(inputs), name, dict(tensors), options))
        self.shapes[name] = tuple(made)
        return name

    def value(self, argument: Any, shape: Shape | None = None) -> str:
        """The name of an argument's value, reshaped to `shape`; constants and numbers become values too."""
        if isinstance(argument, int | float):
            return self.number(argument, len(shape or (1,)))
        if self.is_value(argument):
            name = self.state.values[argument]
            self.shapes.setdefault(name, without_batch(self.full(argument)))
        else:
            tensor = self.tensor(argument)
            need(tensor.dtype.is_floating_point or tensor.dtype in (torch.int64, torch.int32, torch.bool))
            own = shape or tuple(tensor.shape) or (1,)
            array = self.array(argument, own)
            return self.emit("constant", [self.state.input], own, {"value": array})
        return self.reshape(name, shape)

    def number(self, value: float, axes: int) -> str:
        """A number as a value with this many axes."""
        array = self.made_array(f"number.{self.call.output}", torch.full((1,) * axes, float(value)))
        return self.emit("constant", [self.state.input], (1,) * axes, {"value": array})

    def reshape(self, name: str, shape: Shape | None) -> str:
        """The value with other axes."""
        if shape is None or tuple(shape) == self.shapes[name]:
            return name
        need(0 < len(shape) <= 8 and prod(shape) == prod(self.shapes[name]))
        return self.emit("reshape", [name], tuple(shape), shape=tuple(int(side) for side in shape))

    def permute(self, name: str, order: Sequence[int]) -> str:
        """The value with its axes in another order."""
        if list(order) == list(range(len(order))):
            return name
        shape = tuple(self.shapes[name][axis] for axis in order)
        return self.emit("permute", [name], shape, order=tuple(order))

    def cut(self, name: str, axis: int, start: int, length: int, step: int = 1) -> str:
        """Some elements along an axis."""
        shape = self.shapes[name]
        if (start, length) == (0, shape[axis]):
            return name
        made = (*shape[:axis], length, *shape[axis + 1 :])
        return self.emit("slice", [name], made, axis=axis, start=start, length=length, step=step)

    def expand(self, name: str, shape: Shape) -> str:
        """The value with axes of length one repeated."""
        if self.shapes[name] == tuple(shape):
            return name
        return self.emit("expand", [name], tuple(shape), shape=tuple(shape))

    def concat(self, names: Sequence[str], axis: int) -> str:
        """Values concatenated along an axis."""
        if len(names) == 1:
            return names[0]
        first = self.shapes[names[0]]
        side = sum(self.shapes[name][axis] for name in names)
        options = {"axis": axis} if axis else {}
        return self.emit("concat", names, (*first[:axis], side, *first[axis + 1 :]), **options)

    def axis(self, argument: Any, full: Shape) -> int:
        """An axis of a full shape, except the batch axis."""
        axis = int(argument) % len(full)
        need(axis > 0 or full[0] != 1)
        return axis

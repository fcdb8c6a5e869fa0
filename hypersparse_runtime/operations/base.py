"""`Operation`: what the runtime knows about one operation of a graph."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hypersparse_runtime.graph import Graph, GraphError, Node, Shape
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.sparse_layers import Array, Pair

MOST_AXES = 8  # of a value, without the batch


class Channels(Enum):
    """How an output channel depends on input channels. `hypersparse shrink` removes channels by it."""

    SAME = auto()  # on the same channel of each input
    WEIGHTED = auto()  # on those to which the array `weight` has a nonzero weight
    FLATTENED = auto()  # one element of one channel
    JOINED = auto()  # one channel of one of the inputs, which follow each other
    ALL = auto()  # on every channel, so that none can be removed


class OnnxCall(NamedTuple):
    """One node of an ONNX graph."""

    kind: str
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, Any] = MappingProxyType({})


class Operation(ABC):
    """What the runtime knows about one operation: shapes, cost, a numpy reference, and the layers it becomes.

    `hypersparse.export.operations` has the other half, which needs PyTorch.
    """

    name: ClassVar[str]
    onnx: ClassVar[str]  # the operation's name in ONNX
    roles: ClassVar[tuple[str, ...]] = ()  # of its arrays, in the order in which ONNX takes them
    in_onnx: ClassVar[bool] = True  # whether the arrays of `roles` are inputs in ONNX
    passes: ClassVar[Channels]
    inputs: ClassVar[int | None] = 1  # None: one or more
    weighted: ClassVar[bool] = False  # whether it is a sum of products with its array `weight`
    by_channels: ClassVar[bool] = False  # whether `weight` has a row for each output channel, of weights of input ones
    opaque: ClassVar[bool] = False  # whether only PyTorch knows what it does
    last_only: ClassVar[bool] = False  # whether it must be the last operation of a network
    takes_views: ClassVar[bool] = False  # whether `lower` finds its inputs by `Lowering.view`
    lays_axes: ClassVar[bool] = False  # whether it lays other axes over any value, so that no view is copied for it
    rearranges: ClassVar[bool] = False  # whether its output has the numbers of its input, in other places
    any_axes: ClassVar[bool] = False  # whether it could take the batch for one of its axes
    broadcasts: ClassVar[bool] = False  # whether an input may be a constant beside values of a batch

    @abstractmethod
    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        """The output's shape for one image; raises GraphError where options, arrays and inputs do not fit."""

    @abstractmethod
    def count_work(self, work: WorkCounter, node: Node) -> None:
        """Add the estimated cost of loading and running it."""

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        """The output for a batch, in numpy: the reference for all other implementations."""
        raise unsupported(node)

    def lower(self, lowering: Lowering, node: Node) -> None:
        """Turn the node into layers of the sparse engine."""
        raise unsupported(node)

    def uses(self, node: Node, shapes: Mapping[str, Shape]) -> int:
        """How many products each weight is in, for one image."""
        return prod(shapes[node.output][1:])

    def channels(self, graph: Graph, node: Node) -> Channels:
        """How channels pass through this node."""
        return self.passes

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        """The options by their names in ONNX."""
        return {}

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        """Options that are inputs in ONNX, after the arrays; an array keeps its type if it holds whole numbers."""
        return {}

    def onnx_array_shape(self, role: str, array: Array, shape: Shape) -> Shape:
        """The shape that an array has in ONNX, for an input of this shape."""
        return tuple(array.shape)

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        """The nodes of ONNX that compute it."""
        return [OnnxCall(self.onnx, inputs, output, self.onnx_attributes(node))]


class Opaque(Operation):
    """Any operation that is not in the table. It says its shape itself, and only PyTorch can run it."""

    name, inputs, opaque = "opaque", None, True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        shape = node.options.get("shape")
        return tuple(shape) if shape is not None else (1,)  # None: several values

    def count_work(self, work: WorkCounter, node: Node) -> None:
        """Nothing: PyTorch's part of the work is counted where PyTorch is."""

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        raise unsupported(node)


def unsupported(node: Node) -> GraphError:
    """The error of a method that an operation cannot have."""
    return GraphError(f"The runtime has no operation `{node.op}` (`{node.output}`); only PyTorch can run it.")


def pair(node: Node, name: str, *, least: int) -> Pair:
    """An option of two integers, for height and width, such as `stride`."""
    value = node.options.get(name)
    fits = isinstance(value, tuple) and len(value) == 2 and all(type(side) is int and side >= least for side in value)
    if not fits:
        raise GraphError(f"`{node.output}` needs `{name}`, a pair of whole numbers of at least {least}; got {value!r}.")
    first, second = value  # type: ignore[misc]
    return first, second


def count(node: Node, name: str) -> int:
    """An option that is a positive integer."""
    value = node.options.get(name)
    if type(value) is not int or value < 1:
        raise GraphError(f"`{node.output}` needs `{name}`, a whole number of at least 1; got {value!r}.")
    return value


def one_of(node: Node, name: str, known: Collection[str]) -> str:
    """An option that is one of these names."""
    value = node.options.get(name)
    if not isinstance(value, str) or value not in known:
        raise GraphError(f"`{node.output}` needs `{name}`, one of {', '.join(known)}; got {value!r:.40}.")
    return value


def whole_numbers(node: Node, name: str, *, least: int) -> tuple[int, ...]:
    """An option of one or more integers, such as the `shape` of a reshape; at most eight."""
    value = node.options.get(name)
    given = value if isinstance(value, tuple) else (value,)
    if not 0 < len(given) <= MOST_AXES or not all(type(each) is int and each >= least for each in given):
        said = f"up to {MOST_AXES} whole numbers of at least {least}"
        raise GraphError(f"`{node.output}` needs `{name}`, {said}; got {str(value)[:40]}.")
    return given


def array_of(graph: Graph, node: Node, role: str) -> Any:
    """An array that the node must have."""
    found = graph.array(node, role)
    if found is None:
        raise GraphError(f"`{node.output}` ({node.op}) has no array `{role}`.")
    return found


def float32(graph: Graph, node: Node, role: str) -> Any:
    """An array that the node must have, in single precision."""
    return array_of(graph, node, role).astype(np.float32, copy=False)


def check_vector(graph: Graph, node: Node, role: str, length: int) -> None:
    """An array, if present, has one element for each channel."""
    found = graph.array(node, role)
    if found is not None and found.shape != (length,):
        raise GraphError(f"`{role}` of `{node.output}` should have the shape ({length},); got {found.shape}.")


def slid(node: Node, x: Shape, kernel: Shape) -> Shape:
    """Height and width of what a window of this size gives, by the node's stride and padding."""
    stride, padding = pair(node, "stride", least=1), pair(node, "padding", least=0)
    sides = zip(x[1:], kernel, stride, padding, strict=True)
    return tuple((side + 2 * edge - width) // step + 1 for side, width, step, edge in sides)


def window_attributes(node: Node) -> dict[str, Any]:
    """Stride and padding as ONNX names them."""
    edges = node.options["padding"]
    return {"strides": list(node.options["stride"]), "pads": [*edges, *edges]}

"""`Graph`: a network as plain data, a list of operations and the arrays they read.

| op | inputs | tensors | options |
| --- | --- | --- | --- |
| `conv` | x (C, H, W) | `weight` (O, C / groups, h, w), `bias` (O)? | `stride`, `padding`, `dilation`: two; `groups` |
| `linear` | x (C) | `weight` (O, C), `bias` (O)? | |
| `batch_norm` | x (C, H, W) or (C) | `weight`, `bias`, `mean`, `variance` (C) | `epsilon` |
| `relu` | x | | |
| `clip` | x | | `low`, `high`: numbers, one of them may be missing |
| `add` | x, y of one shape | | |
| `concat` | one or more of the same height and width, or vectors: their channels behind each other | | |
| `plane` | x | `value`, of the shape of x | |
| `max_pool`, `avg_pool` | x (C, H, W) | | `kernel`, `stride`, `padding`: two; `avg_pool` counts padding |
| `mean` | x (C, H, W), over H and W, gives (C) | | |
| `flatten` | x, gives a vector in C order | | |
| `softmax`, `log_softmax` | x (C), as the last operation only | | |

A `bias` may be missing. Options of two numbers are for height and width. Shapes are of one image; a batch is in front
of all of them. The last node's output is the network's.
Names: values and arrays are two separate sets of names, of the characters that `names` allows.

What PyTorch has beyond these ops is an opaque node, which only PyTorch runs: its op is `aten.<name>.<overload>` or
`getitem`, and its options say how it was called: `arguments` and `keywords` (JSON, where {"input": i}, {"tensor":
role}, {"batch": 1} and {"dtype": name} stand for what they name) and the `shape` it gives (None: several values).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf, prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.names import strange_name

SHARES = ("softmax", "log_softmax")
OPS = (
    "conv",
    "linear",
    "batch_norm",
    "relu",
    "clip",
    "add",
    "concat",
    "plane",
    "max_pool",
    "avg_pool",
    "mean",
    "flatten",
    *SHARES,
)
INPUT = "input"  # name of the value that a network is given
LONGEST = 200  # characters of what came: a concatenation has up to 1,024 shapes
MOST_BOUND = float(np.finfo(np.float32).max)  # of a `clip`

Shape = tuple[int, ...]
Option = Any  # int, float, pairs of int; of an opaque node anything JSON can say


class GraphError(ValueError):
    """A network that does not fit together; the message is one sentence."""


@dataclass(frozen=True)
class Node:
    """One operation: what it reads and the value it makes, by name."""

    op: str
    inputs: tuple[str, ...]
    output: str
    tensors: Mapping[str, str] = field(default_factory=dict)  # by role, the name of an array of the graph
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def opaque(self) -> bool:
        """Whether only PyTorch knows what it does."""
        return self.op not in OPS


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: operations in an order in which each finds its inputs made."""

    input_shape: tuple[int, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any] = field(default_factory=dict)  # classes, normalisation, recipe and the like: plain JSON

    @property
    def output(self) -> str:
        """The name of the network's value."""
        return self.nodes[-1].output

    def array(self, node: Node, role: str) -> np.ndarray[Any, Any] | None:
        """A node's array, such as its `weight`; None if it has none."""
        name = node.tensors.get(role)
        return None if name is None else self.tensors[name]


def shapes(graph: Graph) -> dict[str, Shape]:
    """The shape of every value, of one image; raises GraphError where something does not fit.

    >>> linear = Node("linear", (INPUT,), "y", {"weight": "w"})
    >>> shapes(Graph((3,), (linear,), {"w": np.zeros((5, 3))}))
    {'input': (3,), 'y': (5,)}
    """
    if not graph.nodes:
        raise GraphError("A network needs at least one operation; this one has none.")
    _check_names(graph)
    known: dict[str, Shape] = {INPUT: tuple(graph.input_shape)}
    _need(all(side > 0 for side in graph.input_shape), "the input", "an empty shape", graph.input_shape)
    for node in graph.nodes:
        for name in node.inputs:
            if name not in known:
                raise GraphError(f"`{node.output}` reads `{name}` before anything made it.")
        if node.output in known:
            raise GraphError(f"`{node.output}` is made twice.")
        if node.op in SHARES and node.output != graph.output:
            raise GraphError(f"`{node.output}` is a {node.op}, which can only be the last operation of a network.")
        if missing := [name for name in node.tensors.values() if name not in graph.tensors]:
            raise GraphError(f"`{node.output}` reads an array `{missing[0]}` that is not there.")
        shape = _shape_of(graph, node, [known[name] for name in node.inputs])
        _need(all(side > 0 for side in shape), node.output, "an empty shape", shape)
        known[node.output] = shape
    return known


def _check_names(graph: Graph) -> None:
    of_nodes = ((node.op, node.output, *node.tensors, *node.options) for node in graph.nodes)
    if strange := strange_name(chain(graph.tensors, *of_nodes)):
        raise GraphError(f"{strange}.")


def _shape_of(graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    if node.opaque:
        shape = node.options.get("shape")
        return tuple(shape) if shape is not None else (1,)
    count = {"add": 2, "concat": max(1, len(inputs))}.get(node.op, 1)
    _need(len(inputs) == count, node.output, "another count of inputs", node.inputs)
    return _SHAPES[node.op](graph, node, inputs)


def _conv(graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    (x,) = inputs
    weight, groups = _array(graph, node, "weight"), _count(node, "groups")
    fits = len(x) == 3 and weight.ndim == 4 and weight.shape[1] * groups == x[0] and weight.shape[0] % groups == 0
    _need(fits and all(weight.shape), node.output, "a weight that does not fit its input", (weight.shape, x))
    _vector(graph, node, "bias", weight.shape[0])
    dilation = pair(node, "dilation", least=1)
    kernel = tuple(step * (side - 1) + 1 for step, side in zip(dilation, weight.shape[2:], strict=True))
    return (weight.shape[0], *_slid(node, x, kernel))


def _linear(graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    weight = _array(graph, node, "weight")
    fits = weight.ndim == 2 and inputs[0] == weight.shape[1:]
    _need(fits, node.output, "a weight that does not fit its input", (weight.shape, inputs[0]))
    _vector(graph, node, "bias", weight.shape[0])
    return (weight.shape[0],)


def _batch_norm(graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    _need(len(inputs[0]) in (1, 3), node.output, "an input of a wrong shape", inputs[0])
    for role in ("weight", "bias", "mean", "variance"):
        _array(graph, node, role)
        _vector(graph, node, role, inputs[0][0])
    epsilon = node.options.get("epsilon")
    _need(isinstance(epsilon, float) and epsilon >= 0, node.output, "a wrong epsilon", epsilon)
    return inputs[0]


def _same(_graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    _need(inputs[0] == inputs[-1], node.output, "inputs of two shapes", inputs)
    return inputs[0]


def _clip(_graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    low, high = bounds(node)
    _need(low <= high, node.output, "bounds of which the lower is the larger", (low, high))
    return inputs[0]


def _concat(_graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    fits = all(len(shape) in (1, 3) and shape[1:] == inputs[0][1:] for shape in inputs)
    _need(fits, node.output, "inputs of other heights and widths", inputs)
    return (sum(shape[0] for shape in inputs), *inputs[0][1:])


def _plane(graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    shape = _array(graph, node, "value").shape
    _need(shape == inputs[0], node.output, "a plane of another shape than its input", (shape, inputs[0]))
    return inputs[0]


def _pool(_graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    (x,) = inputs
    _need(len(x) == 3, node.output, "an input of a wrong shape", x)
    kernel, padding = pair(node, "kernel", least=1), pair(node, "padding", least=0)
    inside = all(2 * edge <= side for edge, side in zip(padding, kernel, strict=True))
    _need(inside, node.output, "a padding of more than half its kernel", padding)
    return (x[0], *_slid(node, x, kernel))


def _mean(_graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    _need(len(inputs[0]) == 3, node.output, "an input of a wrong shape", inputs[0])
    return inputs[0][:1]


def _softmax(_graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    _need(len(inputs[0]) == 1, node.output, "an input that is no vector", inputs[0])
    return inputs[0]


def _flatten(_graph: Graph, _node: Node, inputs: list[Shape]) -> Shape:
    return (prod(inputs[0]),)


_SHAPES: Mapping[str, Callable[[Graph, Node, list[Shape]], Shape]] = MappingProxyType(
    {
        "conv": _conv,
        "linear": _linear,
        "batch_norm": _batch_norm,
        "relu": _same,
        "clip": _clip,
        "add": _same,
        "concat": _concat,
        "plane": _plane,
        "max_pool": _pool,
        "avg_pool": _pool,
        "mean": _mean,
        "flatten": _flatten,
        **dict.fromkeys(SHARES, _softmax),
    }
)


def pair(node: Node, name: str, *, least: int) -> tuple[int, int]:
    """An option that is two whole numbers, such as `stride`."""
    value = node.options.get(name)
    fits = isinstance(value, tuple) and len(value) == 2 and all(type(side) is int and side >= least for side in value)
    if not fits:
        raise GraphError(f"`{node.output}` needs `{name}`, a pair of whole numbers of at least {least}; got {value!r}.")
    first, second = value  # type: ignore[misc]
    return first, second


def bounds(node: Node) -> tuple[float, float]:
    """Between what a `clip` keeps its value; a bound that is missing is infinite.

    >>> bounds(Node("clip", (INPUT,), "y", options={"low": 0.0}))
    (0.0, inf)
    """
    given = [node.options[name] for name in ("low", "high") if name in node.options]
    if not given or not all(isinstance(bound, float) and abs(bound) <= MOST_BOUND for bound in given):
        said = "needs `low`, `high` or both, which are finite numbers of float32"
        raise GraphError(f"`{node.output}` {said}; got {dict(node.options)}.")
    return node.options.get("low", -inf), node.options.get("high", inf)


def _count(node: Node, name: str) -> int:
    value = node.options.get(name)
    if type(value) is not int or value < 1:
        raise GraphError(f"`{node.output}` needs `{name}`, a whole number of at least 1; got {value!r}.")
    return value


def _slid(node: Node, x: Shape, kernel: Shape) -> Shape:
    stride, padding = pair(node, "stride", least=1), pair(node, "padding", least=0)
    sides = zip(x[1:], kernel, stride, padding, strict=True)
    return tuple((side + 2 * edge - width) // step + 1 for side, width, step, edge in sides)


def _array(graph: Graph, node: Node, role: str) -> NDArray[Any]:
    array = graph.array(node, role)
    if array is None:
        raise GraphError(f"`{node.output}` ({node.op}) has no array `{role}`.")
    return array


def _vector(graph: Graph, node: Node, role: str, length: int) -> None:
    array = graph.array(node, role)
    if array is not None and array.shape != (length,):
        raise GraphError(f"`{role}` of `{node.output}` should have the shape ({length},); got {array.shape}.")


def _need(condition: bool, name: str, what: str, came: object) -> None:
    if not condition:
        raise GraphError(f"`{name}` has {what}: {str(came)[:LONGEST]}.")

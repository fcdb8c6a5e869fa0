"""`Graph`: a network as plain data, a list of operations and the arrays they read.

`hypersparse_runtime.operations` defines the operations: their inputs, arrays and options. A `bias` may be missing.
Options of two numbers are for height and width. Shapes are of one image, without the batch. The last node's output is
the network's output. Values and arrays have separate sets of names, made of the characters that `names` allows.

Any other operation of PyTorch is an opaque node, which only PyTorch runs. Its op is `aten.<name>.<overload>` or
`getitem`. Its options hold the `arguments` and `keywords` of the call in JSON and the `shape` of its output, None for
several outputs. In the JSON {"input": i}, {"tensor": role}, {"batch": 1} and {"dtype": name} stand for what they name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.names import strange_name

if TYPE_CHECKING:
    from hypersparse_runtime.operations.base import Operation

INPUT = "input"  # name of the value that a network is given
MAX_MESSAGE = 200  # characters of a value in an error: a concatenation has up to 1,024 shapes

Shape = tuple[int, ...]
Option = Any  # int, float, pairs of int; of an opaque node anything JSON can say


class GraphError(ValueError):
    """An inconsistent network; the message is one sentence."""


@dataclass(frozen=True)
class Node:
    """One operation: the names of its inputs and of its output."""

    op: str
    inputs: tuple[str, ...]
    output: str
    tensors: Mapping[str, str] = field(default_factory=dict)  # by role, the name of an array of the graph
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def operation(self) -> "Operation":
        """The definition of the operation."""
        from hypersparse_runtime.operations import operation  # it is defined on graphs

        return operation(self.op)

    @property
    def opaque(self) -> bool:
        """Whether only PyTorch knows the operation."""
        return self.operation.opaque

    @property
    def weighted(self) -> bool:
        """Whether the operation is a sum of products with its array `weight`."""
        return self.operation.weighted

    @property
    def by_channels(self) -> bool:
        """Whether `weight` has a row for each output channel."""
        return self.operation.by_channels


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: operations in an order in which every input exists."""

    input_shape: tuple[int, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any] = field(default_factory=dict)  # classes, normalisation, recipe and the like: plain JSON

    @property
    def output(self) -> str:
        """The name of the network's output."""
        return self.nodes[-1].output

    def array(self, node: Node, role: str) -> np.ndarray[Any, Any] | None:
        """A node's array, such as its `weight`; None if it has none."""
        name = node.tensors.get(role)
        return None if name is None else self.tensors[name]


def shapes(graph: Graph) -> dict[str, Shape]:
    """The shape of every value for one image; raises GraphError if something is inconsistent.

    >>> linear = Node("linear", (INPUT,), "y", {"weight": "w"})
    >>> shapes(Graph((3,), (linear,), {"w": np.zeros((5, 3))}))
    {'input': (3,), 'y': (5,)}
    """
    if not graph.nodes:
        raise GraphError("A network needs at least one operation; this one has none.")
    _check_names(graph)
    known: dict[str, Shape] = {INPUT: tuple(graph.input_shape)}
    need(all(side > 0 for side in graph.input_shape), "the input", "an empty shape", graph.input_shape)
    for node in graph.nodes:
        for name in node.inputs:
            if name not in known:
                raise GraphError(f"`{node.output}` reads `{name}` before anything made it.")
        if node.output in known:
            raise GraphError(f"`{node.output}` is made twice.")
        if node.operation.last_only and node.output != graph.output:
            raise GraphError(f"`{node.output}` is a {node.op}, which can only be the last operation of a network.")
        if missing := [name for name in node.tensors.values() if name not in graph.tensors]:
            raise GraphError(f"`{node.output}` reads an array `{missing[0]}` that is not there.")
        shape = _shape_of(graph, node, [known[name] for name in node.inputs])
        need(all(side > 0 for side in shape), node.output, "an empty shape", shape)
        known[node.output] = shape
    return known


def _check_names(graph: Graph) -> None:
    of_nodes = ((node.op, node.output, *node.tensors, *node.options) for node in graph.nodes)
    if strange := strange_name(chain(graph.tensors, *of_nodes)):
        raise GraphError(f"{strange}.")


def _shape_of(graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
    expected = node.operation.inputs
    fits = bool(inputs) or node.opaque if expected is None else len(inputs) == expected
    need(fits, node.output, "another count of inputs", node.inputs)
    return node.operation.shape(graph, node, inputs)


def need(condition: bool, name: str, what: str, came: object) -> None:
    """Raise GraphError about the value `name` unless the condition holds."""
    if not condition:
        raise GraphError(f"`{name}` has {what}: {str(came)[:MAX_MESSAGE]}.")

"""`Call`: one call of an exported program, and the state of its translation to a graph."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import Tensor, fx

from hypersparse_runtime.graph import INPUT, Node

GETITEM = "getitem"


class BatchSizeError(Exception):
    """The model computes with the batch size, which a graph cannot express."""


@dataclass
class Translation:
    """The state of translating an exported program."""

    tensors: dict[str, Any] = field(default_factory=dict)
    arrays: dict[fx.Node, str] = field(default_factory=dict)  # parameters and buffers, by their placeholders
    values: dict[fx.Node, str] = field(default_factory=dict)  # names of values; an identity has its input's
    batch: set[fx.Node] = field(default_factory=set)  # nodes that are the batch size
    nodes: list[Node] = field(default_factory=list)
    constants: dict[fx.Node, Tensor] = field(default_factory=dict)  # what follows from parameters and buffers alone
    pieces: dict[fx.Node, list[str]] = field(default_factory=dict)  # values of calls that give several
    batch_size: str | None = None  # how the batch size is called; None where it is one
    batch_in_front: bool = False  # whether every value must have the batch in front, as those of opaque nodes have
    input: str = INPUT


class Call:
    """One call in an exported program, with its arguments by their names in the operator's schema."""

    def __init__(self, node: fx.Node, state: Translation) -> None:
        self.node, self.state = node, state
        self.name = GETITEM if node.target is operator.getitem else str(node.target)
        self.arguments: dict[str, Any] = dict(enumerate(node.args)) if self.name == GETITEM else self._bound()  # type: ignore[arg-type]

    def _bound(self) -> dict[str, Any]:
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:  # arithmetic with the batch size, or an operator that is not torch's
            raise BatchSizeError(str(self.node.target))
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, self.node.args, strict=False)), **self.node.kwargs}
        defaults = {argument.name: argument.default_value for argument in schema.arguments}
        return {name: given.get(name, defaults[name]) for name in names}

    @property
    def alike(self) -> bool:
        """Whether its inputs and outputs have the batch as their first axis."""
        values = [each for each in self.node.all_input_nodes if each in self.state.values]
        made = self.node.meta.get("val")
        shapes = [each.meta["val"].shape for each in values if isinstance(each.meta.get("val"), Tensor)]
        shapes += [made.shape] if isinstance(made, Tensor) else []
        return self.state.batch_size is not None or all(len(shape) > 1 and shape[0] == 1 for shape in shapes)

    @property
    def simple(self) -> bool:
        """Whether its first argument is a value that depends on the input, or a list of such values."""
        first = self.node.args[0] if self.node.args else None
        given = first if isinstance(first, list | tuple) else (first,)
        return all(isinstance(value, fx.Node) and value in self.state.values for value in given)

    @property
    def output(self) -> str:
        """The name of its output."""
        return self.node.name

    def shape(self, node: fx.Node | None = None) -> tuple[int, ...]:
        """The shape of its output or another node's, without the batch."""
        return tuple(int(side) for side in (node or self.node).meta["val"].shape[1:])

    def input_shape(self) -> tuple[int, ...]:
        """The shape of its first argument, without the batch."""
        return self.shape(self.node.args[0])  # type: ignore[arg-type]

    def made(self, op: str, tensors: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> Node | None:
        """A node of this op on the first argument; None if an array of it is not an array of the model."""
        named = {role: array for role, array in tensors.items() if array is not None}
        if any(array not in self.state.arrays for array in named.values()):
            return None
        arrays = {role: self.state.arrays[array] for role, array in named.items()}
        return Node(op, (self.state.values[self.node.args[0]],), self.output, arrays, options)  # type: ignore[index]


def int_pair(value: Any) -> tuple[int, int]:
    """An argument for height and width, which may be one number for both."""
    sides = [int(side) for side in value] if isinstance(value, list | tuple) else [int(value)]
    return (sides[0], sides[-1])

"""From a `Graph` to layers: batch norms folded, and biases, planes, sums and ReLUs made part of the layer before them.

Each operation adds its own layers by `Operation.lower`. Every sum of products becomes a list of entries (row, channel,
tap, weight), be it a convolution, a linear layer, an average pooling or a batch norm that stands alone.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, shapes
from hypersparse_runtime.sparse_layers import Array, Entries, Kind, Layer, Network


def dense_products(graph: Graph) -> int:
    """Multiplications for one image if no weight were zero."""
    sizes, weighted = shapes(graph), (node for node in graph.nodes if node.weighted)
    return sum(graph.tensors[node.tensors["weight"]].size * prod(sizes[node.output][1:]) for node in weighted)


def layers_of(graph: Graph) -> Network:
    """The layers of a graph; raises GraphError for what only PyTorch can run."""
    lowering = Lowering(graph)
    for node in graph.nodes:
        node.operation.lower(lowering, node)
    return lowering.network()


class Lowering:
    """The layers of the nodes so far. The last layer that made a value may take in the operation that reads it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.node_shapes = shapes(graph)
        self.readers = Counter(name for node in graph.nodes for name in node.inputs)
        self.layers: list[Layer | None] = []  # None: another one took it in
        self.made: dict[str, list[int]] = defaultdict(list)  # of each value, the places of the layers that make it
        first = tuple(graph.input_shape)
        if len(first) not in (1, 3):
            raise GraphError(
                f"The runtime takes images (channels, height, width) or vectors; this network takes {first}."
            )
        self.same = {INPUT: INPUT}  # where a node's value really lies
        self.shapes = {INPUT: first if len(first) == 3 else (first[0], 1, 1)}
        self.vectors = {INPUT} if len(first) == 1 else set()
        self.joined: set[str] = set()  # values that several layers make, each some of the channels

    def network(self) -> Network:
        """What was built."""
        output = self.same[self.graph.output]
        layers = tuple(layer for layer in self.layers if layer is not None)
        if not layers or output == INPUT:  # a network of a flatten alone
            layers = (self.copy(INPUT, "copy"),)
            self.shapes["copy"], output = self.shapes[INPUT], "copy"
            if INPUT in self.vectors:
                self.vectors.add("copy")
        there = {INPUT, *(name for layer in layers for name in (layer.input, layer.output, layer.residual))}
        shapes = {name: shape for name, shape in self.shapes.items() if name in there}  # others lie in no memory
        return Network(layers, shapes, frozenset(self.vectors), output, self.node_shapes[self.graph.output])

    def emit(self, node: Node, layer: Layer) -> None:
        """Add the last layer of a node."""
        self.append(layer)
        self.add_value(node)

    def append(self, layer: Layer) -> None:
        """Add a layer, perhaps one of several that make one value."""
        self.made[layer.output].append(len(self.layers))
        self.layers.append(layer)

    def _makers(self, name: str) -> list[Layer]:
        """The layers that make a value."""
        return [layer for place in self.made[name] if (layer := self.layers[place]) is not None]

    def rename(self, name: str, change: Callable[[Layer], Layer]) -> None:
        """Change the layers that make a value, so that they make another one."""
        changed = [change(layer) for layer in self._makers(name)]
        for place, layer in zip(self.made.pop(name), changed, strict=True):
            self.layers[place] = layer
            self.made[layer.output].append(place)

    def add_value(self, node: Node) -> None:
        """Give the node's output its own place in memory."""
        shape = self.node_shapes[node.output]
        self.shapes[node.output] = shape if len(shape) == 3 else (shape[0], 1, 1)
        self.same[node.output] = node.output
        if len(shape) == 1:
            self.vectors.add(node.output)

    def positions(self, value: str, row: Array, feature: Array, weight: Array) -> Entries:
        """Weights of a linear layer, as entries that read positions of a value."""
        _, height, width = self.shapes[value]
        return Entries(row, feature // (height * width), feature // width % height, feature % width, weight)

    def change(self, node: Node, change: Callable[[Layer], Layer], *, sums: bool) -> None:
        """Change the layers that make a value: one layer, or several that each make some of its channels."""
        name = node.inputs[0]
        joined = name in self.joined and self.readers[name] == 1
        if not joined or any(layer.activated for layer in self._makers(name)):
            self.close(node, change(self.open(node, 0, sums=sums)))
            return
        self.rename(name, lambda layer: replace(change(layer), output=node.output))
        self.joined.add(node.output)
        self.add_value(node)

    def is_movable(self, name: str) -> bool:
        """Whether one layer makes a value and may write it elsewhere."""
        layer = self._only_maker(name)
        return layer is not None and layer.entries is not None and layer.residual is None and layer.plane is None

    def can_take(self, name: str, *, sums: bool) -> bool:
        """Whether the layer that makes a value may do more to it; with `sums` also after a residual sum."""
        layer = self._only_maker(name)
        if layer is None or layer.entries is None or layer.activated:
            return False
        return sums or layer.residual is None

    def _only_maker(self, name: str) -> Layer | None:
        """The layer that alone makes a value, if one node alone reads it."""
        if len(self.made[name]) != 1 or self.readers[name] != 1 or self.same[name] != name:
            return None
        (layer,) = self._makers(name)
        return layer

    def materialized(self, name: str) -> str:
        """Where a value lies in its own shape. A flattened view is copied first."""
        value = self.same[name]
        if len(self.node_shapes[name]) == 1 and value not in self.vectors:
            copy = f"{name} flat"
            self.append(self.copy(name, copy))
            self.shapes[copy] = (*self.node_shapes[name], 1, 1)  # type: ignore[assignment]
            self.vectors.add(copy)
            self.same[name] = value = copy
        return value

    def open(self, node: Node, place: int, *, sums: bool) -> Layer:
        """The layer that takes a node in, removed from the list; a copying layer where there is none."""
        name = node.inputs[place]
        if not self.can_take(name, sums=sums):
            return self.copy(name, node.output)
        (place,) = self.made.pop(name)
        layer, self.layers[place] = self.layers[place], None
        assert layer is not None
        return layer

    def close(self, node: Node, layer: Layer) -> None:
        """Add a layer that `open` gave, which now makes the node's output."""
        self.emit(node, replace(layer, output=node.output))

    def copy(self, name: str, output: str) -> Layer:
        """A layer that copies its input: the start of ReLUs, sums and norms that no layer before can take in."""
        value, shape = self.same.get(name, name), self.node_shapes[name]
        count = np.arange(shape[0], dtype=np.int32)
        if len(shape) == 3:
            zero = np.zeros_like(count)
            entries = Entries(count, count, zero, zero, np.ones(len(count)))
        else:
            entries = self.positions(value, count, count, np.ones(len(count)))
        kind: Kind = "conv" if len(shape) == 3 else "dot"
        return Layer(kind, value, output, count, entries, np.zeros(len(count)))

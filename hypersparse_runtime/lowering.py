"""From a `Graph` to layers: batch norms folded, and biases, planes, sums and ReLUs made part of the layer before them.

Every sum of products, be it a convolution, a linear layer, a batch norm that stands alone or an average pooling,
becomes the same thing here: a list of entries (row, channel, tap, weight).
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, bounds, pair, shapes
from hypersparse_runtime.ir import Array, Entries, Kind, Layer, Network
from hypersparse_runtime.limits import MOST_JOINED


def dense_products(graph: Graph) -> int:
    """Multiplications for one image if no weight were zero."""
    sizes, total = shapes(graph), 0
    for node in graph.nodes:
        if node.op in ("conv", "linear"):
            total += _weight(graph, node).size * prod(sizes[node.output][1:])
    return total


def layers_of(graph: Graph) -> Network:
    """The layers of a graph; raises GraphError for what only PyTorch can run."""
    builder = _Builder(graph)
    for node in graph.nodes:
        if node.opaque:
            raise GraphError(f"The runtime has no operation `{node.op}` (`{node.output}`); only PyTorch can run it.")
        builder.add(node)
    return builder.network()


class _Builder:
    """Goes through the nodes once; the last layer that made a value may take in what follows."""

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

    def add(self, node: Node) -> None:
        """Make layers of a node."""
        getattr(self, f"_{node.op}")(node)

    def network(self) -> Network:
        """What was built."""
        output = self.same[self.graph.output]
        layers = tuple(layer for layer in self.layers if layer is not None)
        if not layers or output == INPUT:  # a network of a flatten alone
            layers = (self._copy(INPUT, "copy"),)
            self.shapes["copy"], output = self.shapes[INPUT], "copy"
            if INPUT in self.vectors:
                self.vectors.add("copy")
        there = {INPUT, *(name for layer in layers for name in (layer.input, layer.output, layer.residual))}
        shapes = {name: shape for name, shape in self.shapes.items() if name in there}  # others lie in no memory
        return Network(layers, shapes, frozenset(self.vectors), output, self.node_shapes[self.graph.output])

    def _emit(self, layer: Layer, node: Node, *, vector: bool) -> None:
        self._append(layer)
        self._name(node, vector=vector)

    def _append(self, layer: Layer) -> None:
        self.made[layer.output].append(len(self.layers))
        self.layers.append(layer)

    def _makers(self, name: str) -> list[Layer]:
        """The layers that make a value."""
        return [layer for place in self.made[name] if (layer := self.layers[place]) is not None]

    def _rename(self, name: str, change: Callable[[Layer], Layer]) -> None:
        """Change the layers that make a value, so that they make another one."""
        changed = [change(layer) for layer in self._makers(name)]
        for place, layer in zip(self.made.pop(name), changed, strict=True):
            self.layers[place] = layer
            self.made[layer.output].append(place)

    def _name(self, node: Node, *, vector: bool) -> None:
        """A value that lies where its own name says."""
        shape = self.node_shapes[node.output]
        self.shapes[node.output] = shape if len(shape) == 3 else (shape[0], 1, 1)
        self.same[node.output] = node.output
        if vector:
            self.vectors.add(node.output)

    def _conv(self, node: Node) -> None:
        weight = _weight(self.graph, node)
        groups = int(node.options["groups"])
        (row, channel, y, x), values = _kept(weight)
        entries = Entries(row, channel + row // (len(weight) // groups) * weight.shape[1], y, x, values)
        self._emit(self._sum(node, "conv", entries, weight), node, vector=False)

    def _linear(self, node: Node) -> None:
        weight = _weight(self.graph, node)
        (row, feature), values = _kept(weight)
        entries = self._positions(self.same[node.inputs[0]], row, feature, values)
        self._emit(self._sum(node, "dot", entries, weight), node, vector=True)

    def _sum(self, node: Node, kind: Kind, entries: Entries, weight: Array) -> Layer:
        bias = self.graph.array(node, "bias")
        given = np.zeros(len(weight)) if bias is None else bias.astype(np.float64)
        layer = Layer(kind, self.same[node.inputs[0]], node.output, np.arange(len(weight)), entries, given)
        if kind == "dot":
            return layer
        stride, padding, dilation = (pair(node, name, least=0) for name in ("stride", "padding", "dilation"))
        kernel = (weight.shape[2], weight.shape[3])
        return replace(layer, kernel=kernel, stride=stride, padding=padding, dilation=dilation)

    def _positions(self, value: str, row: Array, feature: Array, weight: Array) -> Entries:
        _, height, width = self.shapes[value]
        return Entries(row, feature // (height * width), feature // width % height, feature % width, weight)

    def _avg_pool(self, node: Node) -> None:
        kernel, padding = pair(node, "kernel", least=1), pair(node, "padding", least=0)
        value = self.same[node.inputs[0]]
        channels, *sides = self.shapes[value]
        if kernel == tuple(sides) and padding == (0, 0):
            self._mean(node)
            return
        row, y, x = (part.ravel().astype(np.int32) for part in np.indices((channels, *kernel)))
        entries = Entries(row, row, y, x, np.full(len(row), 1 / prod(kernel)))
        layer = Layer("conv", value, node.output, np.arange(channels), entries, np.zeros(channels), kernel=kernel)
        self._emit(replace(layer, stride=pair(node, "stride", least=1), padding=padding), node, vector=False)

    def _mean(self, node: Node) -> None:
        value = self.same[node.inputs[0]]
        layer = Layer("mean", value, node.output, np.arange(self.shapes[value][0]))
        self._emit(layer, node, vector=len(self.node_shapes[node.output]) == 1)

    def _max_pool(self, node: Node) -> None:
        value = self.same[node.inputs[0]]
        kernel, stride, padding = (pair(node, name, least=0) for name in ("kernel", "stride", "padding"))
        layer = Layer("max_pool", value, node.output, np.arange(self.shapes[value][0]), kernel=kernel)
        layer = replace(layer, stride=stride, padding=padding)
        self._emit(layer, node, vector=False)

    def _softmax(self, node: Node) -> None:
        self._shares(node, "softmax")

    def _log_softmax(self, node: Node) -> None:
        self._shares(node, "log_softmax")

    def _shares(self, node: Node, kind: Kind) -> None:
        layer = Layer(
            kind, self._materialized(node.inputs[0]), node.output, np.arange(self.node_shapes[node.output][0])
        )
        self._emit(layer, node, vector=True)

    def _flatten(self, node: Node) -> None:
        self.same[node.output] = self.same[node.inputs[0]]
        self.readers[node.inputs[0]] += self.readers[node.output]  # whoever reads the one reads the other

    def _batch_norm(self, node: Node) -> None:
        parts = [self.graph.array(node, role) for role in ("weight", "bias", "mean", "variance")]
        weight, bias, mean, variance = (part.astype(np.float64) for part in parts if part is not None)
        scale = weight / np.sqrt(variance + float(node.options["epsilon"]))

        def folded(layer: Layer) -> Layer:
            assert layer.entries is not None
            assert layer.bias is not None
            plane = None if layer.plane is None else layer.plane * scale.reshape(-1, *[1] * (layer.plane.ndim - 1))
            shifted = (layer.bias - mean) * scale + bias
            return replace(layer, entries=layer.entries.scaled(scale), bias=shifted, plane=plane)

        self._change(node, folded, sums=False)

    def _relu(self, node: Node) -> None:
        self._change(node, lambda layer: replace(layer, relu=True), sums=True)

    def _clip(self, node: Node) -> None:
        between = bounds(node)
        self._change(node, lambda layer: replace(layer, clip=between), sums=True)

    def _change(self, node: Node, change: Callable[[Layer], Layer], *, sums: bool) -> None:
        """Do more to a value where it is made, be it by one layer or by several that each make some of its channels."""
        name = node.inputs[0]
        joined = name in self.joined and self.readers[name] == 1
        if not joined or any(layer.activated for layer in self._makers(name)):
            self._close(node, change(self._open(node, 0, sums=sums)))
            return
        self._rename(name, lambda layer: replace(change(layer), output=node.output))
        self.joined.add(node.output)
        self._name(node, vector=len(self.node_shapes[node.output]) == 1)

    def _concat(self, node: Node) -> None:
        channels = self.node_shapes[node.output][0]
        none, first = np.zeros(channels), 0
        for name in node.inputs:
            if len(node.inputs) * channels <= MOST_JOINED and self._is_movable(name):
                self._rename(name, partial(_moved, output=node.output, first=first, bias=none.copy()))
            else:
                self._append(_moved(self._copy(name, node.output), node.output, first, none))
            first += self.node_shapes[name][0]
        if len(node.inputs) * channels <= MOST_JOINED:
            self.joined.add(node.output)
        self._name(node, vector=len(self.node_shapes[node.output]) == 1)

    def _is_movable(self, name: str) -> bool:
        """Whether a layer alone makes a value and may write it elsewhere, as nobody else reads it."""
        if len(self.made[name]) != 1 or self.readers[name] != 1 or self.same[name] != name:
            return False
        (layer,) = self._makers(name)
        return layer.entries is not None and layer.residual is None and layer.plane is None

    def _plane(self, node: Node) -> None:
        layer = self._open(node, 0, sums=True)
        value = self.graph.array(node, "value")
        assert value is not None
        plane = value.astype(np.float64)
        self._close(node, replace(layer, plane=plane if layer.plane is None else layer.plane + plane))

    def _add(self, node: Node) -> None:
        first, second = node.inputs
        place = 1 if self._can_take(second, sums=False) or not self._can_take(first, sums=False) else 0
        layer = self._open(node, place, sums=False)
        other = self._materialized(node.inputs[1 - place])
        self._close(node, replace(layer, residual=other))

    def _materialized(self, name: str) -> str:
        """Where a value lies in its own shape; one that is another one flattened is copied."""
        value = self.same[name]
        if len(self.node_shapes[name]) == 1 and value not in self.vectors:
            copy = f"{name} flat"
            self._append(self._copy(name, copy))
            self.shapes[copy] = (*self.node_shapes[name], 1, 1)  # type: ignore[assignment]
            self.vectors.add(copy)
            self.same[name] = value = copy
        return value

    def _can_take(self, name: str, *, sums: bool) -> bool:
        """Whether the layer that made a value may do more to it: nobody else reads it, and the order is kept."""
        if len(self.made[name]) != 1 or self.readers[name] != 1 or self.same[name] != name:
            return False
        (layer,) = self._makers(name)
        return layer.entries is not None and not layer.activated and (sums or layer.residual is None)

    def _open(self, node: Node, place: int, *, sums: bool) -> Layer:
        """The layer to take a node in, removed from the list; one that copies where there is none."""
        name = node.inputs[place]
        if not self._can_take(name, sums=sums):
            return self._copy(name, node.output)
        (place,) = self.made.pop(name)
        layer, self.layers[place] = self.layers[place], None
        assert layer is not None
        return layer

    def _close(self, node: Node, layer: Layer) -> None:
        flat = len(self.node_shapes[node.output]) == 1
        self._emit(replace(layer, output=node.output), node, vector=flat)

    def _copy(self, name: str, output: str) -> Layer:
        """A layer that gives its input back: ReLUs, sums and norms that stand alone are made of it."""
        value, shape = self.same.get(name, name), self.node_shapes[name]
        count = np.arange(shape[0], dtype=np.int32)
        if len(shape) == 3:
            zero = np.zeros_like(count)
            entries = Entries(count, count, zero, zero, np.ones(len(count)))
        else:
            entries = self._positions(value, count, count, np.ones(len(count)))
        kind: Kind = "conv" if len(shape) == 3 else "dot"
        return Layer(kind, value, output, count, entries, np.zeros(len(count)))


def _moved(layer: Layer, output: str, first: int, bias: Array) -> Layer:
    """The layer with its rows from `first` on in a larger value, whose biases are given."""
    assert layer.entries is not None
    assert layer.bias is not None
    if layer.bias.any():
        bias[first : first + len(layer.bias)] = layer.bias
    entries = replace(layer.entries, row=layer.entries.row + np.int32(first))
    return replace(layer, output=output, rows=layer.rows + first, entries=entries, bias=bias)


def _weight(graph: Graph, node: Node) -> Array:
    weight = graph.array(node, "weight")
    assert weight is not None  # shapes() has looked
    return weight


def _kept(weight: Array) -> tuple[list[Array], Array]:
    """Where a weight is not zero, and what it is there; no copy of the whole is made, which may be large."""
    at = np.flatnonzero(weight != 0)
    places = [part.astype(np.int32) for part in np.unravel_index(at, weight.shape)]
    return places, weight.reshape(-1)[at].astype(np.float64)

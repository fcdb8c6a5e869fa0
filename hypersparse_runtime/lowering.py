"""Lower a `Graph` to layers: fold batch norms, and fuse biases, planes, sums and ReLUs into the layer before them.

Each operation adds its own layers by `Operation.lower`. Every sum of products becomes a list of entries (row, channel,
tap, weight). That holds for convolutions, linear layers, average pooling and batch norms that cannot be folded.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from hypersparse_runtime.graph import INPUT, Graph, Node, Shape, shapes
from hypersparse_runtime.sparse_layers import Array, Entries, Layer, Network, ValueStep
from hypersparse_runtime.value_steps.elements import CopyStep
from hypersparse_runtime.views import View

Sides = tuple[int, int, int]


def dense_products(graph: Graph) -> int:
    """The multiplications for one image if no weight were zero."""
    sizes, weighted = shapes(graph), (node for node in graph.nodes if node.weighted)
    return sum(graph.tensors[node.tensors["weight"]].size * node.operation.uses(node, sizes) for node in weighted)


def layers_of(graph: Graph) -> Network:
    """The layers of a graph; raises GraphError for operations that only PyTorch can run."""
    lowering = Lowering(graph)
    for node in graph.nodes:
        if not node.operation.takes_views:
            for name in node.inputs:
                lowering.make_plain(name)
        node.operation.lower(lowering, node)
    return lowering.network()


class Lowering:
    """The layers of the nodes so far. The operation that reads a value may be fused into the layer that made it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.node_shapes = shapes(graph)
        self.readers = Counter(name for node in graph.nodes for name in node.inputs)
        self.layers: list[Layer | None] = []  # None: another one took it in
        self.made: dict[str, list[int]] = defaultdict(list)  # of each value, the places of the layers that make it
        first = tuple(graph.input_shape)
        self.same = {INPUT: INPUT}  # where a node's value really lies
        self.views: dict[str, View] = {}  # of values that lie otherwise than their shape says
        self.constants: dict[str, Array] = {}  # values that are the same for every input, not yet in memory
        self._arranged: dict[tuple[View, Sides], str] = {}
        self.shapes = {INPUT: sides_of(first)}
        self.vectors = {INPUT} if len(first) == 1 else set()
        self.joined: set[str] = set()  # values that several layers make, each some of the channels

    def network(self) -> Network:
        """The lowered network."""
        self.make_plain(self.graph.output)
        output = self.same[self.graph.output]
        layers = tuple(layer for layer in self.layers if layer is not None)
        if not layers or output == INPUT:  # a network of a flatten alone
            layers = (self.copy(INPUT, "copy"),)
            self.shapes["copy"], output = self.shapes[INPUT], "copy"
            if INPUT in self.vectors:
                self.vectors.add("copy")
        there = {INPUT, *(name for layer in layers for name in (layer.output, *layer.reads))}
        shapes = {name: shape for name, shape in self.shapes.items() if name in there}  # others lie in no memory
        return Network(layers, shapes, frozenset(self.vectors), output, self.node_shapes[self.graph.output])

    def emit(self, node: Node, layer: Layer) -> None:
        """Append the last layer of a node."""
        self.append(layer)
        self.add_value(node)

    def append(self, layer: Layer) -> None:
        """Append a layer, perhaps one of several that make one value."""
        self.made[layer.output].append(len(self.layers))
        self.layers.append(layer)

    def _makers(self, name: str) -> list[Layer]:
        """The layers that make a value."""
        return [layer for place in self.made[name] if (layer := self.layers[place]) is not None]

    def rename(self, name: str, change: Callable[[Layer], Layer]) -> None:
        """Let the layers that make a value write to another one."""
        changed = [change(layer) for layer in self._makers(name)]
        for place, layer in zip(self.made.pop(name), changed, strict=True):
            self.layers[place] = layer
            self.made[layer.output].append(place)

    def add_value(self, node: Node) -> None:
        """Give the node's output its own place in memory."""
        shape = self.node_shapes[node.output]
        self.shapes[node.output] = sides_of(shape)
        self.same[node.output] = node.output
        if len(shape) == 1:
            self.vectors.add(node.output)

    def view(self, name: str) -> View:
        """The view of a node's value over a value of the engine."""
        if name in self.constants:
            self._write_constant(name)
        if name in self.views:
            return self.views[name]
        return View.whole(self.same[name], self.node_shapes[name])

    def _write_constant(self, name: str) -> None:
        array, shape = self.constants.pop(name), sides_of(self.node_shapes[name])
        step = CopyStep(np.arange(array.size), array.reshape(-1).astype(np.float32))
        self._append_value(_layer(step, INPUT, name, shape), shape)
        self.same[name] = name

    def _append_value(self, layer: Layer, shape: Sides) -> None:
        self.append(layer)
        self.shapes[layer.output] = shape
        if shape[1:] == (1, 1) and layer.kind != "conv":  # a convolution writes whole vectors, over what is beside
            self.vectors.add(layer.output)

    def lay(self, node: Node, view: View) -> None:
        """Make a node's value a view of an existing value."""
        self.views[node.output] = view

    def emit_step(self, node: Node, step: ValueStep, value: str, shape: Sides, view: View | None = None) -> None:
        """Append the step that makes a node's value with these sides of another one, seen through `view`."""
        self.emit_whole(node, _layer(step, value, node.output, shape), shape, view)

    def emit_whole(self, node: Node, layer: Layer, shape: Sides, view: View | None = None) -> None:
        """Append the layer that makes a node's value with these sides, seen through `view`."""
        self._append_value(layer, shape)
        self.same[node.output] = node.output
        if view is not None and not self._is_plain(view, self.node_shapes[node.output]):
            self.views[node.output] = view

    def _is_plain(self, view: View, shape: Shape) -> bool:
        sides = self.shapes[view.value]
        return view.is_whole(sides) and (len(shape) == 1 or sides == sides_of(shape))

    def make_plain(self, name: str) -> None:
        """Copy a node's value to its own shape, (channels, rows, columns), or to consecutive elements."""
        view, shape = self.view(name), self.node_shapes[name]
        if name not in self.views:
            return
        plain = self._is_plain(view, shape)
        self.same[name] = view.value if plain else self.arranged(view, sides_of(shape))
        del self.views[name]

    def arranged(self, view: View, sides: Sides) -> str:
        """A value with the elements of a view in their order."""
        key = view, sides
        if key not in self._arranged:
            name = f"{view.value} copy {len(self._arranged)}"
            step = CopyStep(view.indices().reshape(-1).astype(np.int32))
            self._append_value(_layer(step, view.value, name, sides), sides)
            self._arranged[key] = name
        return self._arranged[key]

    def gathered(self, node: Node, value: str, places: Array) -> None:
        """Append a layer that gathers elements of a value into a node's output."""
        sides = sides_of(self.node_shapes[node.output])
        self.emit_step(node, CopyStep(places.reshape(-1).astype(np.int32)), value, sides)

    def is_laid(self, name: str) -> bool:
        """Whether a value is a view of another layout, or a constant that is not in memory yet."""
        return name in self.views or name in self.constants

    def covering(self, name: str) -> View:
        """The view of a node's value, over a value without other elements."""
        view, shape = self.view(name), self.node_shapes[name]
        if view.covers(self.shapes[view.value]):
            return view
        return View.whole(self.arranged(view, sides_of(shape)), shape)

    def planes_last(self, name: str, *, groups: bool = True) -> View:
        """The view with its last axis over consecutive channels; without `groups`, over all channels."""
        view = self.covering(name)
        count, (channels, *sides) = view.shape[-1], self.shapes[view.value]
        last = (((count, prod(sides)),),) if count > 1 else ((),)
        if view.merged()[-1:] == last and (channels == count or (groups and count > 1)):
            return view
        shape, axes = view.shape, len(view.axes)
        order = (axes - 1, *range(axes - 1))
        value = self.arranged(view.permuted(order), (count, 1, prod(shape[:-1])))
        back = (*range(1, axes), 0)
        return View.whole(value, (count, *shape[:-1])).permuted(back)

    def positions(self, value: str, row: Array, feature: Array, weight: Array) -> Entries:
        """The weights of a linear layer as entries that read positions of a value."""
        _, height, width = self.shapes[value]
        return Entries(row, feature // (height * width), feature // width % height, feature % width, weight)

    def change(self, node: Node, change: Callable[[Layer], Layer], *, sums: bool) -> None:
        """Change the layers that make a value: one layer, or several that each make some of its channels."""
        name = node.inputs[0]
        self.view(name)  # a constant is written
        if name in self.views:
            self._change_view(node, change, sums=sums)
            return
        joined = name in self.joined and self.readers[name] == 1
        if not joined or any(layer.activated for layer in self._makers(name)):
            self.close(node, change(self.open(node, 0, sums=sums)))
            return
        self.rename(name, lambda layer: replace(change(layer), output=node.output))
        self.joined.add(node.output)
        self.add_value(node)

    def _change_view(self, node: Node, change: Callable[[Layer], Layer], *, sums: bool) -> None:
        """The same for a value that is a view."""
        name = node.inputs[0]
        if not self.can_take(name, sums=sums):
            self.make_plain(name)
            self.close(node, change(self.copy(name, node.output)))
            return
        layer, view = replace(change(self.open(node, 0, sums=sums)), output=node.output), self.views[name]
        self.emit_whole(node, layer, self.shapes[name], view.of(node.output))

    def add_values(self, node: Node, *, first: str, second: str) -> bool:
        """Fuse the sum of two values into the layer that makes the second, if both have the same layout."""
        if self.constants.keys() & {first, second} or not self.can_take(second, sums=False):
            return False
        one, two = self.view(first), self.view(second)
        sides = self.shapes[two.value]
        alike = one.merged() == two.merged() and one.first == 0 and self.shapes[one.value] == sides
        if not alike or (one.value in self.vectors) != (two.value in self.vectors):
            return False
        layer = replace(self.open(node, node.inputs.index(second), sums=False), output=node.output, residual=one.value)
        self.emit_whole(node, layer, sides, two.of(node.output))
        return True

    def is_movable(self, name: str) -> bool:
        """Whether exactly one layer makes a value and may write it elsewhere."""
        layer = self._only_maker(name)
        return layer is not None and layer.entries is not None and layer.residual is None and layer.plane is None

    def can_take(self, name: str, *, sums: bool) -> bool:
        """Whether an operation can be fused into the layer of a value; with `sums`, also after a residual sum."""
        layer = self._only_maker(name)
        if layer is None or layer.entries is None or layer.activated:
            return False
        return sums or layer.residual is None

    def _only_maker(self, name: str) -> Layer | None:
        """The only layer that makes a value, if exactly one node reads it."""
        if len(self.made[name]) != 1 or self.readers[name] != 1 or self.same[name] != name:
            return None
        (layer,) = self._makers(name)
        return layer

    def materialized(self, name: str) -> str:
        """The value of a node in its own shape. A flattened view is copied first."""
        value = self.same[name]
        if len(self.node_shapes[name]) == 1 and value not in self.vectors:
            copy = f"{name} flat"
            self.append(self.copy(name, copy))
            self.shapes[copy] = (*self.node_shapes[name], 1, 1)  # type: ignore[assignment]
            self.vectors.add(copy)
            self.same[name] = value = copy
        return value

    def open(self, node: Node, place: int, *, sums: bool) -> Layer:
        """The layer into which a node is fused, removed from the list; a copying layer if there is none."""
        name = node.inputs[place]
        if not self.can_take(name, sums=sums):
            return self.copy(name, node.output)
        (place,) = self.made.pop(name)
        layer, self.layers[place] = self.layers[place], None
        assert layer is not None
        return layer

    def close(self, node: Node, layer: Layer) -> None:
        """Append a layer from `open`, which now makes the node's output."""
        self.emit(node, replace(layer, output=node.output))

    def copy(self, name: str, output: str) -> Layer:
        """A layer that copies its input, into which ReLUs, sums and norms can be fused."""
        value, shape = self.same.get(name, name), self.node_shapes[name]
        count = np.arange(shape[0], dtype=np.int32)
        if len(shape) > 1:
            zero = np.zeros_like(count)
            entries = Entries(count, count, zero, zero, np.ones(len(count)))
        else:
            entries = self.positions(value, count, count, np.ones(len(count)))
        return Layer("conv" if len(shape) > 1 else "dot", value, output, count, entries, np.zeros(len(count)))


def _layer(step: ValueStep, value: str, output: str, shape: Sides) -> Layer:
    return Layer(step.kind, value, output, np.arange(shape[0]), work=step)


def sides_of(shape: Shape) -> Sides:
    """The channels, rows and columns of a value of this shape.

    >>> sides_of((5,)), sides_of((4, 3)), sides_of((3, 8, 9)), sides_of((2, 3, 4, 5))
    ((5, 1, 1), (4, 1, 3), (3, 8, 9), (2, 1, 60))
    """
    if len(shape) == 3:
        return (shape[0], shape[1], shape[2])
    return (shape[0], 1, prod(shape[1:]))

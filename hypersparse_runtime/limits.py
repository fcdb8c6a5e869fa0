"""Limits on the network in a file: a small file must not take all memory of a machine.

The limits hold for writing too, so that every written file can be read. The cost of loading is estimated from the
operations and the sizes of their arrays, before anything is allocated. Larger files have larger limits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from hypersparse_runtime.container import FileError
from hypersparse_runtime.graph import Graph, GraphError, Node, Shape, shapes

MOST_NODES = 4096  # ResNet-110 has 388
MOST_INPUTS = 1024  # of a concatenation; DenseNet-264 has 65
MOST_OPTION = 2**31 - 1  # of a stride, a dilation and the like: kernels count in 32 bits
MOST_CHANNELS = 2**19  # of a value; an image of 224x224 as a vector has 1.5e5
MOST_OF_A_VALUE = 2**24  # elements for one image, with zeros around them; 64 MB
MOST_OF_ALL_VALUES = 2**27  # ResNet-50 has 3.5e7 for an image of 224x224
MOST_PRODUCTS = 2**37  # for one image, with pooling windows; VGG-19 has 2e10 for one of 224x224
MOST_SECONDS = 1.6  # of loading a file of at most SMALL bytes, by the estimate; DenseNet-264 at 99.8 % takes 1.5
MOST_MEMORY = 3 * 2**28  # bytes, the same, without the workspace; VGG-19 for images of 224x224 takes 7.1e8
MOST_TIMED = 2**31  # products of a network that is run while it is loaded, to choose its steps
SMALL = 2**20
MAX_JOINED = 2**20  # inputs times channels of a concatenation that is written in place; DenseNet-121 has 34,000


def check_sizes(graph: Graph, *, kept: Mapping[str, int] | None = None, size: int | None = None) -> None:
    """Raise FileError for a network that is inconsistent or too large.

    `kept` counts the non-zero elements of arrays if known; the arrays are then not read. `size` is the size of the file
    in bytes, which bounds the cost of loading too.
    """
    if len(graph.nodes) > MOST_NODES:
        raise FileError(f"it has {len(graph.nodes)} operations, and {MOST_NODES} are the most")
    for node in graph.nodes:
        if len(node.inputs) > MOST_INPUTS and not node.opaque:
            raise FileError(f"`{node.output}` reads {len(node.inputs)} values, and {MOST_INPUTS} are the most")
        _check_options(node)
    total = 0
    for name, channels, elements in _sizes(graph):
        if channels > MOST_CHANNELS:
            raise FileError(f"its value `{name}` has {channels} channels, and {MOST_CHANNELS} are the most")
        if elements > MOST_OF_A_VALUE:
            padded = f"{elements} elements with what pads it"
            raise FileError(f"its value `{name}` has {padded}, and {MOST_OF_A_VALUE} are the most")
        total += elements
    if total > MOST_OF_ALL_VALUES:
        raise FileError(f"its values have {total} elements together, and {MOST_OF_ALL_VALUES} are the most")
    _check_work(estimate(graph, kept), size)


def _check_work(work: "Work", size: int | None) -> None:
    if work.products > MOST_PRODUCTS:
        raise FileError(f"it needs {work.products} products for one image, and {MOST_PRODUCTS} are the most")
    if size is None:
        return
    share = max(1, size / SMALL)
    if work.seconds > MOST_SECONDS * share:
        most = f"{MOST_SECONDS * share:.1f} are the most for {size} bytes"
        raise FileError(f"loading it would take {work.seconds:.1f} seconds, and {most}")
    if work.bytes > MOST_MEMORY * share:
        most = f"{int(MOST_MEMORY * share)} are the most for {size} bytes"
        raise FileError(f"loading it would take {work.bytes} bytes of memory, and {most}")


@dataclass
class Work:
    """The cost of loading and running a network, counted from its operations."""

    products: int = 0  # for one image
    layers: int = 0  # that become sums of products, in up to three steps of a program
    copies: int = 0  # steps that copy, or take the place of a concatenation
    entries: int = 0  # weights that are not zero, and what copies and pools are made of
    weights: int = 0  # that are searched for those
    channels: int = 0
    planes: int = 0  # elements that are added position by position
    moved: int = 0  # elements whose places are listed one by one
    most_moved: int = 0  # of one layer
    joined: int = 0  # layers that write parts of one value, times the operations on it
    elements: int = 0  # of values
    arrays: int = 0  # bytes
    largest: int = 0  # elements of an array, whose mask is made

    @property
    def seconds(self) -> float:
        """Seconds on one core: an upper estimate, measured on an AMD EPYC with AVX-512."""
        steps = 1.2e-3 * self.layers + 1e-4 * self.copies + 2e-10 * min(self.products, MOST_TIMED)
        parts = 5e-7 * self.entries + 2e-9 * self.weights + 2e-7 * self.channels + 4e-8 * self.planes
        parts += 4e-8 * self.moved
        return steps + parts + 3e-9 * self.joined + 2e-9 * self.elements + 1e-9 * self.arrays

    @property
    def bytes(self) -> int:
        """The largest use of memory, besides the workspace."""
        tables = (
            250 * self.entries
            + 100 * self.channels
            + 40 * self.planes
            + 8 * self.joined
            + 8 * self.moved
            + 30 * self.most_moved
        )
        return self.arrays + self.largest + tables


def estimate(graph: Graph, kept: Mapping[str, int] | None = None) -> Work:
    """The cost of loading, from sizes alone, for a consistent graph."""
    counter = WorkCounter(graph, kept)
    for node in graph.nodes:
        counter.count_moved(node)
        counter.work.channels += 0 if node.opaque else prod(counter.shapes[node.output][:1])
        node.operation.count_work(counter, node)
    return counter.work


@dataclass
class _Value:
    """The operations that can still be fused into the layer that makes a value."""

    scales: bool = False
    adds: bool = False
    parts: int = 1  # layers that make it


@dataclass
class WorkCounter:
    """The cost of the operations so far; each adds its own by `Operation.count_work`."""

    graph: Graph
    kept: Mapping[str, int] | None
    work: Work = field(default_factory=Work)
    _values: dict[str, _Value] = field(default_factory=dict)
    _laid: set[str] = field(default_factory=set)  # values that are others with other axes

    def __post_init__(self) -> None:
        self.shapes = shapes(self.graph)
        self._readers = Counter(name for node in self.graph.nodes for name in node.inputs)
        arrays = self.graph.tensors.values()
        self.work.arrays = sum(array.size * array.dtype.itemsize for array in arrays)
        self.work.largest = max((array.size for array in arrays), default=0)
        self.work.elements = sum(prod(shape) for shape in self.shapes.values())

    def add_weighted(self, node: Node) -> None:
        """Add a layer with the array `weight`."""
        name = node.tensors["weight"]
        array = self.graph.tensors[name]
        kept = self.kept_of(name)
        self._add_layer(node, kept)
        self.work.weights += array.size
        self.work.products += kept * node.operation.uses(node, self.shapes)
        if node.options.get("stride", (1, 1)) != (1, 1):  # phases are copied for it
            self.work.layers += 1
            self.work.channels += kept

    def add_pool(self, node: Node, window: int, *, weighted: bool = False) -> None:
        """Add pooling with windows of this size; a `weighted` one becomes a layer with a weight for each position."""
        self.work.products += prod(self.shapes[node.output]) * window
        if weighted:
            self._add_layer(node, self.shapes[node.inputs[0]][0] * window)
        else:
            self.work.layers += 1

    def add_change(
        self, node: Node, *, scales: bool = False, adds: bool = False, joined: bool = False, ends: bool = False
    ) -> None:
        """Add an operation that is fused into the previous layer, or a layer that copies.

        `scales` multiplies and adds, `adds` adds another value; both need a layer without fused operations. With
        `joined`, each part of a concatenation is changed. After an operation that `ends`, nothing is fused.
        """
        parts = self._before(node)[0].parts if joined and self._is_only_reader(node.inputs[0]) else 1
        self._take_in(node, scales=scales or adds)
        self._add_parts(node, parts)
        self._values[node.output] = _Value(scales, not ends, parts)

    def add_plane(self, node: Node) -> None:
        """Add an array that is added position by position."""
        self.work.planes += prod(self.shapes[node.output])
        self._take_in(node, scales=False)
        self._values[node.output] = _Value(self._before(node)[0].scales, adds=True)

    def add_whole(self, node: Node, *, products: int = 0, moved: int = 0, layers: int = 1) -> None:
        """Add a layer that reads and makes whole values; `moved` elements may be copied one by one, besides views."""
        self.work.layers += layers
        self.work.products += max(products, prod(self.shapes[node.output]))
        self._move(moved)

    def add_view(self, node: Node) -> None:
        """Add a view of a value, which a reader may have to copy."""
        self._laid.add(node.output)

    def count_moved(self, node: Node) -> None:
        """Count the inputs that a node may have to copy."""
        for name in node.inputs if not node.operation.lays_axes else ():
            if name in self._laid:
                self.work.layers += 1
                self._move(prod(self.shapes[name]))

    def _move(self, elements: int) -> None:
        self.work.moved += elements
        self.work.most_moved = max(self.work.most_moved, elements)

    def kept_of(self, name: str) -> int:
        """The number of non-zero elements of an array."""
        return int(np.count_nonzero(self.graph.tensors[name])) if self.kept is None else self.kept[name]

    def add_concat(self, node: Node) -> None:
        """Add a concatenation, written in place if it is not too large."""
        channels = self.shapes[node.output][0]
        parts = len(node.inputs) if len(node.inputs) * channels <= MAX_JOINED else 1
        self.work.copies += len(node.inputs)
        self.work.entries += channels
        self._add_parts(node, parts)
        self._values[node.output] = _Value(scales=True, adds=True, parts=parts)

    def _before(self, node: Node) -> list[_Value]:
        return [self._values.get(name, _Value()) for name in node.inputs]

    def _is_only_reader(self, name: str) -> bool:
        return self._readers[name] == 1

    def _add_layer(self, node: Node, entries: int) -> None:
        self.work.layers += 1
        self.work.entries += entries
        self._values[node.output] = _Value(scales=True, adds=True)

    def _take_in(self, node: Node, *, scales: bool) -> None:
        """Nothing if an earlier layer can take the operation in, else a copy."""
        able = (value.scales if scales else value.adds for value in self._before(node))
        taken = any(can and self._is_only_reader(name) for can, name in zip(able, node.inputs, strict=True))
        shape = self.shapes[node.output]
        if not taken or len(shape) == 1:  # vectors may be images flattened, which are copied
            self.work.layers += 1
            self.work.entries += prod(shape[:1]) * len(node.inputs)

    def _add_parts(self, node: Node, parts: int) -> None:
        self.work.joined += parts * (self.shapes[node.output][0] + 1000) if parts > 1 else 0


def _check_options(node: Node) -> None:
    for name, value in node.options.items() if not node.opaque else ():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int) and number > MOST_OPTION for number in numbers):
            raise FileError(f"`{name}` of `{node.output}` is {value}, and {MOST_OPTION} is the most")


def _sizes(graph: Graph) -> Iterator[tuple[str, int, int]]:
    """The channels and elements of every value, padding included."""
    try:
        known = shapes(graph)
    except GraphError as error:
        raise FileError(str(error).rstrip(".")) from None
    for name, shape in known.items():
        yield name, prod(shape[:1]), prod(shape)
    for node in graph.nodes:
        padding = () if node.opaque else node.options.get("padding", ())
        if any(padding):
            x = known[node.inputs[0]]
            yield node.inputs[0], x[0], prod(_padded(x, padding))


def _padded(shape: Shape, padding: Shape) -> Shape:
    return (shape[0], *(side + 2 * edge for side, edge in zip(shape[1:], padding, strict=True)))

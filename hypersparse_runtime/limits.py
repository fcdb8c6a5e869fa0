"""How large the network in a file may be: what a few bytes can claim must not take the memory of a machine.

The limits hold for writing too, so that no file is made that cannot be read. What loading takes is estimated from the
operations and the sizes of their arrays alone, before anything is allocated; a larger file may take more of it.
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
MOST_SECONDS = 2.4  # of loading a file of at most SMALL bytes, by the estimate; DenseNet-264 at 99.8 % takes 2.2
MOST_MEMORY = 3 * 2**28  # bytes, the same, without the workspace; VGG-19 for images of 224x224 takes 7.1e8
SMALL = 2**20
MOST_JOINED = 2**20  # parts times channels of a concatenation whose parts are moved; DenseNet-121 has 34,000


def check_sizes(graph: Graph, *, kept: Mapping[str, int] | None = None, size: int | None = None) -> None:
    """Raise FileError for a network that does not fit together, or is larger than any should be.

    `kept` counts the elements of arrays that are not zero, where that is known; the arrays are not looked at then.
    With `size`, the bytes of its file, what loading takes is bounded too.
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
    """What loading a network and running it takes, counted from its operations."""

    products: int = 0  # for one image
    layers: int = 0  # that become steps of a program
    entries: int = 0  # weights that are not zero, and what copies and pools are made of
    weights: int = 0  # that are searched for those
    channels: int = 0
    planes: int = 0  # elements that are added position by position
    joined: int = 0  # layers that write parts of one value, times the operations on it
    elements: int = 0  # of values
    arrays: int = 0  # bytes
    largest: int = 0  # elements of an array, whose mask is made

    @property
    def seconds(self) -> float:
        """Of one core; measured on an Ice Lake, and rather too much than too little."""
        parts = 3e-4 * self.layers + 7e-7 * self.entries + 2e-9 * self.weights + 5e-7 * self.channels
        return parts + 2e-8 * self.planes + 3e-9 * self.joined + 3e-9 * self.elements + 1e-9 * self.arrays

    @property
    def bytes(self) -> int:
        """Of memory at the most, beside what a program works on."""
        tables = 250 * self.entries + 100 * self.channels + 40 * self.planes + 8 * self.joined
        return self.arrays + self.largest + tables


def estimate(graph: Graph, kept: Mapping[str, int] | None = None) -> Work:
    """What loading takes, from sizes alone; the graph has to fit together."""
    counting = _Counting(graph, kept)
    for node in graph.nodes:
        if not node.opaque:
            counting.count(node)
    return counting.work


@dataclass
class _Value:
    """What may still be done to a value by the layer that made it."""

    scales: bool = False
    adds: bool = False
    parts: int = 1  # layers that make it


@dataclass
class _Counting:
    graph: Graph
    kept: Mapping[str, int] | None
    work: Work = field(default_factory=Work)
    values: dict[str, _Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = shapes(self.graph)
        self.readers = Counter(name for node in self.graph.nodes for name in node.inputs)
        arrays = self.graph.tensors.values()
        self.work.arrays = sum(array.size * array.dtype.itemsize for array in arrays)
        self.work.largest = max((array.size for array in arrays), default=0)
        self.work.elements = sum(prod(shape) for shape in self.known.values())

    def count(self, node: Node) -> None:
        """One operation more."""
        shape, inputs = self.known[node.output], [self.known[name] for name in node.inputs]
        self.work.channels += prod(shape[:1])
        if node.op in ("conv", "linear"):
            self._weighted(node, shape)
        elif node.op in ("max_pool", "avg_pool", "mean"):
            self._pooled(node, shape, inputs[0])
        elif node.op != "flatten":
            self._changed(node, shape)

    def _weighted(self, node: Node, shape: Shape) -> None:
        name = node.tensors["weight"]
        array = self.graph.tensors[name]
        kept = int(np.count_nonzero(array)) if self.kept is None else self.kept[name]
        self._sum(node, kept)
        self.work.weights += array.size
        self.work.products += kept * prod(shape[1:])
        if node.options.get("stride", (1, 1)) != (1, 1):  # phases are copied for it
            self.work.layers += 1
            self.work.channels += kept

    def _sum(self, node: Node, entries: int) -> None:
        self.work.layers += 1
        self.work.entries += entries
        self.values[node.output] = _Value(scales=True, adds=True)

    def _pooled(self, node: Node, shape: Shape, before: Shape) -> None:
        window = prod(before[1:]) if node.op == "mean" else prod(node.options["kernel"])
        self.work.products += prod(shape) * window
        if node.op == "avg_pool" and (node.options["kernel"] != before[1:] or any(node.options["padding"])):
            self._sum(node, before[0] * window)
        else:
            self.work.layers += 1

    def _changed(self, node: Node, shape: Shape) -> None:
        """What a layer before does on the way, or a copy."""
        self.work.planes += prod(shape) if node.op == "plane" else 0
        values = [self.values.get(name, _Value()) for name in node.inputs]
        alone = [self.readers[name] == 1 for name in node.inputs]
        may = ["scales" if node.op in ("batch_norm", "add") else "adds"]
        taken = any(single and getattr(value, may[0]) for value, single in zip(values, alone, strict=True))
        parts = values[0].parts if alone[0] and node.op in ("batch_norm", "relu", "clip") else 1
        if node.op == "concat":
            parts = len(node.inputs) if len(node.inputs) * shape[0] <= MOST_JOINED else 1
        elif not taken or len(shape) == 1:  # vectors may be images flattened, which are copied
            self.work.layers += 1
            self.work.entries += prod(shape[:1]) * len(node.inputs)
        if node.op == "concat":
            self.work.layers += len(node.inputs)
            self.work.entries += shape[0]
        self.work.joined += parts * (shape[0] + 1000) if parts > 1 else 0
        scales = node.op in ("batch_norm", "concat") or (node.op == "plane" and values[0].scales)
        self.values[node.output] = _Value(scales, node.op not in ("relu", "clip"), parts)


def _check_options(node: Node) -> None:
    for name, value in node.options.items() if not node.opaque else ():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int) and number > MOST_OPTION for number in numbers):
            raise FileError(f"`{name}` of `{node.output}` is {value}, and {MOST_OPTION} is the most")


def _sizes(graph: Graph) -> Iterator[tuple[str, int, int]]:
    """Channels and elements of every value, and of those that an operation pads."""
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

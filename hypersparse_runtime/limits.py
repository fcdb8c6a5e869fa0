"""How large the network in a file may be: what a few bytes can claim must not take the memory of a machine.

The limits hold for writing too, so that no file is made that cannot be read.
"""

from collections.abc import Iterator
from math import prod

from hypersparse_runtime.container import FileError
from hypersparse_runtime.graph import Graph, GraphError, Node, Shape, shapes

MOST_NODES = 4096  # ResNet-110 has 388
MOST_INPUTS = 1024  # of a concatenation; DenseNet-264 has 65
MOST_OPTION = 2**31 - 1  # of a stride, a dilation and the like: kernels count in 32 bits
MOST_OF_A_VALUE = 2**24  # elements for one image, with zeros around them; 64 MB
MOST_OF_ALL_VALUES = 2**27  # ResNet-50 has 3.5e7 for an image of 224x224


def check_sizes(graph: Graph) -> None:
    """Raise FileError for a network that does not fit together, or is larger than any should be."""
    if len(graph.nodes) > MOST_NODES:
        raise FileError(f"it has {len(graph.nodes)} operations, and {MOST_NODES} are the most")
    for node in graph.nodes:
        if len(node.inputs) > MOST_INPUTS and not node.opaque:
            raise FileError(f"`{node.output}` reads {len(node.inputs)} values, and {MOST_INPUTS} are the most")
        _check_options(node)
    total = 0
    for name, size in _sizes(graph):
        if size > MOST_OF_A_VALUE:
            padded = f"{size} elements with what pads it"
            raise FileError(f"its value `{name}` has {padded}, and {MOST_OF_A_VALUE} are the most")
        total += size
    if total > MOST_OF_ALL_VALUES:
        raise FileError(f"its values have {total} elements together, and {MOST_OF_ALL_VALUES} are the most")


def _check_options(node: Node) -> None:
    for name, value in node.options.items() if not node.opaque else ():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int) and number > MOST_OPTION for number in numbers):
            raise FileError(f"`{name}` of `{node.output}` is {value}, and {MOST_OPTION} is the most")


def _sizes(graph: Graph) -> Iterator[tuple[str, int]]:
    """Elements of every value, and of those that an operation pads."""
    try:
        known = shapes(graph)
    except GraphError as error:
        raise FileError(str(error).rstrip(".")) from None
    for name, shape in known.items():
        yield name, prod(shape)
    for node in graph.nodes:
        padding = () if node.opaque else node.options.get("padding", ())
        if any(padding):
            yield node.inputs[0], prod(_padded(known[node.inputs[0]], padding))


def _padded(shape: Shape, padding: Shape) -> Shape:
    return (shape[0], *(side + 2 * edge for side, edge in zip(shape[1:], padding, strict=True)))

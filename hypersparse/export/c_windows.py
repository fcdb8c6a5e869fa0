"""The sizes of convolutions and pools in C, in the order of `window_t`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hypersparse_runtime.graph import Shape

ONE = (1, 1)


class Windowed(Protocol):
    """A node with options."""

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def output(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


def conv_window(node: Windowed, weight: Sequence[int], shapes: Mapping[str, Shape]) -> list[int]:
    """Of a convolution with weights of this shape; one over a sequence is one over an image of one row."""
    outputs, inputs, *kernel = weight
    options = node.options
    groups = (inputs, outputs // options["groups"])
    return _window(node, shapes, kernel if len(kernel) == 2 else [1, *kernel], options["dilation"], groups)


def pool_window(node: Windowed, shapes: Mapping[str, Shape]) -> list[int]:
    """Of a pool, which reads the channel that it writes."""
    return _window(node, shapes, node.options["kernel"], ONE, ONE)


def _window(
    node: Windowed, shapes: Mapping[str, Shape], kernel: Sequence[int], dilation: Sequence[int], groups: Sequence[int]
) -> list[int]:
    _, height, width = shapes[node.inputs[0]]
    stride, padding = node.options["stride"], node.options["padding"]
    return [height, width, *shapes[node.output], *kernel, *stride, *padding, *dilation, *groups]

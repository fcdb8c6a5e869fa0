"""Which channels of a network's values do not depend on its input, and what they hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from hypersparse.export import aten_ops
from hypersparse.export.graph_module import compute
from hypersparse_runtime.graph import INPUT, SHARES, Graph, Node, Shape

MOST_NUMBERS = 2**25  # of constants that differ within their channel; 256 MB
MOST_COPIED = 2**24  # numbers that a convolution copies at once; 128 MB
CHANNELWISE = ("batch_norm", "relu", "clip", "plane", "max_pool", "avg_pool", "mean")  # each channel from the same one


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a value: which channels (of its first axis) are constant, and what they hold, elsewhere 0."""

    constant: NDArray[np.bool_]
    value: NDArray[np.float64]

    @property
    def whole(self) -> bool:
        """Whether all of it is constant."""
        return bool(self.constant.all())

    @property
    def numbers(self) -> int:
        """How many numbers it keeps."""
        return 0 if 0 in self.value.strides else self.value.size


def is_channelwise(node: Node) -> bool:
    """Whether each channel of a node's value depends on the same channel of its one input only."""
    return node.op in CHANNELWISE or (node.opaque and aten_ops.is_elementwise(node))


def find_constants(graph: Graph, sides: Mapping[str, Shape]) -> dict[str, Known]:
    """What is constant in every value, in double precision, followed from the input to the output.

    A channel of a conv or linear layer is constant if every weight into it that is not zero comes from a constant
    channel. At zero-padded borders it is another number than inside, so a constant is a whole plane. Beyond
    `MOST_NUMBERS` of such planes, nothing more counts as constant.
    """
    known, numbers = {INPUT: _unknown(sides[INPUT])}, 0
    for node in graph.nodes:
        found = _known(graph, node, [known[name] for name in node.inputs], sides[node.output])
        numbers += found.numbers
        known[node.output] = found if numbers <= MOST_NUMBERS else _unknown(sides[node.output])
    return known


def _known(graph: Graph, node: Node, inputs: list[Known], shape: Shape) -> Known:
    constant = _constant(graph, node, inputs, shape)
    if not constant.any():
        return _unknown(shape)
    value = computed(graph, node, [known.value for known in inputs])
    flat = value.reshape(len(value), -1)
    constant &= np.isfinite(flat).all(1)
    if (flat[constant] == flat[constant, :1]).all():  # a number for each channel is all there is to keep
        first = np.where(constant, flat[:, 0], 0.0)
        return Known(constant, np.broadcast_to(first.reshape(-1, *[1] * (value.ndim - 1)), value.shape))
    held = np.zeros_like(value)
    held[constant] = value[constant]
    return Known(constant, held)


def _constant(graph: Graph, node: Node, inputs: list[Known], shape: Shape) -> NDArray[np.bool_]:
    """Which channels of a node's value are the same for every input."""
    first = inputs[0].constant if inputs else np.zeros(0, bool)
    if node.opaque and not is_channelwise(node):
        return np.zeros(1, bool)
    if node.op == "add":
        return first & inputs[1].constant
    if node.op == "concat":
        return np.concatenate([known.constant for known in inputs])
    if node.op in SHARES:
        return np.full(shape[0], inputs[0].whole)
    if node.op == "flatten":
        return np.repeat(first, shape[0] // len(first))
    if node.op in ("conv", "linear"):
        return np.asarray(~_used(graph, node, inputs=~first).any(2).reshape(-1))
    if node.op == "batch_norm":
        return np.asarray(first | (np.asarray(graph.array(node, "weight")) == 0))
    return first.copy()


def _unknown(shape: Shape) -> Known:
    return Known(np.zeros(shape[0] if shape else 1, bool), np.broadcast_to(0.0, shape or (1,)))


def read_channels(graph: Graph, node: Node, outputs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which input channels a conv or linear layer reads for these of its output channels."""
    return np.asarray(_used(graph, node, outputs=outputs).any(1).reshape(-1))


def _used(
    graph: Graph, node: Node, *, inputs: NDArray[np.bool_] | None = None, outputs: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Which output channel of each group reads which of its input channels, of those given: (groups, O, C)."""
    weight = graph.array(node, "weight")
    assert weight is not None
    groups = node.options.get("groups", 1)
    used: NDArray[np.bool_] = np.any((weight != 0).reshape(*weight.shape[:2], -1), axis=2)
    used = np.asarray(used.reshape(groups, -1, weight.shape[1]))
    if inputs is not None:
        used &= inputs.reshape(groups, 1, -1)
    if outputs is not None:
        used &= outputs.reshape(groups, -1, 1)
    return used


def computed(graph: Graph, node: Node, inputs: list[NDArray[Any]]) -> NDArray[np.float64]:
    """What a node makes of values without a batch, in double precision."""
    tensors = {role: _tensor(graph.tensors[name]) for role, name in node.tensors.items()}
    given = [_tensor(value).unsqueeze(0) for value in inputs]
    with torch.no_grad():
        if node.op == "conv":
            made = _convolved(node, given[0], tensors["weight"], tensors.get("bias"))
        else:
            made = aten_ops.call(node, given, tensors, 1) if node.opaque else compute(node, given, tensors)
    return made.squeeze(0).numpy()


def _convolved(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A convolution in blocks of its output, of which every window is copied."""
    options = node.options
    (down, right), (up, left) = options["stride"], options["padding"]
    x = functional.pad(x, (left, left, up, up))
    reach = [step * (side - 1) + 1 for step, side in zip(options["dilation"], weight.shape[2:], strict=True)]
    sides = [(x.shape[2] - reach[0]) // down + 1, (x.shape[3] - reach[1]) // right + 1]
    window = weight[0].numel() * options["groups"]
    width = min(sides[1], max(MOST_COPIED // window, 1))
    height = min(sides[0], max(MOST_COPIED // (window * width), 1))
    rows_of_groups = weight.reshape(options["groups"], len(weight) // options["groups"], -1)
    made = x.new_empty(1, len(weight), *sides)
    for top, start in product(range(0, sides[0], height), range(0, sides[1], width)):
        rows, columns = min(height, sides[0] - top), min(width, sides[1] - start)
        lines = slice(top * down, (top + rows - 1) * down + reach[0])
        places = slice(start * right, (start + columns - 1) * right + reach[1])
        # Not conv2d: for 4 million groups it makes as many tensors, 2 GB in 20 s.
        windows = functional.unfold(
            x[:, :, lines, places], weight.shape[2:], dilation=options["dilation"], stride=(down, right)
        )
        product_of_groups = rows_of_groups @ windows.reshape(options["groups"], -1, rows * columns)
        made[:, :, top : top + rows, start : start + columns] = product_of_groups.reshape(1, -1, rows, columns)
    return made if bias is None else made + bias.reshape(-1, 1, 1)


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(array, np.float64))

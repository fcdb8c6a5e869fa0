"""Find the channels of a network's values that do not depend on its input, and compute them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hypersparse.export import aten_ops
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse_runtime.graph import INPUT, Graph, Node, Shape
from hypersparse_runtime.operations.base import Channels

MOST_NUMBERS = 2**25  # of constants that differ within their channel; 256 MB


@dataclass(frozen=True, eq=False)
class Known:
    """The constant channels of a value (along its first axis) and their numbers; 0 elsewhere."""

    constant: NDArray[np.bool_]
    value: NDArray[np.float64]

    @property
    def whole(self) -> bool:
        """Whether the whole value is constant."""
        return bool(self.constant.all())

    @property
    def numbers(self) -> int:
        """The number of stored constants."""
        return 0 if 0 in self.value.strides else self.value.size


def channels_of(graph: Graph, node: Node) -> Channels:
    """How channels pass through a node; some opaque nodes map every element independently."""
    return Channels.SAME if aten_ops.is_elementwise(node) else node.operation.channels(graph, node)


def find_constants(graph: Graph, sides: Mapping[str, Shape]) -> dict[str, Known]:
    """The constant channels of every value, propagated from input to output in double precision.

    A channel of a conv or linear layer is constant if every non-zero weight into it comes from a constant channel. At
    zero-padded borders its number differs from the inside, so that a constant is a whole plane. Beyond `MOST_NUMBERS`
    of such planes, nothing more counts as constant.
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
    """The channels of a node's output that are the same for every input."""
    flags = [known.constant for known in inputs]
    if node.by_channels:
        return np.asarray(~_used(graph, node, inputs=~flags[0]).any(2).reshape(-1))
    channels = channels_of(graph, node)
    if channels is Channels.JOINED:
        return np.concatenate(flags)
    if channels is Channels.FLATTENED:
        return np.repeat(flags[0], shape[0] // len(flags[0]))
    if channels is Channels.ALL:
        return np.zeros(1, bool) if node.opaque else np.full(shape[0], all(each.whole for each in inputs))
    weight = graph.array(node, "weight")  # of a batch norm, whose channels are scaled by it
    constant = np.logical_and.reduce(flags)
    return constant if weight is None else np.asarray(constant | (weight == 0))


def _unknown(shape: Shape) -> Known:
    return Known(np.zeros(shape[0] if shape else 1, bool), np.broadcast_to(0.0, shape or (1,)))


def read_channels(graph: Graph, node: Node, outputs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The input channels that a conv or linear layer reads for these output channels."""
    return np.asarray(_used(graph, node, outputs=outputs).any(1).reshape(-1))


def _used(
    graph: Graph, node: Node, *, inputs: NDArray[np.bool_] | None = None, outputs: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Whether an output channel of a group reads one of the given input channels: (groups, O, C)."""
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
    """The output of a node for values without a batch, in double precision."""
    tensors = {role: _tensor(graph.tensors[name]) for role, name in node.tensors.items()}
    given = [_tensor(value).unsqueeze(0) for value in inputs]
    with torch.no_grad():
        if node.opaque:
            made = aten_ops.call(node, given, tensors, 1)
        else:
            made = TORCH_OPERATIONS[node.op].compute_constant(node, given, tensors)
    array: NDArray[np.float64] = made.squeeze(0).numpy()
    return array


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(array, np.float64))

"""Which channels of a network's values do not depend on its input, and what they hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hypersparse.export import aten_ops
from hypersparse.export.graph_module import compute
from hypersparse_runtime.graph import INPUT, SHARES, Graph, Node, Shape

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


def is_channelwise(node: Node) -> bool:
    """Whether each channel of a node's value depends on the same channel of its one input only."""
    return node.op in CHANNELWISE or (node.opaque and aten_ops.is_elementwise(node))


def find_constants(graph: Graph, sides: Mapping[str, Shape]) -> dict[str, Known]:
    """What is constant in every value, in double precision, followed from the input to the output.

    A channel of a conv or linear layer is constant if every weight into it that is not zero comes from a constant
    channel. At zero-padded borders it is another number than inside, so a constant is a whole plane.
    """
    known = {INPUT: _unknown(sides[INPUT])}
    for node in graph.nodes:
        known[node.output] = _known(graph, node, [known[name] for name in node.inputs], sides[node.output])
    return known


def _known(graph: Graph, node: Node, inputs: list[Known], shape: Shape) -> Known:
    if node.opaque and not is_channelwise(node):
        return _unknown(shape)
    value = computed(graph, node, [known.value for known in inputs])
    if node.op == "add":
        constant = inputs[0].constant & inputs[1].constant
    elif node.op == "concat":
        constant = np.concatenate([known.constant for known in inputs])
    elif node.op in SHARES:
        constant = np.full(len(value), inputs[0].whole)
    elif node.op == "flatten":
        constant = np.repeat(inputs[0].constant, len(value) // len(inputs[0].constant))
    elif node.op in ("conv", "linear"):
        constant = ~np.any(reads(graph, node) & ~inputs[0].constant, axis=1)
    elif node.op == "batch_norm":
        constant = inputs[0].constant | np.asarray(np.asarray(graph.array(node, "weight")) == 0)
    else:
        constant = inputs[0].constant
    finite = np.isfinite(value.reshape(len(value), -1)).all(1)
    constant = constant & finite
    return Known(constant, np.where(constant.reshape(-1, *[1] * (value.ndim - 1)), value, 0.0))


def _unknown(shape: Shape) -> Known:
    return Known(np.zeros(shape[0] if shape else 1, bool), np.zeros(shape or (1,)))


def reads(graph: Graph, node: Node) -> NDArray[np.bool_]:
    """Which input channel a conv or linear layer reads for which output channel: (O, C)."""
    weight = graph.array(node, "weight")
    assert weight is not None
    used: NDArray[np.bool_] = np.any((weight != 0).reshape(*weight.shape[:2], -1), axis=2)
    groups = node.options.get("groups", 1)
    if groups == 1:
        return used
    outputs, inputs = used.shape
    full = np.zeros((outputs, inputs * groups), bool)
    for group in range(groups):
        mine = slice(group * outputs // groups, (group + 1) * outputs // groups)
        full[mine, group * inputs : (group + 1) * inputs] = used[mine]
    return full


def computed(graph: Graph, node: Node, inputs: list[NDArray[Any]]) -> NDArray[np.float64]:
    """What a node makes of values without a batch, in double precision."""
    tensors = {role: _tensor(graph.tensors[name]) for role, name in node.tensors.items()}
    given = [_tensor(value).unsqueeze(0) for value in inputs]
    with torch.no_grad():
        made: Tensor = aten_ops.call(node, given, tensors, 1) if node.opaque else compute(node, given, tensors)
    return made.squeeze(0).numpy()


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(array, np.float64))

"""The exact arithmetic of a `QuantizedGraph`, in PyTorch: what C and other implementations have to reproduce."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.export.quantization import QuantizedGraph, QuantizedNode, QuantizedValue
from hypersparse_runtime.graph import INPUT

EXACT_IN_FLOAT32 = 2**24  # sums of whole numbers below it


def run(network: QuantizedGraph, images: Tensor) -> Tensor:
    """The network's integers for a batch of normalised images, as int64."""
    values = {INPUT: to_integers(images, network.values[INPUT])}
    for node in network.nodes:
        given = [values[name] for name in node.inputs]
        made, value = COMPUTE[node.op](network, node, given), network.values[node.output]
        values[node.output] = made.clamp(value.low, value.high)
    return values[network.output]


def predict(network: QuantizedGraph, images: Tensor) -> Tensor:
    """The network's outputs as floating-point numbers."""
    return run(network, images).float() * network.values[network.output].scale


def to_integers(values: Tensor, meaning: QuantizedValue) -> Tensor:
    """Rounded to the nearest integers in range, ties to even."""
    return (values.double() / meaning.scale).round().clamp(meaning.low, meaning.high).long()


def requantized(sums: Tensor, multiplier: Tensor, shift: Tensor) -> Tensor:
    """(sums * multiplier + 2^(shift - 1)) >> shift, in int64.

    >>> one, two = torch.tensor(1), torch.tensor(2)
    >>> requantized(torch.tensor([-3, -2, -1, 0, 1, 2, 3]), one, one).tolist()  # halves
    [-1, -1, 0, 0, 1, 1, 2]
    """
    return (sums * multiplier + (1 << (shift - 1))) >> shift


def _array(node: QuantizedNode, role: str) -> Tensor:
    return torch.from_numpy(node.arrays[role].astype(np.int64))


def _by_channel(node: QuantizedNode, role: str, axes: int) -> Tensor:
    return _array(node, role).reshape(-1, *[1] * (axes - 2))


def _layer(network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
    weight, (x,) = _array(node, "weight"), given
    most = int(weight.flatten(1).abs().sum(1).max()) * network.values[node.inputs[0]].most
    kind = torch.float32 if most < EXACT_IN_FLOAT32 else torch.float64  # PyTorch convolves no integers on CPUs
    if node.op == "linear":
        sums = functional.linear(x.to(kind), weight.to(kind))
    else:
        how = (node.options[name] for name in ("stride", "padding", "dilation", "groups"))
        sums = functional.conv2d(x.to(kind), weight.to(kind), None, *how)
    bias, multiplier, shift = (_by_channel(node, role, sums.dim()) for role in ("bias", "multiplier", "shift"))
    return requantized(sums.long() + bias, multiplier, shift)


def _average(network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
    (x,) = given
    if node.op == "mean":
        sums = x.sum((2, 3))
    else:
        options = node.options
        kernel, stride, padding = options["kernel"], options["stride"], options["padding"]
        sums = functional.avg_pool2d(x.double(), kernel, stride, padding, divisor_override=1).round().long()
    return requantized(sums, _array(node, "multiplier"), _array(node, "shift"))


def _sum(network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
    multipliers, shift = _array(node, "multiplier"), _array(node, "shift")
    total = sum((x * multiplier for x, multiplier in zip(given, multipliers, strict=True)), torch.tensor(0))
    total = total + _array(node, "value") if node.op == "plane" else total
    return (total + (1 << (shift - 1))) >> shift


def _concat(network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
    factors = zip(given, _array(node, "multiplier"), _array(node, "shift"), strict=True)
    return torch.cat(
        [requantized(x, multiplier, shift) for x, multiplier, shift in factors], node.options.get("axis", 0) + 1
    )


def _lookup(network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
    return _array(node, "table")[given[0] - network.values[node.inputs[0]].low]


def _product(network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
    return requantized(given[0] * given[1], _array(node, "multiplier"), _array(node, "shift"))


def _max_pool(network: QuantizedGraph, node: QuantizedNode, given: list[Tensor]) -> Tensor:
    options, (x,) = node.options, given
    return functional.max_pool2d(x.float(), options["kernel"], options["stride"], options["padding"]).long()


COMPUTE: Mapping[str, Callable[[QuantizedGraph, QuantizedNode, list[Tensor]], Tensor]] = MappingProxyType(
    {
        **dict.fromkeys(("conv", "linear"), _layer),
        **dict.fromkeys(("mean", "avg_pool"), _average),
        **dict.fromkeys(("add", "plane"), _sum),
        **dict.fromkeys(("relu", "clip"), lambda network, node, given: given[0]),  # the range of its output
        "concat": _concat,
        "elementwise": _lookup,
        "arithmetic": _product,
        "max_pool": _max_pool,
        "flatten": lambda network, node, given: given[0].flatten(1),
    }
)

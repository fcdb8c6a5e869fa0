"""The exact arithmetic of a `QuantizedGraph`, in PyTorch: what C and other implementations have to reproduce."""

from torch import Tensor

from hypersparse.export.quantization import rule_of
from hypersparse.export.quantized_graph import QuantizedGraph, QuantizedValue
from hypersparse_runtime.graph import INPUT


def run(network: QuantizedGraph, images: Tensor) -> Tensor:
    """The network's integers for a batch of normalised images, as int64."""
    values = {INPUT: to_integers(images, network.values[INPUT])}
    for node in network.nodes:
        given = [values[name] for name in node.inputs]
        made, value = rule_of(node.op).compute(network, node, given), network.values[node.output]
        values[node.output] = made.clamp(value.low, value.high)
    return values[network.output]


def predict(network: QuantizedGraph, images: Tensor) -> Tensor:
    """The network's outputs as floating-point numbers."""
    return run(network, images).float() * network.values[network.output].scale


def to_integers(values: Tensor, meaning: QuantizedValue) -> Tensor:
    """Rounded to the nearest integers in range, ties to even."""
    return (values.double() / meaning.scale).round().clamp(meaning.low, meaning.high).long()

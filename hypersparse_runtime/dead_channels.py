"""Remove what need not be computed: channels that are always zero, and channels that are never read."""

from dataclasses import replace

import numpy as np

from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.sparse_layers import SOFTMAX, Array, Layer, Network


def without_dead_channels(network: Network) -> Network:
    """The network with the same outputs and fewer entries and rows."""
    return _without_unread(_without_zeros(network))


def _without_zeros(network: Network) -> Network:
    zero: dict[str, Array] = {INPUT: np.zeros(network.shapes[INPUT][0], dtype=bool)}
    layers = []
    for layer in network.layers:
        if layer.entries is not None:
            layer = replace(layer, entries=layer.entries.where(~zero[layer.input][layer.entries.channel]))
        layers.append(layer)
        known = zero.setdefault(layer.output, np.zeros(network.shapes[layer.output][0], dtype=bool))
        known[layer.rows] = _zero_rows(layer, zero)  # other layers may make the other channels
    return replace(network, layers=tuple(layers))


def _zero_rows(layer: Layer, zero: dict[str, Array]) -> Array:
    """The computed rows of a layer that are always zero."""
    rows = layer.rows
    if layer.kind in SOFTMAX or layer.is_whole:
        return np.zeros(len(rows), dtype=bool)
    if layer.entries is None or layer.bias is None:
        return zero[layer.input][rows]  # a mean or a maximum of zeros
    fixed = layer.bias[rows].reshape(-1, 1)
    if layer.plane is not None:
        fixed = fixed + layer.plane.reshape(len(layer.bias), -1)[rows]
    nothing = (layer.activation(fixed) == 0).all(axis=1)
    read = np.isin(rows, layer.entries.row)
    added = np.ones(len(fixed), dtype=bool) if layer.residual is None else zero[layer.residual][rows]
    zeros: Array = nothing & ~read & added
    return zeros


def _without_unread(network: Network) -> Network:
    read = {name: np.zeros(shape[0], dtype=bool) for name, shape in network.shapes.items()}
    read[network.output][:] = True
    layers = []
    for layer in reversed(network.layers):
        kept = read[layer.output]
        if layer.is_whole:
            layers += [layer] if kept.any() else []
            for name in layer.reads if kept.any() else ():
                read[name][:] = True
            continue
        layer = replace(layer, rows=layer.rows[kept[layer.rows]])
        if not len(layer.rows):
            continue
        if layer.entries is None:
            read[layer.input] |= kept
        else:
            layer = replace(layer, entries=layer.entries.where(kept[layer.entries.row]))
            read[layer.input][layer.entries.channel] = True  # type: ignore[union-attr]
        if layer.residual is not None:
            read[layer.residual] |= kept
        layers.append(layer)
    return replace(network, layers=tuple(reversed(layers)))

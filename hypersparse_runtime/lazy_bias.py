"""Lazy biases: a channel to which a residual sum adds only a bias stays as it is in memory.

In a very sparse residual network most rows of a block have no weights: their channels only get a bias and a ReLU. A
chain of these is `max(x + offset, floor)`. It is applied when the channel is next read, as a part of that step.
Channels without any input are constants and have no memory.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from hypersparse_runtime.sparse_layers import Array, Entries, Layer, Network, Pair, distinct


@dataclass(eq=False)
class _State:
    """The pending operations on a value's channels: `max(x + offset, floor)`, or the whole channel is `constant`."""

    offset: Array
    floor: Array
    constant: Array  # NaN where the channel is in memory

    @classmethod
    def done(cls, channels: int) -> "_State":
        """A state without pending operations."""
        return cls(np.zeros(channels), np.full(channels, -np.inf), np.full(channels, np.nan))

    def waits(self) -> Array:
        """The channels with pending operations."""
        waits: Array = (self.offset != 0) | (self.floor > -np.inf) | ~np.isnan(self.constant)
        return waits

    def finish_(self, rows: Array) -> None:
        """Mark channels as up to date in memory."""
        self.offset[rows], self.floor[rows], self.constant[rows] = 0, -np.inf, np.nan

    def add_(self, rows: Array, bias: Array, *, relu: bool) -> None:
        """Add a bias, and a ReLU if there is one."""
        self.offset[rows] += bias
        self.floor[rows] += bias
        self.constant[rows] += bias
        if relu:
            self.floor[rows] = np.maximum(self.floor[rows], 0)
            self.constant[rows] = np.maximum(self.constant[rows], 0)  # NaN stays NaN


def with_lazy_bias(network: Network) -> Network:
    """The network with the same outputs and fewer computed rows."""
    if any(layer.bias is not None and not np.isfinite(layer.bias).all() for layer in network.layers):
        return network  # of a network that diverged; NaN has a meaning of its own here
    pass_over = _Pass(network)
    for number, layer in enumerate(network.layers):
        pass_over.take(number, layer)
    output = pass_over.names.get(network.output, network.output)
    pass_over.finish(output, np.arange(network.shapes[output][0]))
    return replace(network, layers=tuple(pass_over.layers), output=output)


class _Pass:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.layers: list[Layer] = []
        self.names: dict[str, str] = {}  # values that lie where another one lay
        self.states = {name: _State.done(shape[0]) for name, shape in network.shapes.items()}
        self.last = {name: number for number, each in enumerate(network.layers) for name in each.reads}
        self.read_of_phases = _read_of_phases(network)

    def take(self, number: int, layer: Layer) -> None:
        """Process the next layer."""
        if layer.is_whole:
            self._take_whole(layer)
            return
        in_place = layer.residual not in (None, layer.input) and self.last[layer.residual] == number
        source = self.names.get(layer.input, layer.input)
        added = None if layer.residual is None else self.names.get(layer.residual, layer.residual)
        layer = replace(layer, input=source, residual=added)
        reads = layer.rows if layer.entries is None else self._read(number)
        if layer.kind == "conv" and layer.stride != (1, 1):  # what it reads is copied first, and may be changed then
            state = self.states[source]
            self.finish(source, reads[~np.isnan(state.constant[reads])])
            if state.waits()[reads].any():
                layer = replace(layer, lazy_bias=np.stack([state.offset, state.floor]))
        else:
            self.finish(source, reads)
        if layer.entries is None or layer.kind == "dot":
            if added is not None:
                self.finish(added, layer.rows)
            self.layers.append(layer)
        elif added is None:
            self._constants(layer)
        elif in_place:
            self._in_place(layer, added)
        else:
            self.finish(added, layer.rows)
            self.layers.append(layer)

    def _take_whole(self, layer: Layer) -> None:
        """Process a layer that reads every channel."""
        names = {name: self.names.get(name, name) for name in layer.reads}
        for name in names.values():
            self.finish(name, np.arange(self.network.shapes[name][0]))
        work = replace(layer.work, other=names[layer.work.other]) if layer.others else layer.work
        self.layers.append(replace(layer, input=names[layer.input], work=work))

    def _read(self, number: int) -> Array:
        """The channels that a layer reads; with a stride, also those whose phases are copied in the same step."""
        layer = self.network.layers[number]
        assert layer.entries is not None
        if layer.kind == "conv" and layer.stride != (1, 1):
            return self.read_of_phases[layer.input, layer.stride]
        return distinct(layer.entries.channel)

    def _constants(self, layer: Layer) -> None:
        assert layer.bias is not None
        computed, rest = _rows(layer)
        bias = layer.bias[rest]
        self.states[layer.output].constant[rest] = layer.activation(bias)
        self.layers.append(replace(layer, rows=computed))

    def _in_place(self, layer: Layer, added: str) -> None:
        assert layer.bias is not None
        self.names[layer.output] = added
        state = self.states[added]
        # max(x + offset, floor) has no ceiling: what is clipped is not put off
        computed, rest = _rows(layer) if layer.clip is None else (layer.rows, layer.rows[:0])
        if len(computed):
            self.layers.append(replace(_with_state(layer, state), rows=computed, output=added))
        state.add_(rest, layer.bias[rest], relu=layer.relu)
        state.finish_(computed)

    def finish(self, name: str, channels: Array) -> None:
        """Apply pending operations to channels that are read next."""
        state = self.states[name]
        rows = channels[state.waits()[channels]]
        if not len(rows):
            return
        none = np.zeros(0, dtype=np.int32)
        nothing = Entries(none, none, none, none, np.zeros(0))
        bias = np.zeros(self.network.shapes[name][0])
        layer = Layer("conv", name, name, rows, nothing, bias, residual=name)
        self.layers.append(_with_state(layer, state))
        state.finish_(rows)


def _read_of_phases(network: Network) -> dict[tuple[str, Pair], Array]:
    """The channels that are read with a stride, by value and stride."""
    parts: dict[tuple[str, Pair], list[Array]] = defaultdict(list)
    for layer in network.layers:
        if layer.kind == "conv" and layer.stride != (1, 1) and layer.entries is not None:
            parts[layer.input, layer.stride].append(layer.entries.channel)
    return {key: distinct(np.concatenate(each)) for key, each in parts.items()}


def _rows(layer: Layer) -> tuple[Array, Array]:
    """The rows that compute something, and the rows with a bias only."""
    assert layer.entries is not None
    if layer.plane is not None:
        return layer.rows, layer.rows[:0]
    busy = np.isin(layer.rows, layer.entries.row)
    return layer.rows[busy], layer.rows[~busy]


def _with_state(layer: Layer, state: _State) -> Layer:
    """The layer, with the pending operations of its residual."""
    assert layer.bias is not None
    fixed = ~np.isnan(state.constant)
    bias = layer.bias + np.where(fixed, np.nan_to_num(state.constant), 0)
    if not state.waits().any():
        return layer
    return replace(layer, bias=bias, offset=np.where(fixed, np.nan, state.offset), floor=state.floor.copy())

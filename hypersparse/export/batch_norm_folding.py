"""Exact rewrites of a `Graph`: fold batch norms into layers and planes into biases, drop unread nodes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.graph import Graph, Node


def readers(graph: Graph) -> Counter[str]:
    """The number of readers of each value; the network's output has one more."""
    return Counter([name for node in graph.nodes for name in node.inputs] + [graph.output])


def unshared(graph: Graph) -> Graph:
    """The graph with separate arrays for every node, so that each node can change its own.

    A layer that is used twice becomes two, the second with `_2` in its name. Opaque nodes keep their arrays.
    """
    taken = {name for node in graph.nodes if node.opaque for name in node.tensors.values()}
    tensors, nodes = dict(graph.tensors), []
    copies = _Copies(tensors)
    for node in graph.nodes:
        own = dict(node.tensors)
        for role in sorted(own, key="weight".__ne__) if not node.opaque else ():  # a bias is named after its weight
            if own[role] in taken:
                array = tensors[own[role]]
                own[role] = copies.name(node, own, role)
                tensors[own[role]] = array
            taken.add(own[role])
        nodes.append(replace(node, tensors=own))
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


class _Copies:
    """Unused names for copies of arrays."""

    def __init__(self, taken: Mapping[str, Any]) -> None:
        self.taken = taken
        self.modules = {name[:at] for name in taken for at, letter in enumerate(name) if letter == "."}
        self.numbers: Counter[str] = (
            Counter()
        )  # that the copies of an array have had: a search from 2 each time is slow

    def name(self, node: Node, own: Mapping[str, str], role: str) -> str:
        """The name of the array with this role. A weight has a module of its own, with its bias."""
        if node.by_channels and role != "weight":
            return beside(own["weight"], role, self.taken)
        module = own[role].removesuffix(".weight") if node.by_channels else own[role]
        while True:
            self.numbers[module] += 1
            copy = f"{module}_{self.numbers[module] + 1}" if node.by_channels else f"{module}{self.numbers[module] + 1}"
            if copy not in (self.modules if node.by_channels else self.taken):
                return f"{copy}.weight" if node.by_channels else copy


def fold_batch_norms(graph: Graph) -> Graph:
    """Fold every batch norm into the conv or linear layer before it, if nothing else reads that layer's output."""
    makers = {node.output: node for node in graph.nodes}
    count, tensors = readers(graph), dict(graph.tensors)
    folded: dict[str, Node] = {}  # layers by the value of the batch norm they take in
    gone = set()
    for node in graph.nodes:
        layer = makers.get(node.inputs[0]) if node.op == "batch_norm" else None
        if layer is None or not layer.by_channels or count[layer.output] != 1:
            continue
        folded[node.output] = _folded(graph, layer, node, tensors)
        gone.add(layer.output)
    nodes = tuple(folded.get(node.output, node) for node in graph.nodes if node.output not in gone)
    return replace(graph, nodes=nodes, tensors=tensors)


def _folded(graph: Graph, layer: Node, norm: Node, tensors: dict[str, Any]) -> Node:
    gain, shift, mean, variance = (_wide(graph, norm, role) for role in ("weight", "bias", "mean", "variance"))
    scale = gain / np.sqrt(variance + norm.options["epsilon"])
    weight = _wide(graph, layer, "weight")
    bias = _wide(graph, layer, "bias") if "bias" in layer.tensors else np.zeros(len(weight))
    name = layer.tensors["weight"]
    tensors[name] = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    bias_name = layer.tensors.get("bias") or beside(name, "bias", tensors)
    tensors[bias_name] = (bias - mean) * scale + shift
    return replace(layer, output=norm.output, tensors={"weight": name, "bias": bias_name})


def fold_planes(graph: Graph) -> Graph:
    """Join consecutive planes, and fold constant ones into the bias of the layer before if that is exact."""
    planes = _Planes(graph)
    for node in graph.nodes:
        planes.add(node)
    return replace(graph, nodes=tuple(planes.nodes.values()), tensors=planes.tensors)


class _Planes:
    """Visits the nodes once: a chain of 4,096 planes took 40 s when every change began a new search."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: dict[str, Node] = {}  # by their outputs
        self.tensors = dict(graph.tensors)
        self.count, self.output = readers(graph), graph.output
        self.renamed: dict[str, str] = {}  # outputs of planes that are gone

    def add(self, node: Node) -> None:
        """Add the next node; a plane may be folded into an earlier one."""
        node = replace(node, inputs=tuple(self.renamed.get(name, name) for name in node.inputs))
        if node.op != "plane" or not self._fold(node):
            self.nodes[node.output] = node

    def _fold(self, node: Node) -> bool:
        (source,), name = node.inputs, node.tensors["value"]
        value, before = self.tensors[name], self.nodes.get(source)
        if not value.any() and node.output != self.output:
            self._skip(node)
            return True
        if before is None or self.count[source] != 1:
            return False
        if before.op == "plane":
            self.tensors[name] = value + self.tensors[before.tensors["value"]]
            del self.nodes[source]
            self.add(replace(node, inputs=before.inputs))
            return True
        if before.by_channels and is_flat(value):
            self._add_bias(before, value.reshape(len(value), -1)[:, 0])
            self._skip(node)
            return True
        return False

    def _skip(self, node: Node) -> None:
        """Let the readers of a node read its input instead; the network's output becomes that input."""
        self.renamed[node.output] = node.inputs[0]
        self.count[node.inputs[0]] += self.count[node.output] - 1

    def _add_bias(self, layer: Node, more: NDArray[Any]) -> None:
        name = layer.tensors.get("bias") or beside(layer.tensors["weight"], "bias", self.tensors)
        self.tensors[name] = self.tensors[name] + more if "bias" in layer.tensors else more
        self.nodes[layer.output] = replace(layer, tensors={**layer.tensors, "bias": name})


def drop_unread(graph: Graph) -> Graph:
    """The graph without nodes and arrays that its output does not depend on."""
    wanted, nodes = {graph.output}, []
    for node in reversed(graph.nodes):
        if node.output in wanted:
            wanted.update(node.inputs)
            nodes.append(node)
    used = {name for node in nodes for name in node.tensors.values()}
    tensors = {name: array for name, array in graph.tensors.items() if name in used}
    return replace(graph, nodes=tuple(reversed(nodes)), tensors=tensors)


def is_flat(value: NDArray[Any]) -> bool:
    """Whether a value has one number in each channel."""
    flat = value.reshape(len(value), -1)
    return bool((flat == flat[:, :1]).all())


def fresh(name: str, taken: Mapping[str, Any]) -> str:
    """An unused name."""
    number, found = 1, name
    while found in taken:
        number, found = number + 1, f"{name}{number + 1}"
    return found


def beside(weight: str, own: str, taken: Mapping[str, Any]) -> str:
    """A name for another array of a layer; if its weight is in no module, the new array is in none either."""
    module = weight.removesuffix(".weight")
    return fresh(f"{module}.{own}" if module != weight else f"{weight}_{own}", taken)


def _wide(graph: Graph, node: Node, role: str) -> NDArray[np.float64]:
    return np.asarray(graph.tensors[node.tensors[role]], np.float64)

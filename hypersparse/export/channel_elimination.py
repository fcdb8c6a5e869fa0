"""Select the channels of a network's values that must stay, and build the network with only those."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse.export.batch_norm_folding import beside, is_flat
from hypersparse.export.constants import Known, channels_of, computed, read_channels
from hypersparse_runtime.graph import INPUT, Graph, Node
from hypersparse_runtime.operations.base import Channels
from hypersparse_runtime.operations.layers import is_depthwise

MOST_ROUNDS = 16  # of a search that ends after two or three in networks that were trained
MANY = 4  # inputs of a node that is looked at when all others are done

Bools = NDArray[np.bool_]
Flags = dict[str, Bools]  # a flag for each channel, by value


@dataclass(frozen=True, eq=False)
class Plan:
    """For every value: the channels that affect the output, and the channels that stay."""

    known: Mapping[str, Known]
    needed: Flags  # something that stays depends on what they hold
    kept: Flags


def make_plan(graph: Graph, known: Mapping[str, Known], *, planes: bool) -> Plan:
    """Select the channels that stay. Without `planes`, constants that would become planes stay channels."""
    kept = {name: np.zeros(len(found.constant), bool) for name, found in known.items()}
    for _ in range(MOST_ROUNDS):  # a constant that must stay needs what makes it, which may make others stay
        needed = _needed(graph, known, kept, planes=planes)
        wider = _kept(graph, known, needed, planes=planes)
        if all((wider[name] == kept[name]).all() for name in kept):
            return Plan(known, needed, kept)
        kept = {name: kept[name] | wider[name] for name in kept}
    kept = {name: np.ones_like(flags) for name, flags in kept.items()}  # always right
    return Plan(known, _needed(graph, known, kept, planes=planes), kept)


def _kept(graph: Graph, known: Mapping[str, Known], needed: Flags, *, planes: bool) -> Flags:
    kept = {name: flags & ~known[name].constant for name, flags in needed.items()}
    if not planes:
        for node in graph.nodes:
            for name in node.inputs:
                kept[name] = kept[name] | _stays_for_a_reader(node, known[name], needed[name])
    kept[INPUT] = np.ones_like(kept[INPUT])
    kept[graph.output] = np.ones_like(kept[graph.output])
    for node in graph.nodes:
        if channels_of(graph, node) is Channels.ALL:
            for name in (*node.inputs, node.output):
                kept[name] = np.ones_like(kept[name])
    _couple(graph, kept)
    return kept


def _needed(graph: Graph, known: Mapping[str, Known], kept: Flags, *, planes: bool) -> Flags:
    needed = {name: np.zeros(len(found.constant), bool) for name, found in known.items()}
    needed[graph.output][:] = True
    for node in reversed(graph.nodes):
        flat = _flat_constants(known[node.output])
        folded = known[node.output].constant & ~kept[node.output] if planes else flat & ~kept[node.output]
        if node.by_channels:
            folded = folded | flat  # a number for the bias
        wanted = needed[node.output] & ~folded
        parts = [wanted] * len(node.inputs)
        if channels_of(graph, node) is Channels.JOINED:  # a value may be there several times
            parts = np.split(wanted, np.cumsum([len(needed[name]) for name in node.inputs])[:-1])
        for name, part in zip(node.inputs, parts, strict=True):
            needed[name] |= _wanted_of_input(graph, node, part, len(needed[name]))
    return needed


def _wanted_of_input(graph: Graph, node: Node, wanted: Bools, length: int) -> Bools:
    channels = channels_of(graph, node)
    if channels in (Channels.SAME, Channels.JOINED):
        return wanted
    if channels is Channels.WEIGHTED:
        return read_channels(graph, node, wanted)
    if channels is Channels.FLATTENED:
        return np.asarray(wanted.reshape(length, -1).any(1))
    return np.full(length, not node.by_channels or bool(wanted.any()))  # a grouped convolution may not be needed at all


def _flat_constants(known: Known) -> Bools:
    flat = known.value.reshape(len(known.value), -1)
    return np.asarray(known.constant & (flat == flat[:, :1]).all(1))


def _stays_for_a_reader(node: Node, known: Known, needed: Bools) -> Bools:
    """The constant channels of a value that its reader cannot turn into a number per channel."""
    constant = known.constant & needed
    if not constant.any():
        return constant
    uneven = ~_flat_constants(known)
    if not node.by_channels:  # what follows may bring it to a padded border
        return np.asarray(constant & uneven)
    nonzero = known.value.reshape(len(constant), -1).any(1)
    return np.asarray(constant & nonzero & (uneven | any(side > 0 for side in node.options.get("padding", ()))))


def _couple(graph: Graph, kept: Flags) -> None:
    """Extend the selection until values with coupled channels keep the same ones."""
    beside: dict[str, list[Node]] = defaultdict(list)  # of each value, the nodes that read or make it
    for node in graph.nodes:
        for name in {*node.inputs, node.output}:
            beside[name].append(node)
    few = {node.output: node for node in (*graph.nodes, *reversed(graph.nodes)) if len(node.inputs) < MANY}
    many = {node.output: node for node in graph.nodes if len(node.inputs) >= MANY}
    while few or many:  # only what is beside a change: in sweeps over all nodes 1,000 sums in a bad order took 25 s
        node = (few or many).pop(next(iter(few or many)))
        before = {name: int(kept[name].sum()) for name in {*node.inputs, node.output}}
        _couple_node(graph, node, kept)
        for name, count in before.items():
            for other in beside[name] if int(kept[name].sum()) != count else ():
                if other is not node:
                    (few if len(other.inputs) < MANY else many)[other.output] = other


def _couple_node(graph: Graph, node: Node, kept: Flags) -> None:
    out, channels = kept[node.output], channels_of(graph, node)
    if channels is Channels.SAME or is_depthwise(graph, node):
        together = np.logical_or.reduce([out, *(kept[name] for name in node.inputs)])
        for name in (*node.inputs, node.output):
            kept[name] = together
    elif channels is Channels.JOINED:
        _couple_joined(node, kept)
    elif channels is Channels.FLATTENED:
        (name,) = node.inputs
        kept[name] = kept[name] | out.reshape(len(kept[name]), -1).any(1)
        kept[node.output] = np.repeat(kept[name], len(out) // len(kept[name]))
    elif node.by_channels and out.any() and not kept[node.inputs[0]].any():
        kept[node.inputs[0]] = np.arange(len(kept[node.inputs[0]])) == 0  # a layer needs an input to be one


def _couple_joined(node: Node, kept: Flags) -> None:
    ends = np.cumsum([len(kept[name]) for name in node.inputs])[:-1]
    for name, flags in zip(node.inputs, np.split(kept[node.output], ends), strict=True):
        kept[name] = kept[name] | flags
    kept[node.output] = np.concatenate([kept[name] for name in node.inputs])


def rebuilt(graph: Graph, plan: Plan) -> Graph:
    """The network with only the selected channels; constant ones become biases and planes."""
    tensors: dict[str, Any] = dict(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        if not plan.kept[node.output].any():
            continue
        nodes += _rebuilt_node(graph, node, plan, tensors)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _rebuilt_node(graph: Graph, node: Node, plan: Plan, tensors: dict[str, Any]) -> list[Node]:
    out, channels = plan.kept[node.output], channels_of(graph, node)
    if channels is Channels.WEIGHTED:
        return _rebuilt_layer(graph, node, plan, tensors)
    if channels is Channels.JOINED:
        return [replace(node, inputs=tuple(name for name in node.inputs if plan.kept[name].any()))]
    if channels is Channels.SAME:
        for name in node.tensors.values():
            tensors[name] = np.asarray(tensors[name])[out]
    if channels is Channels.SAME and node.opaque and node.options["shape"]:  # not a vector without a batch
        shape = (int(out.sum()), *node.options["shape"][1:])
        return [replace(node, options={**node.options, "shape": shape})]
    return [node]


def _rebuilt_layer(graph: Graph, node: Node, plan: Plan, tensors: dict[str, Any]) -> list[Node]:
    source, out = plan.known[node.inputs[0]], plan.kept[node.output]
    stays = plan.kept[node.inputs[0]]
    weight = np.array(graph.array(node, "weight"), np.float64)
    own = plan.known[node.output]
    flat = _flat_constants(own)
    # What dropped constants give, and what flat constants are; rows that nobody needs may hold anything: nothing.
    depthwise = is_depthwise(graph, node)
    dropped = source.constant & ~stays
    given = _given_by(graph, node, dropped, source, own)
    given = np.where(_column(flat, given), own.value, given)
    given = np.where(_column(plan.needed[node.output], given), given, 0.0)[out]
    weight[flat | ~plan.needed[node.output]] = 0.0
    weight = weight[out] if depthwise else weight[out][:, stays]
    name = node.tensors["weight"]
    tensors[name] = weight
    options = {**node.options, "groups": int(out.sum())} if depthwise else dict(node.options)
    layer = replace(node, tensors={"weight": name}, options=options)
    if is_flat(given):
        bias = given.reshape(len(given), -1)[:, 0]
        if not bias.any() and "bias" not in node.tensors:
            return [layer]
        bias_name = node.tensors.get("bias") or beside(name, "bias", tensors)
        tensors[bias_name] = bias
        return [replace(layer, tensors={**layer.tensors, "bias": bias_name})]
    plane = beside(name, "plane", tensors)
    tensors[plane] = given
    inner = f"{node.output}~"
    while any(other.output == inner for other in graph.nodes):
        inner += "~"
    return [replace(layer, output=inner), Node("plane", (inner,), node.output, {"value": plane})]


def _given_by(graph: Graph, node: Node, dropped: Bools, source: Known, own: Known) -> NDArray[np.float64]:
    """The contribution of removed input channels to a layer's output, with its bias."""
    if dropped.any():
        return computed(graph, node, [np.where(_column(dropped, source.value), source.value, 0.0)])
    bias = graph.array(node, "bias")
    shift = np.zeros(len(own.value)) if bias is None else bias.astype(np.float64)
    return np.broadcast_to(_column(shift, own.value), own.value.shape)


def _column(flags: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    return flags.reshape(-1, *[1] * (like.ndim - 1))

"""`shrink`: an ordinary smaller network with the same outputs."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from hypersparse.errors import CollapseWarning, ModelError
from hypersparse.export.batch_norm_folding import drop_unread, fold_batch_norms, fold_planes, fresh, unshared
from hypersparse.export.channel_elimination import MOST_ROUNDS, Plan, make_plan, rebuilt
from hypersparse.export.constants import Known, find_constants
from hypersparse.export.graph_module import Network, to_module
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, shapes
from hypersparse_runtime.limits import MOST_OF_A_VALUE


@dataclass(frozen=True)
class LayerChange:
    """The change of a conv or linear layer: counts before and after, and why output channels were removed."""

    name: str
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    weights: tuple[int, int]  # that are not zero
    unread: int  # output channels that nothing reads
    constant: int  # output channels that do not depend on the input
    why: str


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A smaller network with the same outputs, and a record of what was removed."""

    graph: Graph
    layers: tuple[LayerChange, ...]
    depends_on_input: bool
    parameters: tuple[int, int]  # of the dense network before and after, planes counted
    rounds: int

    def module(self) -> Network:
        """The smaller network as a PyTorch module."""
        return to_module(self.graph)


def shrink(model: nn.Module, input_shape: tuple[int, ...]) -> Shrunk:
    """Remove all structure of a model that its zeros make redundant, exactly, for inputs of this shape.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> _ = model[0].weight.data[1].zero_(), model[2].weight.data[0, 2].zero_()  # unit 1 is constant, 2 is not read
    >>> shrink(model, (2,)).module()
    Network(
      (0): Linear(in_features=2, out_features=1, bias=True)
      (2): Linear(in_features=1, out_features=1, bias=True)
    )
    """
    return shrink_graph(trace(model, input_shape))


def shrink_graph(graph: Graph, *, planes: bool = True) -> Shrunk:
    """The same for a graph; `planes=False` keeps constants that zero padding would turn into planes of numbers."""
    try:
        shapes(graph)
    except GraphError as error:
        raise ModelError(f"The network does not fit together: {error}") from None
    whole = unshared(graph)
    now = _widened(drop_unread(whole))
    reasons: dict[str, list[int]] = {}  # channels of a layer's output that went: unread, constant
    gone: dict[str, str] = {}
    depends, rounds, before = True, 0, (0, 0, 0)
    while before != _size(now) and rounds < MOST_ROUNDS:
        before, rounds = _size(now), rounds + 1
        now = drop_unread(fold_planes(fold_batch_norms(now)))
        known = find_constants(now, shapes(now))
        if known[now.output].whole:
            depends = False
            gone = {node.tensors["weight"]: "nothing of the input reaches the output" for node in _weighted(whole)}
            now = _constant_network(now, known)
            break
        now, known = _sums_with_constants(now, known, gone)
        plan = make_plan(now, known, planes=planes)
        _note(now, plan, reasons)
        now = drop_unread(fold_planes(rebuilt(now, plan)))
    if not depends:
        _warn()
    small = _narrowed(now, graph)
    return Shrunk(small, _layers(whole, small, reasons, gone), depends, (_elements(graph), _elements(small)), rounds)


def _widened(graph: Graph) -> Graph:
    """The graph in double precision, so that folding several times rounds only once."""
    wide = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in graph.tensors.items()
    }
    return replace(graph, tensors=wide)


def _narrowed(graph: Graph, original: Graph) -> Graph:
    first = next((array.dtype for array in original.tensors.values() if array.dtype.kind == "f"), np.dtype("float32"))
    back = {name: array.astype(first) if array.dtype.kind == "f" else array for name, array in graph.tensors.items()}
    return replace(graph, tensors=back)


def _size(graph: Graph) -> tuple[int, int, int]:
    nonzero = sum(int(np.count_nonzero(array)) for array in graph.tensors.values())
    return len(graph.nodes), sum(array.size for array in graph.tensors.values()), nonzero


def _elements(graph: Graph) -> int:
    read = {name for node in graph.nodes for role, name in node.tensors.items() if role not in ("mean", "variance")}
    return sum(graph.tensors[name].size for name in read)


def _sums_with_constants(graph: Graph, known: dict[str, Known], gone: dict[str, str]) -> tuple[Graph, dict[str, Known]]:
    """Replace sums with a constant side by the other side plus a plane, which removes a branch."""
    nodes, tensors = [], dict(graph.tensors)
    for node in graph.nodes:
        constant = [known[name].whole for name in node.inputs]
        if node.op != "add" or not any(constant) or all(constant):
            nodes.append(node)
            continue
        side = constant.index(True)
        name = fresh(f"{node.output}.plane", tensors)
        tensors[name] = known[node.inputs[side]].value
        nodes.append(Node("plane", (node.inputs[1 - side],), node.output, {"value": name}))
    changed = replace(graph, nodes=tuple(nodes), tensors=tensors)
    left = drop_unread(changed)
    still = {node.output for node in left.nodes}
    for node in _weighted(graph):
        if node.output not in still:
            gone[node.tensors["weight"]] = "a branch that is constant"
    return left, {name: found for name, found in known.items() if name in still or name == INPUT}


def _constant_network(graph: Graph, known: Mapping[str, Known]) -> Graph:
    """A network that is the same for every input: a linear layer of zeros, if the output is a vector."""
    value = known[graph.output].value
    if value.ndim != 1:
        return graph
    first = Node("mean", (INPUT,), "mean") if len(graph.input_shape) == 3 else Node("flatten", (INPUT,), "mean")
    features = graph.input_shape[0] if first.op == "mean" else int(np.prod(graph.input_shape))
    if len(value) * features > MOST_OF_A_VALUE:  # the zeros would be larger than any network
        return graph
    last = Node("linear", ("mean",), "constant", {"weight": "constant.weight", "bias": "constant.bias"})
    tensors = {"constant.weight": np.zeros((len(value), features)), "constant.bias": value}
    return replace(graph, nodes=(first, last), tensors=tensors)


def _warn() -> None:
    text = "The output does not depend on the input: no path of weights that are not zero is left between them."
    warnings.warn(text, CollapseWarning, stacklevel=3)


def _note(graph: Graph, plan: Plan, reasons: dict[str, list[int]]) -> None:
    for node in _weighted(graph):
        goes, constant = ~plan.kept[node.output], plan.known[node.output].constant
        counts = reasons.setdefault(node.tensors["weight"], [0, 0])
        counts[0] += int((goes & ~constant).sum())
        counts[1] += int((goes & constant).sum())


def _layers(
    graph: Graph, small: Graph, reasons: Mapping[str, list[int]], gone: Mapping[str, str]
) -> tuple[LayerChange, ...]:
    after = {node.tensors["weight"]: node for node in _weighted(small)}
    rows = []
    for node in _weighted(graph):
        name = node.tensors["weight"]
        before_shape, before = _counts(graph, node)
        left_shape, left = _counts(small, after[name]) if name in after else ((0, 0), 0)
        unread, constant = reasons.get(name, [0, 0])
        why = "" if name in after else gone.get(name, "its output is constant" if constant else "nothing reads it")
        inputs, outputs = (before_shape[1], left_shape[1]), (before_shape[0], left_shape[0])
        rows.append(LayerChange(name.removesuffix(".weight"), inputs, outputs, (before, left), unread, constant, why))
    return tuple(rows)


def _weighted(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.by_channels]


def _counts(graph: Graph, node: Node) -> tuple[tuple[int, int], int]:
    weight = graph.tensors[node.tensors["weight"]]
    return (weight.shape[0], weight.shape[1] * node.options.get("groups", 1)), int(np.count_nonzero(weight))

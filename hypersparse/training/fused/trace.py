"""`trace_network`: a network as convolutions with batch norm, their sums before a ReLU, and what follows the last."""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import add, attrgetter, iadd
from typing import Any, TypeVar

import torch
from torch import fx, nn
from torch.nn import functional

from hypersparse.training.concurrency.cuda_streams import CAPTURE_LOCK

FEWEST = 3  # activations that are worth a fused pass
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
DROPOUTS = nn.Dropout | nn.Dropout2d
POOL_DEFAULTS = {"padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
TWO = (2, (2, 2), [2, 2])
Layer = TypeVar("Layer", bound=nn.Module)
Shape = tuple[int, ...]
log = logging.getLogger("hypersparse")


@dataclass(frozen=True)
class Branch:
    """What is added to an activation before its ReLU: a convolution with batch norm, or an earlier activation."""

    source: int  # index of the activation it reads; 0 is the network's input
    conv: nn.Conv2d | None = None  # both None: the activation itself (identity shortcut)
    norm: nn.BatchNorm2d | None = None


@dataclass(frozen=True)
class Activation:
    """relu(sum of one or two branches), then optionally a max pooling."""

    branches: tuple[Branch, ...]  # in the order of addition, at least one with a convolution
    pool: int = 1  # 2: followed by MaxPool2d(2)


@dataclass(frozen=True)
class TracedNetwork:
    """Activations in the order of computation, and the module that maps the last one to the outputs.

    A branch with `source` i reads `activations[i - 1]` after its pooling. Layers and parameters are the model's own.
    """

    activations: tuple[Activation, ...]
    tail: nn.Module


class _MisfitError(Exception):
    """Why a network, or an activation of it, cannot be fused."""


def trace_network(model: nn.Module, shape: Shape) -> TracedNetwork | None:
    """The activations and the tail of a model for images of `shape` (channels, height, width), or None.

    The result holds for the model's present mode, training or evaluation, and for the weights that now learn. It must
    not be called inside `CAPTURE_LOCK.working()`: torch.fx replaces functions that all threads use.
    """
    try:
        graph = _symbolic_graph(model)
        _remove_no_ops_(graph, model)
        matcher = _Matcher(model, graph, shape)
        count, rest = matcher.cut()
        tail = _tail(model, rest, matcher.values[count])
        return TracedNetwork(tuple(matcher.activations[:count]), tail)
    except _MisfitError as misfit:
        log.debug("%s is not fused: %s.", type(model).__name__, misfit)
        return None


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True  # else a change of a buffer happens while tracing, and is not in the graph

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if not torch.is_grad_enabled():  # which a graph does not contain
            raise _MisfitError("its forward pass disables gradients")
        return super().create_node(*args, **kwargs)


def _symbolic_graph(model: nn.Module) -> fx.Graph:
    for path, module in model.named_modules():
        if any(getattr(module, hooks) for hooks in HOOKS) or "forward" in vars(module):
            raise _MisfitError(f"`{path or 'the model'}` has hooks or a forward pass of its own")
    with CAPTURE_LOCK.building(), torch.enable_grad(), _without_side_effects(model):
        try:
            graph = _Tracer().trace(model)
        except _MisfitError:
            raise
        except Exception as error:  # a forward pass raises anything for symbols
            raise _MisfitError(f"torch.fx cannot trace it, {type(error).__name__}: {str(error)[:100]!r}") from error
    if len(graph.find_nodes(op="placeholder")) != 1:
        raise _MisfitError("its forward pass does not take exactly one argument")
    return graph


@contextmanager
def _without_side_effects(model: nn.Module) -> Iterator[None]:
    """Restore the attributes of modules and the random generators, and raise if they changed: no graph shows that."""
    attributes = {module: vars(module).copy() for module in model.modules()}
    generators = torch.get_rng_state(), random.getstate()
    changed = False
    try:
        yield
    finally:
        for module, before in attributes.items():
            now = vars(module)
            if now.keys() != before.keys() or any(now[name] is not before[name] for name in before):
                changed = True
                now.clear()
                now.update(before)
        if not torch.equal(generators[0], torch.get_rng_state()) or generators[1] != random.getstate():
            changed = True
            torch.set_rng_state(generators[0])
            random.setstate(generators[1])
    if changed:
        raise _MisfitError("its forward pass changes attributes or draws random numbers in Python")


def _remove_no_ops_(graph: fx.Graph, model: nn.Module) -> None:
    for node in graph.find_nodes(op="call_module"):
        module = model.get_submodule(node.target)
        if type(module) is nn.Identity or (isinstance(module, DROPOUTS) and module.p == 0):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)


@dataclass(frozen=True)
class _Operation:
    """The ways to call an operation."""

    functions: frozenset[Callable[..., Any]]
    methods: frozenset[str] = frozenset()
    module: type[nn.Module] | None = None

    def is_called(self, node: Any, model: nn.Module) -> bool:
        """Whether this value of a graph is a call of the operation."""
        if not isinstance(node, fx.Node):
            return False
        if node.op == "call_module":
            return type(model.get_submodule(str(node.target))) is self.module
        return (node.op == "call_function" and node.target in self.functions) or (
            node.op == "call_method" and node.target in self.methods
        )


RELU = _Operation(
    frozenset((functional.relu, functional.relu_, torch.relu, torch.relu_)), frozenset(("relu", "relu_")), nn.ReLU
)
ADD = _Operation(frozenset((add, iadd, torch.add)), frozenset(("add", "add_")))
POOL = _Operation(frozenset((functional.max_pool2d, torch.max_pool2d)), module=nn.MaxPool2d)


class _Matcher:
    """Finds the activations of a graph in the order of its nodes."""

    def __init__(self, model: nn.Module, graph: fx.Graph, shape: Shape) -> None:
        self.model, self.graph = model, graph
        [images] = graph.find_nodes(op="placeholder")
        self.values = [images]  # nodes with the input and the value of each activation
        self.shapes = [shape]
        self.activations: list[Activation] = []
        self.inner: list[set[fx.Node]] = [{images}]  # nodes that each activation replaces, its value included
        self.uses = Counter(id(tensor) for node in graph.nodes for tensor in _tensors_of(node, model))
        self.misfit: _MisfitError | None = None  # the first
        for node in graph.nodes:
            if RELU.is_called(node, model):
                try:
                    self._add_activation(node)
                except _MisfitError as misfit:  # what reads it does not fit either
                    self.misfit = self.misfit or misfit

    def cut(self) -> tuple[int, list[fx.Node]]:
        """The number of activations that can be fused, and the nodes that then read only the last one of them."""
        for count in range(len(self.activations), FEWEST - 1, -1):
            fused = set[fx.Node]().union(*self.inner[: count + 1])
            rest = [node for node in self.graph.nodes if node not in fused]
            if {source for node in rest for source in node.all_input_nodes} - set(rest) == {self.values[count]}:
                return count, rest
        reason = self.misfit or "what follows its activations reads more than the last one"
        raise _MisfitError(f"fewer than {FEWEST} activations can be separated from the rest ({reason})")

    def _add_activation(self, relu: fx.Node) -> None:
        summands = self._summands(relu)
        branches = tuple(map(self._branch, summands))
        shapes = {self._shape(branch) for branch in branches}
        if len(shapes) != 1 or not relu.users or all(branch.conv is None for branch in branches):
            raise _MisfitError(f"`{relu}` has no convolution, no reader or summands of different shapes")
        value, pool, (channels, *sides) = relu, 1, shapes.pop()
        reader = next(iter(relu.users))
        if len(relu.users) == 1 and reader.users and _halves(reader, self.model):
            value, pool, sides = reader, 2, [side // 2 for side in sides]
        layers = {node for norm in summands if norm not in self.values for node in (norm, norm.all_input_nodes[0])}
        self.inner.append({relu, value, *relu.all_input_nodes, *layers})
        self.values.append(value)
        self.shapes.append((channels, *sides))
        self.activations.append(Activation(branches, pool))

    def _summands(self, relu: fx.Node) -> list[fx.Node]:
        total, *others = relu.all_input_nodes
        if others or not ADD.is_called(total, self.model):
            return [total, *others]
        summands = total.all_input_nodes
        if summands != list(total.args) or total.kwargs or len(total.users) != 1:
            raise _MisfitError(f"`{total}` is not a plain sum of two that `{relu}` alone reads")
        if total.target in (iadd, "add_") and summands[0] in self.values:
            raise _MisfitError(f"`{total}` changes an activation")
        return summands

    def _branch(self, node: fx.Node) -> Branch:
        if node in self.values[1:]:
            return Branch(self.values.index(node))
        norm, conv_node = self._layer(node, nn.BatchNorm2d)
        conv, source = self._layer(conv_node, nn.Conv2d)
        if not (_conv_fits(conv) and _norm_fits(norm) and norm.training == self.model.training):
            raise _MisfitError(f"`{conv_node}` or `{node}` has options that no kernel has")
        if source not in self.values:
            raise _MisfitError(f"`{conv_node}` reads `{source}`, which is not an activation")
        return Branch(self.values.index(source), conv, norm)

    def _layer(self, node: fx.Node, kind: type[Layer]) -> tuple[Layer, fx.Node]:
        """The module that computes a node with a single reader, and the node that it reads."""
        module = self.model.get_submodule(str(node.target)) if node.op == "call_module" else None
        if type(module) is not kind or len(node.users) != 1 or len(node.all_input_nodes) != 1:
            raise _MisfitError(f"`{node}` is not a {kind.__name__} with one reader")
        if any(self.uses[id(tensor)] > 1 for tensor in _tensors_of(node, self.model)):
            raise _MisfitError(f"the weights of `{node}` are used elsewhere too")
        if not all(map(_learns, module.parameters())):
            raise _MisfitError(f"`{node}` is frozen or has hooks on its weights")
        return module, node.all_input_nodes[0]

    def _shape(self, branch: Branch) -> Shape:
        channels, *sides = self.shapes[branch.source]
        if branch.conv is None:
            return channels, *sides
        stride = branch.conv.stride[0]
        return branch.conv.out_channels, *(-(-side // stride) for side in sides)


def _tensors_of(node: fx.Node, model: nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers that a node uses."""
    if node.op == "get_attr":
        value = attrgetter(str(node.target))(model)
        return [value] if isinstance(value, torch.Tensor) else []
    if node.op != "call_module":
        return []
    module = model.get_submodule(str(node.target))
    return [*module.parameters(), *module.buffers()]


def _learns(weight: nn.Parameter) -> bool:
    return weight.requires_grad and not weight._backward_hooks and not weight._post_accumulate_grad_hooks


def _conv_fits(conv: nn.Conv2d) -> bool:
    side, stride = conv.kernel_size[0], conv.stride[0]
    plain = conv.groups == 1 and conv.dilation == (1, 1) and conv.padding_mode == "zeros"
    square = conv.kernel_size == (side, side) and conv.stride == (stride, stride)
    return plain and square and side in (1, 3) and stride in (1, 2) and conv.padding == (side // 2, side // 2)


def _norm_fits(norm: nn.BatchNorm2d) -> bool:
    return norm.affine and norm.track_running_stats and norm.momentum is not None


def _halves(node: fx.Node, model: nn.Module) -> bool:
    """Whether a node is a max pooling with the options of MaxPool2d(2)."""
    if not POOL.is_called(node, model):
        return False
    if node.op == "call_module":
        pool = model.get_submodule(str(node.target))
        options = {name: getattr(pool, name) for name in ("kernel_size", "stride", *POOL_DEFAULTS)}
    else:
        given = dict(zip(("input", "kernel_size", "stride", *POOL_DEFAULTS), node.args, strict=False))
        options = {"stride": None, **POOL_DEFAULTS, **given, **node.kwargs}
    kernel_size = options["kernel_size"]
    sizes = kernel_size in TWO and (options["stride"] or kernel_size) in TWO
    return sizes and all(options[name] in (default, (default, default)) for name, default in POOL_DEFAULTS.items())


class Tail(nn.Module):
    """What follows the last fused activation; each kind of tail is a class."""


def _tail(model: nn.Module, rest: list[fx.Node], last: fx.Node) -> Tail:
    graph = fx.Graph()
    copies = {last: graph.placeholder("activation")}
    for node in rest:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    used = fx.GraphModule(model, graph)  # the modules and tensors of the model that the graph uses, and no others
    code = graph.python_code("self")
    tail = _tail_class(code.src, tuple(code.globals.items()))()
    for kind in ("_modules", "_parameters", "_buffers"):
        getattr(tail, kind).update(getattr(used, kind))
    tail.training = model.training
    return tail


@cache
def _tail_class(source: str, names: tuple[tuple[str, Any], ...]) -> type[Tail]:
    """One class for all graphs with the same source: torch.compile compiles it once for all runs of a process.

    A `GraphModule` has a class of its own, for which it compiles again.
    """
    scope = dict(names)
    exec(source, scope)  # what torch.fx wrote
    return type("Tail", (Tail,), {"forward": scope["forward"]})

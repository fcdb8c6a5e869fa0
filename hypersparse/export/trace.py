"""`trace`: a PyTorch model as a `Graph`, through `torch.export`."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from hypersparse.errors import ModelError
from hypersparse.export.module import MADE
from hypersparse.export.opaque import GETITEM
from hypersparse.export.quiet import first_line, quiet
from hypersparse.sparsity.evaluating import evaluating
from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, shapes


class _BatchSizeError(Exception):
    """The model does arithmetic with the batch size, which a graph cannot say."""


def trace(model: nn.Module, input_shape: Sequence[int], about: Mapping[str, Any] = MappingProxyType({})) -> Graph:
    """The network as it computes in evaluation mode, for inputs of this shape (without the batch).

    Arrays have their names in the model's state_dict; all of it is in the graph, read by a node or not. What a graph
    has no word for stays an opaque node. Where the model depends on the size of its batch, `about["batch"]` is 1.

    >>> graph = trace(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)), (1, 4, 4))
    >>> [node.op for node in graph.nodes]
    ['conv', 'relu', 'flatten', 'linear']
    """
    shape = tuple(int(side) for side in input_shape)
    about = dict(about)
    with evaluating(model):
        try:
            graph = _translated(_export(model, shape, any_batch=True), shape)
        except _BatchSizeError:
            graph = _translated(_export(model, shape, any_batch=False), shape)
            about["batch"] = 1
    state = {name: _array(name, tensor) for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    graph = replace(graph, tensors={**graph.tensors, **state}, about=about)
    try:
        shapes(graph)
    except GraphError as error:
        raise ModelError(f"The model was traced to a network that does not fit together: {error}") from None
    return graph


def _export(model: nn.Module, shape: tuple[int, ...], *, any_batch: bool) -> ExportedProgram:
    like = next((tensor for tensor in model.state_dict().values() if tensor.is_floating_point()), torch.zeros(()))
    example = torch.zeros(2 if any_batch else 1, *shape, dtype=like.dtype, device=like.device)
    dynamic = ({0: Dim("batch")},) if any_batch else None
    try:
        with quiet(), torch.no_grad():
            program: ExportedProgram = torch.export.export(model, (example,), dynamic_shapes=dynamic)
            plain: ExportedProgram = program.run_decompositions({})
            return plain
    except Exception as error:  # torch.export raises whatever the model or its own parts do
        if any_batch:
            raise _BatchSizeError from error
        said = f"torch.export cannot trace {type(model).__name__} for inputs {shape}: {first_line(error)}"
        raise ModelError(said) from None


@dataclass
class _Translation:
    """What is known of an exported program while its nodes are gone through."""

    tensors: dict[str, Any] = field(default_factory=dict)
    arrays: dict[fx.Node, str] = field(default_factory=dict)  # parameters and buffers, by their placeholders
    values: dict[fx.Node, str] = field(default_factory=dict)  # names of values; an identity has its input's
    batch: set[fx.Node] = field(default_factory=set)  # nodes that are the batch size
    nodes: list[Node] = field(default_factory=list)


def _translated(program: ExportedProgram, shape: tuple[int, ...]) -> Graph:
    state = _Translation()
    output: fx.Node | None = None
    for node in program.graph.nodes:
        if node.op == "placeholder":
            _placeholder(program, node, state)
        elif node.op == "output":
            output = _only_output(program, node)
        else:
            _call(node, state)
    if output is None or output not in state.values or not state.nodes:
        raise ModelError("The model should compute one tensor from its input; it gives its input or a constant back.")
    return _needed(Graph(shape, tuple(state.nodes), state.tensors), state.values[output])


def _placeholder(program: ExportedProgram, node: fx.Node, state: _Translation) -> None:
    spec = next(spec for spec in program.graph_signature.input_specs if getattr(spec.arg, "name", None) == node.name)
    if spec.kind == InputKind.USER_INPUT:
        if INPUT in state.values.values():
            raise ModelError("The model takes several inputs; only models of one input can be exported.")
        state.values[node] = INPUT
        return
    source = program.state_dict if spec.target in program.state_dict else program.constants
    in_state_dict = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.persistent is not False
    name = str(spec.target) if in_state_dict else f"{MADE}{spec.target}"
    state.arrays[node] = name
    state.tensors[name] = _array(name, source[spec.target])


def _only_output(program: ExportedProgram, node: fx.Node) -> fx.Node:
    names = program.graph_signature.user_outputs
    found = [argument for argument in node.args[0] if getattr(argument, "name", None) in names]  # type: ignore[union-attr]
    if len(names) != 1 or len(found) != 1:
        raise ModelError(f"The model should give one tensor; it gives {len(names)}. Wrap it so that it gives one.")
    return found[0]  # type: ignore[return-value]


def _array(name: str, tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16 or tensor.is_complex():
        raise ModelError(f"`{name}` is {tensor.dtype}, which a file cannot hold; convert the model with `.float()`.")
    return tensor.detach().cpu().numpy().copy()


def _call(node: fx.Node, state: _Translation) -> None:
    if not node.users:  # a check of torch's own
        return
    call = Call(node, state)
    if call.name == "aten.sym_size.int" and call.arguments["dim"] == 0:
        state.batch.add(node)
        return
    if call.name in IDENTITIES or (call.name == "aten.dropout.default" and not call.arguments["train"]):
        state.values[node] = state.values[node.args[0]]  # type: ignore[index]
        return
    if call.batch_norm_of_decomposition():
        return
    rule = RULES.get(call.name)
    made = rule(call) if rule is not None and call.simple else None
    if made is None:
        made = _opaque(call)
    state.nodes.append(made)
    state.values[node] = made.output


class Call:
    """One call in an exported program, its arguments by their names in the operator's schema."""

    def __init__(self, node: fx.Node, state: _Translation) -> None:
        self.node, self.state = node, state
        self.name = GETITEM if node.target is operator.getitem else str(node.target)
        self.arguments: dict[str, Any] = dict(enumerate(node.args)) if self.name == GETITEM else self._bound()  # type: ignore[arg-type]

    def _bound(self) -> dict[str, Any]:
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:  # arithmetic with the batch size, or an operator that is not torch's
            raise _BatchSizeError(str(self.node.target))
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, self.node.args, strict=False)), **self.node.kwargs}
        defaults = {argument.name: argument.default_value for argument in schema.arguments}
        return {name: given.get(name, defaults[name]) for name in names}

    @property
    def simple(self) -> bool:
        """Whether its first argument is a value that comes from the input."""
        return bool(self.node.args) and self.node.args[0] in self.state.values

    @property
    def output(self) -> str:
        """The name of its value."""
        return self.node.name

    def shape(self, node: fx.Node | None = None) -> tuple[int, ...]:
        """Of its value or of another node's, without the batch."""
        return tuple(int(side) for side in (node or self.node).meta["val"].shape[1:])

    def input_shape(self) -> tuple[int, ...]:
        """Of its first argument's value, without the batch."""
        return self.shape(self.node.args[0])  # type: ignore[arg-type]

    def made(self, op: str, tensors: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> Node | None:
        """A node of this op on the first argument; None if an array of it is not one of the model's."""
        named = {role: array for role, array in tensors.items() if array is not None}
        if any(array not in self.state.arrays for array in named.values()):
            return None
        arrays = {role: self.state.arrays[array] for role, array in named.items()}
        return Node(op, (self.state.values[self.node.args[0]],), self.output, arrays, options)  # type: ignore[index]

    def batch_norm_of_decomposition(self) -> bool:
        """Whether it only picks the values out of a batch norm's three outputs."""
        source = self.node.args[0] if self.name == GETITEM else None
        if self.name == BATCH_NORM and self.simple and len(self.node.meta["val"][0].shape) in (2, 4):
            return True
        if not isinstance(source, fx.Node) or str(source.target) != BATCH_NORM or source in self.state.values:
            return False
        made = _batch_norm(Call(source, self.state), self.output)
        self.state.nodes.append(made)
        self.state.values[self.node] = made.output
        return True


BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"
IDENTITIES = ("aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default")


def _batch_norm(call: Call, output: str) -> Node:
    given, state = call.arguments, call.state
    source = state.values[call.node.args[0]]  # type: ignore[index]
    roles = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
    arrays = {}
    for role, name in roles.items():
        if given[name] is not None:
            arrays[role] = state.arrays[given[name]]
            continue
        arrays[role] = f"{MADE}{output}.{role}"  # a norm without weights of its own
        like = state.tensors[arrays["mean"]] if "mean" in arrays else state.tensors[state.arrays[given["running_mean"]]]
        state.tensors[arrays[role]] = like * 0 + (1 if role == "weight" else 0)
    return Node("batch_norm", (source,), output, arrays, {"epsilon": float(given["eps"])})


def _conv(call: Call) -> Node | None:
    given = call.arguments
    if len(call.input_shape()) != 3:
        return None
    stride, dilation = _pair(given["stride"]), _pair(given["dilation"])
    padding = given["padding"]
    if isinstance(padding, str):
        sides = given["weight"].meta["val"].shape[2:]
        edges = [step * (int(side) - 1) for step, side in zip(dilation, sides, strict=True)]
        if padding == "same" and any(edge % 2 for edge in edges):
            return None
        padding = [edge // 2 for edge in edges] if padding == "same" else [0, 0]
    options = {"stride": stride, "padding": _pair(padding), "dilation": dilation, "groups": int(given["groups"])}
    return call.made("conv", {"weight": given["weight"], "bias": given["bias"]}, **options)


def _linear(call: Call) -> Node | None:
    if len(call.input_shape()) != 1:
        return None
    return call.made("linear", {"weight": call.arguments["weight"], "bias": call.arguments["bias"]})


def _relu(call: Call) -> Node | None:
    return call.made("relu")


def _add(call: Call) -> Node | None:
    first, second = call.arguments["self"], call.arguments["other"]
    if second in call.state.arrays and tuple(second.meta["val"].shape) == call.shape() and call.arguments["alpha"] == 1:
        return call.made("plane", {"value": second})
    both = all(isinstance(part, fx.Node) and part in call.state.values for part in (first, second))
    if not both or call.arguments["alpha"] != 1 or call.shape(first) != call.shape(second):
        return None
    return Node("add", (call.state.values[first], call.state.values[second]), call.output)


def _max_pool(call: Call) -> Node | None:
    given = call.arguments
    if given["ceil_mode"] or _pair(given["dilation"]) != (1, 1):
        return None
    return _pool(call, "max_pool")


def _avg_pool(call: Call) -> Node | None:
    given = call.arguments
    counts_padding = given["count_include_pad"] or _pair(given["padding"]) == (0, 0)
    if given["ceil_mode"] or given["divisor_override"] is not None or not counts_padding:
        return None
    return _pool(call, "avg_pool")


def _pool(call: Call, op: str) -> Node | None:
    given = call.arguments
    if len(call.input_shape()) != 3:
        return None
    kernel = _pair(given["kernel_size"])
    stride = _pair(given["stride"]) if given["stride"] else kernel
    return call.made(op, kernel=kernel, stride=stride, padding=_pair(given["padding"]))


def _adaptive_avg_pool(call: Call) -> Node | None:
    shape, sides = call.input_shape(), call.shape()[1:]
    if len(shape) != 3 or any(before % after for before, after in zip(shape[1:], sides, strict=True)):
        return None
    kernel = (shape[1] // sides[0], shape[2] // sides[1])
    return call.made("avg_pool", kernel=kernel, stride=kernel, padding=(0, 0))


def _mean(call: Call) -> Node | None:
    shape, given = call.input_shape(), call.arguments
    if len(shape) != 3 or given["dtype"] is not None or {dim % 4 for dim in given["dim"] or ()} != {2, 3}:
        return None
    if given["keepdim"]:
        return call.made("avg_pool", kernel=shape[1:], stride=shape[1:], padding=(0, 0))
    return call.made("mean")


def _flatten(call: Call) -> Node | None:
    before, after = call.input_shape(), call.shape()
    batch = call.node.args[0].meta["val"].shape[0], call.node.meta["val"].shape[0]  # type: ignore[union-attr]
    if len(after) != 1 or batch[0] != batch[1] or len(before) < 1:
        return None
    return call.made("flatten")


def _pair(value: Any) -> tuple[int, int]:
    sides = [int(side) for side in value] if isinstance(value, list | tuple) else [int(value)]
    return (sides[0], sides[-1])


RULES: Mapping[str, Callable[[Call], Node | None]] = MappingProxyType(
    {
        "aten.conv2d.default": _conv,
        "aten.conv2d.padding": _conv,
        "aten.linear.default": _linear,
        "aten.relu.default": _relu,
        "aten.add.Tensor": _add,
        "aten.max_pool2d.default": _max_pool,
        "aten.avg_pool2d.default": _avg_pool,
        "aten.adaptive_avg_pool2d.default": _adaptive_avg_pool,
        "aten.mean.dim": _mean,
        "aten.flatten.using_ints": _flatten,
        "aten.view.default": _flatten,
        "aten.reshape.default": _flatten,
    }
)


class _Opaque:
    """Writes the arguments of a call as JSON, and remembers which values and arrays they name."""

    def __init__(self, call: Call) -> None:
        self.call, self.inputs, self.tensors = call, list[str](), dict[str, str]()

    def said(self, value: Any) -> Any:
        """An argument as JSON."""
        if isinstance(value, fx.Node):
            return self.reference(value)
        if isinstance(value, list | tuple):
            return [self.said(item) for item in value]
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, bool | int | float | str) or value is None:
            return value
        if isinstance(value, torch.device | torch.layout | torch.memory_format):
            return None  # where and how a tensor lies does not change it
        raise ModelError(f"`{self.call.name}` has an argument {value!r} that cannot be written down.")

    def reference(self, value: fx.Node) -> dict[str, Any]:
        """What stands for a value, an array or the batch size."""
        state = self.call.state
        if value in state.batch:
            return {"batch": 1}
        if value in state.arrays:
            role = f"t{len(self.tensors)}"
            self.tensors[role] = state.arrays[value]
            return {"tensor": role}
        if value not in state.values:
            raise _BatchSizeError(value.name)
        self.inputs.append(state.values[value])
        return {"input": len(self.inputs) - 1}


def _opaque(call: Call) -> Node:
    """A node that only PyTorch can run."""
    writer = _Opaque(call)
    given = [writer.said(value) for value in call.node.args]
    keywords = {name: writer.said(value) for name, value in call.node.kwargs.items()}
    keywords = {name: value for name, value in keywords.items() if value is not None}
    several = isinstance(call.node.meta.get("val"), list | tuple)
    options = {"arguments": given, "keywords": keywords, "shape": None if several else call.shape()}
    return Node(call.name, tuple(writer.inputs), call.output, writer.tensors, options)


def _needed(graph: Graph, output: str) -> Graph:
    """The graph without what its output does not depend on; the last node makes the output."""
    wanted, kept = {output}, []
    for node in reversed(graph.nodes):
        if node.output in wanted:
            wanted.update(node.inputs)
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept)))

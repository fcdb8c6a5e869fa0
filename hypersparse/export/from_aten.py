"""The calls of an exported program as nodes of a `Graph`: a rule for each operation that a graph has a word for."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from hypersparse.errors import ModelError
from hypersparse.export.aten_ops import GETITEM
from hypersparse.export.graph_module import MADE
from hypersparse_runtime.graph import MOST_BOUND, Node


class BatchSizeError(Exception):
    """The model does arithmetic with the batch size, which a graph cannot say."""


@dataclass
class Translation:
    """What is known of an exported program while its nodes are gone through."""

    tensors: dict[str, Any] = field(default_factory=dict)
    arrays: dict[fx.Node, str] = field(default_factory=dict)  # parameters and buffers, by their placeholders
    values: dict[fx.Node, str] = field(default_factory=dict)  # names of values; an identity has its input's
    batch: set[fx.Node] = field(default_factory=set)  # nodes that are the batch size
    nodes: list[Node] = field(default_factory=list)


def translate_(node: fx.Node, state: Translation) -> None:
    """Add what a call computes to the translation, by its rule or as an opaque node."""
    if not node.users:  # a check of torch's own
        return
    call = Call(node, state)
    if call.name == "aten.sym_size.int" and call.arguments["dim"] == 0:
        state.batch.add(node)
        return
    if call.name in IDENTITIES or (call.name == "aten.dropout.default" and not call.arguments["train"]):
        _pass_on_(node, state)
        return
    if call.batch_norm_of_decomposition():
        return
    rule = RULES.get(call.name)
    made = rule(call) if rule is not None and call.simple else None
    if made is None:
        made = _opaque(call)
    state.nodes.append(made)
    state.values[node] = made.output


def _pass_on_(node: fx.Node, state: Translation) -> None:
    """What a node gives back is its argument: a value, or an array of the model's."""
    source: Any = node.args[0]
    if source in state.arrays:
        state.arrays[node] = state.arrays[source]
    else:
        state.values[node] = state.values[source]


class Call:
    """One call in an exported program, its arguments by their names in the operator's schema."""

    def __init__(self, node: fx.Node, state: Translation) -> None:
        self.node, self.state = node, state
        self.name = GETITEM if node.target is operator.getitem else str(node.target)
        self.arguments: dict[str, Any] = dict(enumerate(node.args)) if self.name == GETITEM else self._bound()  # type: ignore[arg-type]

    def _bound(self) -> dict[str, Any]:
        schema = getattr(self.node.target, "_schema", None)
        if schema is None:  # arithmetic with the batch size, or an operator that is not torch's
            raise BatchSizeError(str(self.node.target))
        names = [argument.name for argument in schema.arguments]
        given = {**dict(zip(names, self.node.args, strict=False)), **self.node.kwargs}
        defaults = {argument.name: argument.default_value for argument in schema.arguments}
        return {name: given.get(name, defaults[name]) for name in names}

    @property
    def simple(self) -> bool:
        """Whether its first argument is a value that comes from the input, or a list of such values."""
        first = self.node.args[0] if self.node.args else None
        given = first if isinstance(first, list | tuple) else (first,)
        return all(isinstance(value, fx.Node) and value in self.state.values for value in given)

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
            arrays = (self.arguments[name] for name in BATCH_NORM_ARRAYS.values())
            return all(array is None or array in self.state.arrays for array in arrays)
        if not isinstance(source, fx.Node) or str(source.target) != BATCH_NORM or source in self.state.values:
            return False
        made = _batch_norm(Call(source, self.state), self.output)
        self.state.nodes.append(made)
        self.state.values[self.node] = made.output
        return True


BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"
BATCH_NORM_ARRAYS = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
IDENTITIES = ("aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default")


def _batch_norm(call: Call, output: str) -> Node:
    given, state = call.arguments, call.state
    source = state.values[call.node.args[0]]  # type: ignore[index]
    arrays = {}
    for role, name in BATCH_NORM_ARRAYS.items():
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


def _clip(call: Call) -> Node | None:
    """ReLU6, Hardtanh and clamps between numbers."""
    given = call.arguments
    low = given.get("min_val", given.get("min"))
    high = given.get("max_val", given.get("max"))
    if call.name == "aten.relu6.default":
        low, high = 0.0, 6.0
    both = {name: float(bound) for name, bound in (("low", low), ("high", high)) if bound is not None}
    usable = all(abs(bound) <= MOST_BOUND for bound in both.values())  # infinity and NaN are not
    if not both or not usable or both.get("low", -MOST_BOUND) > both.get("high", MOST_BOUND):
        return None
    return call.made("clip", {}, **both)


def _add(call: Call) -> Node | None:
    first, second = call.arguments["self"], call.arguments["other"]
    if call.arguments["alpha"] != 1 or call.input_shape() != call.shape():  # the first may be repeated for the second
        return None
    if second in call.state.arrays and tuple(second.meta["val"].shape) == call.shape():
        return call.made("plane", {"value": second})
    both = all(isinstance(part, fx.Node) and part in call.state.values for part in (first, second))
    if not both or call.shape(first) != call.shape(second):
        return None
    return Node("add", (call.state.values[first], call.state.values[second]), call.output)


def _concat(call: Call) -> Node | None:
    parts, sides = call.arguments["tensors"], len(call.shape()) + 1
    if (
        sides not in (2, 4)
        or call.arguments["dim"] % sides != 1
        or any(len(call.shape(part)) + 1 != sides for part in parts)
    ):
        return None
    return Node("concat", tuple(call.state.values[part] for part in parts), call.output)


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


def _softmax(call: Call) -> Node | None:
    """Over the classes, where nothing comes after it."""
    given, op = call.arguments, "log_softmax" if "log_softmax" in call.name else "softmax"
    last = all(user.op == "output" for user in call.node.users)
    same_type = call.node.meta["val"].dtype == call.node.args[0].meta["val"].dtype  # type: ignore[union-attr]
    if not last or not same_type or len(call.shape()) != 1 or given["dim"] % 2 != 1:
        return None
    return call.made(op)


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
        **{f"aten.{name}.default": _clip for name in ("relu6", "hardtanh", "clamp", "clip", "clamp_min", "clamp_max")},
        "aten.add.Tensor": _add,
        **{f"aten.{name}.default": _concat for name in ("cat", "concat", "concatenate")},
        "aten.max_pool2d.default": _max_pool,
        "aten.avg_pool2d.default": _avg_pool,
        "aten.adaptive_avg_pool2d.default": _adaptive_avg_pool,
        "aten.mean.dim": _mean,
        "aten.flatten.using_ints": _flatten,
        "aten.view.default": _flatten,
        **{f"aten.{name}.int": _softmax for name in ("softmax", "log_softmax")},
        **{f"aten._{name}.default": _softmax for name in ("softmax", "log_softmax")},
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
            raise BatchSizeError(value.name)
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

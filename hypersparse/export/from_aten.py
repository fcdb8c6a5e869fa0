"""The calls of an exported program as nodes of a `Graph`: by the rules of the operations, or as opaque nodes."""

from typing import Any

import torch
from torch import fx

from hypersparse.errors import ModelError
from hypersparse.export.aten_call import GETITEM, BatchSizeError, Call, Translation
from hypersparse.export.operations import operations_for
from hypersparse_runtime.graph import Node

IDENTITIES = ("aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default")


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
    if call.name == GETITEM and state.values.get(node.args[0]) == call.output:  # type: ignore[arg-type]
        state.values[node] = call.output
        return
    made = _by_rule(call) or _opaque(call)
    state.nodes.append(made)
    state.values[node] = made.output


def _by_rule(call: Call) -> Node | None:
    fitting = operations_for(call.name) if call.simple else []
    return next((made for each in fitting if (made := each.from_aten(call)) is not None), None)


def _pass_on_(node: fx.Node, state: Translation) -> None:
    """What a node gives back is its argument: a value, or an array of the model's."""
    source: Any = node.args[0]
    if source in state.arrays:
        state.arrays[node] = state.arrays[source]
    else:
        state.values[node] = state.values[source]


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

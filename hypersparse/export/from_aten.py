"""Translate the calls of an exported program to nodes of a `Graph`, by rules or as opaque nodes."""

from typing import Any

import torch
from torch import Tensor, fx

from hypersparse.errors import ModelError
from hypersparse.export.aten_call import GETITEM, BatchSizeError, Call, Translation
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse.export.rules import RULES
from hypersparse.export.rules.emitter import Emitter, UnfitError, without_batch
from hypersparse_runtime.graph import Node
from hypersparse_runtime.limits import MOST_OF_A_VALUE
from hypersparse_runtime.names import MADE

OF_SHAPE = ("zeros_like.default", "ones_like.default", "full_like.default", "new_zeros.default", "new_ones.default")
IDENTITIES = ("aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default")


def translate_(node: fx.Node, state: Translation) -> None:
    """Add a call to the translation, by its rule or as an opaque node."""
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
    if call.name == GETITEM and node.args[0] in state.pieces:
        state.values[node] = state.pieces[node.args[0]][node.args[1]]  # type: ignore[index]
        return
    if _is_constant(call):
        state.constants[node] = _computed(call)
        return
    made = _by_operation(call)
    if made is None and _by_rule(call):
        return
    made = made or _opaque(call)
    state.nodes.append(made)
    state.values[node] = made.output


def _by_operation(call: Call) -> Node | None:
    name = call.name.removeprefix("aten.") if call.simple and call.alike else ""
    fitting = (each for each in TORCH_OPERATIONS.values() if name in each.calls)
    return next((made for each in fitting if (made := each.from_aten(call)) is not None), None)


def _by_rule(call: Call) -> bool:
    """Translate a call by the rule of its name; returns whether a rule applied."""
    rule, emit = RULES.get(call.name.removeprefix("aten.")), Emitter(call)
    if rule is None:
        return False
    known = dict(call.state.tensors)
    try:
        made = rule(emit)
        made = made if isinstance(made, list) else emit.reshape(made, without_batch(emit.full()))
    except UnfitError:
        call.state.tensors.clear()
        call.state.tensors.update(known)
        return False
    if isinstance(made, list):
        call.state.pieces[call.node] = made
    else:
        call.state.values[call.node] = made
    call.state.nodes += emit.nodes
    return True


def _is_constant(call: Call) -> bool:
    """Whether a call depends only on parameters and buffers, and is deterministic."""
    known, value = call.state, call.node.meta.get("val")
    inputs = call.node.all_input_nodes
    if call.name == GETITEM or not isinstance(value, Tensor) or torch.Tag.nondeterministic_seeded in _tags(call.node):
        return False
    whole = all(isinstance(side, int) for side in value.shape) and value.numel() <= MOST_OF_A_VALUE
    of_shape = call.name.removeprefix("aten.") in OF_SHAPE
    return whole and all(each in known.arrays or each in known.constants or of_shape for each in inputs)


def _tags(node: fx.Node) -> Any:
    return getattr(node.target, "tags", ())


def _computed(call: Call) -> Tensor:
    state = call.state

    def meant(node: fx.Node) -> Tensor:
        if node in state.constants:
            return state.constants[node]
        if node in state.arrays:
            return torch.from_numpy(state.tensors[state.arrays[node]])
        value = node.meta["val"]
        return torch.zeros((), dtype=value.dtype).expand(value.shape)

    arguments, keywords = fx.node.map_arg((call.node.args, dict(call.node.kwargs)), meant)
    keywords = {name: value for name, value in keywords.items() if not isinstance(value, torch.device)}
    with torch.no_grad():
        made: Tensor = call.node.target(*arguments, **keywords)  # type: ignore[operator]
    return made


def _pass_on_(node: fx.Node, state: Translation) -> None:
    """Make the call's output an alias of its argument: a value, or an array of the model."""
    source: Any = node.args[0]
    if source in state.constants:
        state.constants[node] = state.constants[source]
    elif source in state.arrays:
        state.arrays[node] = state.arrays[source]
    else:
        state.values[node] = state.values[source]


class _Opaque:
    """Writes the arguments of a call as JSON, and collects the values and arrays they name."""

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

    def _constant(self, value: fx.Node) -> str:
        name = f"{MADE}{value.name}"
        self.call.state.tensors[name] = self.call.state.constants[value].numpy().copy()
        return name

    def reference(self, value: fx.Node) -> dict[str, Any]:
        """The JSON reference to a value, an array or the batch size."""
        state = self.call.state
        if value in state.batch:
            return {"batch": 1}
        if value in state.arrays or value in state.constants:
            role = f"t{len(self.tensors)}"
            self.tensors[role] = state.arrays[value] if value in state.arrays else self._constant(value)
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

"""`trace`: a PyTorch model as a `Graph`, through `torch.export`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from hypersparse.errors import ModelError, OptionError
from hypersparse.export.aten_call import BatchSizeError, Translation
from hypersparse.export.dry_run import dry_run
from hypersparse.export.from_aten import translate_
from hypersparse.export.parametrizations import with_parametrizations_folded
from hypersparse.export.silence_torch import first_line, quiet
from hypersparse.sparsity.eval_mode import eval_mode
from hypersparse_runtime.graph import INPUT, Graph, GraphError, shapes
from hypersparse_runtime.names import MADE


def trace(
    model: nn.Module,
    input_shape: Sequence[int],
    about: Mapping[str, Any] = MappingProxyType({}),
    *,
    input_dtype: torch.dtype | None = None,
) -> Graph:
    """Trace the model in evaluation mode, for inputs of this shape (without the batch).

    Arrays have their names in the model's state_dict; all of it is in the graph, read by a node or not. Operations
    without an equivalent become opaque nodes. If the model depends on its batch size, `about["batch"]` is 1.
    Parametrizations are folded into their weights. `input_dtype` is `torch.int64` for token numbers.

    >>> graph = trace(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)), (1, 4, 4))
    >>> [node.op for node in graph.nodes]
    ['conv', 'relu', 'flatten', 'linear']
    """
    shape = _sides(input_shape)
    about = dict(about)
    model = with_parametrizations_folded(model)
    if input_dtype is not None:
        need_whole_numbers(input_dtype)
        about["input_dtype"] = str(input_dtype).removeprefix("torch.")
    with eval_mode(model):
        program = _export(model, shape, input_dtype, any_batch=False)
        graph = _translated(program, shape)
        if any(node.opaque for node in graph.nodes):  # PyTorch runs it, and has to know the size of a batch
            try:
                graph = _translated(_export(model, shape, input_dtype, any_batch=True), shape, batch_in_front=True)
            except BatchSizeError:
                about["batch"] = 1
                graph = _translated(program, shape, batch_in_front=True)
        elif _mixes_axes(graph) and not _takes_inputs_apart(model, shape, input_dtype):
            about["batch"] = 1
    state = {name: _array(name, tensor) for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    graph = replace(graph, tensors={**graph.tensors, **state}, about=about)
    try:
        sides = shapes(graph)
    except GraphError as error:
        raise ModelError(f"The model was traced to a network that does not fit together: {error}") from None
    dry_run(graph, sides)  # a file with any other operation could be written, but not read
    return graph


def _sides(input_shape: Any) -> tuple[int, ...]:
    try:
        sides = tuple(int(side) for side in input_shape)
    except (TypeError, ValueError):
        sides = ()
    if not sides or any(side < 1 for side in sides):
        said = "`input_shape` is the shape of one input without the batch, such as (3, 32, 32)"
        raise OptionError(f"{said}; got {input_shape!r}.")
    return sides


def _example(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None, count: int) -> Tensor:
    like = next((tensor for tensor in model.state_dict().values() if tensor.is_floating_point()), torch.zeros(()))
    return torch.zeros(count, *shape, dtype=dtype or like.dtype, device=like.device)


def _mixes_axes(graph: Graph) -> bool:
    """Whether an operation could take the batch for one of its axes."""
    return any(node.operation.any_axes for node in graph.nodes)


def _takes_inputs_apart(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None) -> bool:
    """Whether a batch of two inputs gives the same outputs as each input alone."""
    pair = _example(model, shape, dtype, 2)
    generator = torch.Generator(device=pair.device).manual_seed(0)
    pair = pair.random_(0, 2, generator=generator) if dtype is not None else pair.normal_(generator=generator)
    try:
        with torch.no_grad():
            each = torch.cat([model_output(model(one)) for one in torch.split(pair, 1)])
            both = model_output(model(pair))
    except Exception:  # a model for single inputs raises whatever its parts do
        return False
    largest = float(each.abs().nan_to_num(0.0, 0.0).max())  # a network that diverged gives NaN, and is exported too
    return both.shape == each.shape and torch.allclose(both, each, rtol=1e-3, atol=1e-4 * largest, equal_nan=True)


def model_output(made: Any) -> Tensor:
    """The output tensor of a model, which may be the only entry of a dictionary or a tuple."""
    if isinstance(made, Tensor):
        return made
    values = list(made.values()) if isinstance(made, Mapping) else list(made)
    first: Tensor = values[0]
    return first


def need_whole_numbers(dtype: torch.dtype) -> None:
    """Raise OptionError for an input type that cannot hold token numbers."""
    if dtype not in (torch.int64, torch.int32):
        raise OptionError(f"`input_dtype` is torch.int64 or torch.int32, for token numbers; got {dtype}.")


def _export(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None, *, any_batch: bool) -> ExportedProgram:
    example = _example(model, shape, dtype, 2 if any_batch else 1)
    dynamic = ({0: Dim("batch")},) if any_batch else None
    try:
        with quiet(), torch.no_grad():
            program: ExportedProgram = torch.export.export(model, (example,), dynamic_shapes=dynamic)
            plain: ExportedProgram = program.run_decompositions({})
            return plain
    except Exception as error:  # torch.export raises whatever the model or its own parts do
        if any_batch:
            raise BatchSizeError from error
        said = f"torch.export cannot trace {type(model).__name__} for inputs {shape}: {first_line(error)}"
        raise ModelError(said) from None


def _translated(program: ExportedProgram, shape: tuple[int, ...], *, batch_in_front: bool = False) -> Graph:
    state = Translation(batch_in_front=batch_in_front)
    state.batch_size = _batch_size(program)
    output: fx.Node | None = None
    for node in program.graph.nodes:
        if node.op == "placeholder":
            _placeholder(program, node, state)
        elif node.op == "output":
            output = _only_output(program, node)
        else:
            translate_(node, state)
    if output is None or output not in state.values or not state.nodes:
        raise ModelError("The model should compute one tensor from its input; it gives its input or a constant back.")
    return _needed(Graph(shape, tuple(state.nodes), state.tensors), state.values[output])


def _batch_size(program: ExportedProgram) -> str | None:
    """The name of the batch size in a program; None if it is one."""
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT and isinstance(node.meta.get("val"), Tensor):
            first = node.meta["val"].shape[0]
            return None if isinstance(first, int) else str(first)
    return None


def _placeholder(program: ExportedProgram, node: fx.Node, state: Translation) -> None:
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


def _needed(graph: Graph, output: str) -> Graph:
    """The graph without nodes that its output does not depend on; the last node is the output."""
    wanted, kept = {output}, []
    for node in reversed(graph.nodes):
        if node.output in wanted:
            wanted.update(node.inputs)
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept)))

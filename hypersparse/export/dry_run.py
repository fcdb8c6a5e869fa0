"""`dry_run`: run a network's operations on shapes alone, since the claims of a file may be false or unbounded."""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import floor, prod
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersparse.errors import ModelError
from hypersparse.export import aten_ops
from hypersparse.export.aten_call import GETITEM
from hypersparse.export.aten_checks import check_arguments, named_arguments
from hypersparse.export.aten_work import work_of
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse_runtime.graph import INPUT, Graph, Node, Shape
from hypersparse_runtime.limits import MOST_OF_A_VALUE

MOST_WORK = 2**38  # multiplications for one input; ViT-L has 6.2e10 for an image of 224x224, and as long in its loops
MOST_ELEMENTS = 2**30  # of all values, views counted; ViT-L has 4e8
MOST_WORKSPACE = 2**26  # elements that one operation makes for itself; VGG-19 has 2.9e7 for an image of 224x224
MOST_ARGUMENTS = 2**16  # of all operations of PyTorch, those in lists counted
MOST_AXES = 9
MOST_OPERATIONS = 2048  # of PyTorch: loading takes up to 0.6 ms for each
# Operations that PyTorch makes of others when it infers their shapes, each counted as several: up to 4.3 ms.
COUNTED_AS = MappingProxyType(
    {
        "aten.div.Tensor_mode": 8,
        **dict.fromkeys(("aten.clamp.Tensor", "aten.clamp_max.Tensor", "aten.clamp_min.Tensor"), 2),
        **dict.fromkeys(("aten.log_softmax.int", "aten.roll.default"), 2),
    }
)
SAME_SHAPE = aten_ops.NORMS | {"logit", "rsqrt", "reciprocal", "cos", "sin", "prelu", "cumsum", "_log_softmax"}


class _Run:
    """The cost of the operations so far."""

    def __init__(self) -> None:
        self.work, self.elements = 0, 0

    def of_graph(self, node: Node, inputs: Sequence[Any], tensors: Mapping[str, Tensor], side: Shape) -> Tensor:
        """The result of an operation of the graph, whose shape for one input is known."""
        if not all(isinstance(x, Tensor) and x.ndim and x.shape[:1] == inputs[0].shape[:1] for x in inputs):
            raise ModelError(f"`{node.op}` needs values of one batch; `{node.output}` has others.")
        kinds, operation = [value.dtype for value in (*inputs, *tensors.values())], TORCH_OPERATIONS[node.op]
        if operation.floats_only and (len(set(kinds)) > 1 or not kinds[0].is_floating_point):
            came = ", ".join(sorted(map(str, set(kinds))))
            raise ModelError(f"`{node.op}` needs values and arrays of one floating-point type; got {came}.")
        made: Tensor = inputs[0].new_empty(len(inputs[0]), *side, dtype=reduce(torch.promote_types, kinds))
        given = {"input": inputs[0], "self": inputs[0], **tensors, "kernel_size": node.options.get("kernel")}
        given |= {"other": inputs[1]} if len(inputs) > 1 else {}
        work = operation.work([*inputs], tensors)
        if work is None:
            work, _ = work_of(f"aten.{operation.costs_as}.default", given, made)
        self._add(node, made, (work, 0))
        return made

    def made(self, node: Node, inputs: Sequence[Any], tensors: Mapping[str, Tensor]) -> Any:
        """The result of an operation of PyTorch; raises if the network becomes too large."""
        if node.op == GETITEM:
            return aten_ops.call(node, inputs, tensors, 1)
        function = aten_ops.function_of(node)
        arguments, keywords = aten_ops.meant_arguments(node, inputs, tensors, 1)
        given = named_arguments(function, arguments, keywords)
        check_arguments(node.op, given)
        made = _known_result(node.op, given)
        if made is None:
            made = function(*arguments, **keywords)
        self._add(node, made, work_of(node.op, given, made))
        return made

    def _add(self, node: Node, made: Any, work: tuple[int, int]) -> None:
        for value in made if isinstance(made, list | tuple) else (made,):
            if value.ndim > MOST_AXES:
                raise ModelError(f"`{node.op}` gives a value of {value.ndim} axes, and {MOST_AXES} are the most.")
            if prod(value.shape) > MOST_OF_A_VALUE:
                raise ModelError(f"`{node.op}` gives {prod(value.shape)} elements, and {MOST_OF_A_VALUE} are the most.")
            self.elements += prod(value.shape)
        self.work += work[0]
        limits = (
            (work[1], MOST_WORKSPACE, "elements for itself"),
            (self.work, MOST_WORK, "multiplications with what is before it"),
            (self.elements, MOST_ELEMENTS, "elements with those of all operations before it"),
        )
        for count, most, what in limits:
            if count > most:
                raise ModelError(f"`{node.op}` takes {count} {what}, and {most} are the most.")


def dry_run(graph: Graph, sides: Mapping[str, Shape]) -> None:
    """Raise ModelError unless every operation runs, gives its stated shape and stays within the limits."""
    _check_arguments(graph)
    values: dict[str, Any] = {INPUT: torch.empty(1, *graph.input_shape, device="meta", dtype=_first_type(graph))}
    arrays = {name: _on_meta(array) for name, array in graph.tensors.items()}
    run = _Run()
    for node in graph.nodes:
        tensors = {role: arrays[name] for role, name in node.tensors.items()}
        inputs = [values[name] for name in node.inputs]
        with aten_ops.errors_of(node):
            if node.opaque:
                made = run.made(node, inputs, tensors)
            else:
                made = run.of_graph(node, inputs, tensors, sides[node.output])
        if isinstance(made, Tensor) and tuple(made.shape[1:]) != sides[node.output]:
            raise ModelError(f"`{node.op}` should give {sides[node.output]} and gives {tuple(made.shape[1:])}.")
        values[node.output] = made
    if not isinstance(values[graph.output], Tensor):
        raise ModelError(f"`{graph.nodes[-1].op}` gives several values, and a network gives one.")


def _known_result(op: str, given: Mapping[str, Any]) -> Any:
    """The result of some operations for which PyTorch takes 1 to 29 ms on shapes; None for all others."""
    _, name, overload = op.split(".")
    x = given.get("self", given.get("input", given.get("query")))
    if not isinstance(x, Tensor) or not x.is_floating_point() or given.get("dtype") is not None:
        return None
    if name == "_native_batch_norm_legit_no_training":
        return torch.empty_like(x), x.new_empty(0), x.new_empty(0)
    if name == "native_group_norm":
        return torch.empty_like(x), *(x.new_empty(given["N"], given["group"]) for _ in range(2))
    if name == "native_layer_norm":
        axes = len(given["normalized_shape"])
        return torch.empty_like(x), *(x.new_empty(*x.shape[:-axes], *[1] * axes) for _ in range(2))
    if name in SAME_SHAPE or (name in aten_ops.ELEMENTWISE and overload == "default"):
        return torch.empty_like(x)
    if name == "scaled_dot_product_attention":
        return x.new_empty(*x.shape[:-1], given["value"].shape[-1])
    if name.startswith("upsample_"):
        scales = given.get("scale_factors") or ()
        sides = given["output_size"] or [floor(side * by) for side, by in zip(x.shape[2:], scales, strict=True)]
        return x.new_empty(*x.shape[:2], *sides)
    return None


def _check_arguments(graph: Graph) -> None:
    count = sum(aten_ops.count_arguments(node) for node in graph.nodes if node.opaque)
    operations = sum(COUNTED_AS.get(node.op, 1) for node in graph.nodes if node.opaque)
    if operations > MOST_OPERATIONS:
        counted = f"{operations} operations of PyTorch, slow ones counted several times"
        raise ModelError(f"The network has {counted}; {MOST_OPERATIONS} are the most.")
    if count > MOST_ARGUMENTS:
        raise ModelError(f"The network's operations have {count} arguments, and {MOST_ARGUMENTS} are the most.")


def _first_type(graph: Graph) -> torch.dtype:
    """The type of the network's numbers: that of its first array, preferably one that a node reads."""
    read = [graph.tensors[name] for node in graph.nodes for name in node.tensors.values()]
    kinds = [array.dtype for array in (*read, *graph.tensors.values()) if array.dtype.kind == "f"]
    return torch.from_numpy(np.zeros(0, kinds[0] if kinds else np.float32)).dtype


def _on_meta(array: np.ndarray[Any, Any]) -> Tensor:
    return torch.empty(array.shape, dtype=torch.from_numpy(np.zeros(0, array.dtype)).dtype, device="meta")

"""Operations that name or move elements: reshape, permute, slice and expand; constants and embeddings."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hypersparse_runtime.graph import Graph, GraphError, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.base import Channels, OnnxCall, Operation, array_of, float32, whole_numbers
from hypersparse_runtime.sparse_layers import Array
from hypersparse_runtime.value_steps.tokens import EmbeddingStep
from hypersparse_runtime.views import View

MOST_OPTION = 2**31 - 1
LARGEST_ID = 2**24  # up to which a float holds every whole number


class Shaping(Operation):
    """What only names other axes: a view where the engine can, and a copy where not."""

    takes_views = rearranges = any_axes = True
    passes = Channels.ALL

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_view(node)

    def lower(self, lowering: Lowering, node: Node) -> None:
        (name,) = node.inputs
        if name in lowering.constants:
            made = self._apply(node, lowering.constants[name][None])[0]
            lowering.constants[node.output] = np.ascontiguousarray(made)
            return
        before = lowering.view(name)
        view = self.seen(node, before)
        lowering.readers[name] += lowering.readers[node.output]  # whoever reads the one reads the other
        if view is None:
            places = self._apply(node, before.indices()[None])[0]
            lowering.gathered(node, before.value, places)
            return
        lowering.lay(node, view)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return self._apply(node, inputs[0])

    def seen(self, node: Node, view: View) -> View | None:
        """The axes that it lays over those of a view; None if that is not possible."""
        raise NotImplementedError

    def _apply(self, node: Node, x: Array) -> Array:
        raise NotImplementedError


class Reshape(Shaping):
    """The same elements in the same order in other axes. Option: `shape`."""

    name, onnx = "reshape", "Reshape"

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        shape = whole_numbers(node, "shape", least=1)
        need(prod(shape) == prod(inputs[0]), node.output, "another count of elements than its input", shape)
        return shape

    def seen(self, node: Node, view: View) -> View | None:
        return view.reshaped(node.options["shape"])

    def _apply(self, node: Node, x: Array) -> Array:
        return x.reshape(len(x), *node.options["shape"])

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        return {"shape": np.array([0, *node.options["shape"]])}


class Permute(Shaping):
    """Axes in another order. Option: `order`."""

    name, onnx, lays_axes = "permute", "Transpose", True

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        order = whole_numbers(node, "order", least=0)
        need(sorted(order) == list(range(len(inputs[0]))), node.output, "no order of its input's axes", order)
        return tuple(inputs[0][axis] for axis in order)

    def seen(self, node: Node, view: View) -> View | None:
        return view.permuted(node.options["order"])

    def _apply(self, node: Node, x: Array) -> Array:
        return x.transpose(0, *(axis + 1 for axis in node.options["order"]))

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"perm": [0, *(axis + 1 for axis in node.options["order"])]}


class Slice(Shaping):
    """Every `step`-th element of an `axis` from `start` on, `length` of them; backwards if the step is negative."""

    name, onnx = "slice", "Slice"

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        (shape,) = inputs
        axis, start, length, step = self._numbers(node)
        fits = axis < len(shape) and step != 0 and start < shape[axis]
        fits = fits and 0 <= start + (length - 1) * step < shape[axis]
        need(fits, node.output, "a slice outside of its input", (shape, node.options))
        return (*shape[:axis], length, *shape[axis + 1 :])

    def _numbers(self, node: Node) -> tuple[int, int, int, int]:
        axis, start, length, step = (
            whole_numbers(node, name, least=least)[0]
            for name, least in (("axis", 0), ("start", 0), ("length", 1), ("step", -MOST_OPTION))
        )
        return axis, start, length, step

    def seen(self, node: Node, view: View) -> View | None:
        axis, start, length, step = self._numbers(node)
        return view.sliced(axis, start, length, step)

    def _apply(self, node: Node, x: Array) -> Array:
        axis, start, length, step = self._numbers(node)
        return np.take(x, range(start, start + length * step, step), axis + 1)

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        axis, start, length, step = self._numbers(node)
        end = start + (length - 1) * step + (1 if step > 0 else -1)
        ends = end if end >= 0 else -(2**62)  # -1 would be the last element
        numbers = {"starts": start, "ends": ends, "axes": axis + 1, "steps": step}
        return {name: np.array([number]) for name, number in numbers.items()}


class Expand(Shaping):
    """Axes of one element repeated. Option: `shape`."""

    name, onnx, lays_axes = "expand", "Expand", True

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        shape = whole_numbers(node, "shape", least=1)
        fits = len(shape) == len(inputs[0]) and all(side in (1, to) for side, to in zip(inputs[0], shape, strict=True))
        need(fits, node.output, "a shape that its input cannot be expanded to", (shape, inputs[0]))
        return shape

    def seen(self, node: Node, view: View) -> View | None:
        return view.expanded(node.options["shape"])

    def _apply(self, node: Node, x: Array) -> Array:
        return np.broadcast_to(x, (len(x), *node.options["shape"]))

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        return {"shape": np.array([1, *node.options["shape"]])}


class Constant(Operation):
    """The array `value`, the same for every input; the input says only how many there are."""

    name, onnx, roles, takes_views = "constant", "Identity", ("value",), True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        shape = array_of(graph, node, "value").shape
        need(len(shape) > 0, node.output, "a value without axes", shape)
        return tuple(shape)

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_whole(node, moved=prod(work.shapes[node.output]))

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        value = float32(graph, node, "value")
        return np.broadcast_to(value, (len(inputs[0]), *value.shape))

    def lower(self, lowering: Lowering, node: Node) -> None:
        lowering.constants[node.output] = float32(lowering.graph, node, "value")

    def onnx_array_shape(self, role: str, array: Array, shape: Shape) -> Shape:
        return (1, *array.shape)

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        return [OnnxCall("Identity", inputs[1:], output)]


class Embedding(Operation):
    """For each whole number of the input its row of `weight` (V, D), as a last axis."""

    name, onnx, roles, takes_views = "embedding", "Gather", ("weight",), True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        weight = array_of(graph, node, "weight")
        fits = weight.ndim == 2 and 0 < len(weight) <= LARGEST_ID and len(inputs[0]) < 8
        need(fits, node.output, "a weight that is no table of at most 2^24 rows", weight.shape)
        return (*inputs[0], weight.shape[1])

    def count_work(self, work: WorkCounter, node: Node) -> None:
        weight = work.graph.tensors[node.tensors["weight"]]
        work.add_whole(node, moved=2 * prod(work.shapes[node.output]))
        work.work.planes += weight.size

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        weight = float32(graph, node, "weight")
        return weight[rows_of(node, inputs[0], len(weight))]

    def lower(self, lowering: Lowering, node: Node) -> None:
        weight, view = float32(lowering.graph, node, "weight"), lowering.view(node.inputs[0])
        shape, count = view.shape, prod(view.shape)
        sides = (weight.shape[1], 1, count)
        step = EmbeddingStep(view.indices().reshape(-1).astype(np.int32), weight)
        order = (*range(1, len(shape) + 1), 0)
        seen = View.whole(node.output, (sides[0], *shape)).permuted(order)
        lowering.emit_step(node, step, view.value, sides, seen)

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        ids = f"{output} ids"
        cast = OnnxCall("Cast", inputs[:1], ids, {"to": 7})
        return [cast, OnnxCall("Gather", [inputs[1], ids], output, {"axis": 0})]


def rows_of(node: Node, ids: Array, count: int) -> Array:
    """The rows of an embedding's table that numbers name; raises GraphError for one that is not there."""
    rows = ids.astype(np.int64)
    if ids.size and not (rows.min() >= 0 and rows.max() < count):
        said = f"takes whole numbers from 0 to {count - 1}"
        raise GraphError(f"The embedding `{node.output}` {said}; got {rows.min()} to {rows.max()}.")
    return rows

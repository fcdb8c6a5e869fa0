"""Operations over the last axis, as Transformers have them: norms, products of two values, softmax, reductions."""

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

import numpy as np

from hypersparse_runtime.functions import REDUCTIONS
from hypersparse_runtime.graph import Graph, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering
from hypersparse_runtime.operations.activations import softmax
from hypersparse_runtime.operations.base import Channels, OnnxCall, Operation, check_vector, count, one_of
from hypersparse_runtime.sparse_layers import Array, Layer
from hypersparse_runtime.value_steps import tokens as steps
from hypersparse_runtime.views import View

MAX_SCALE = 1e6


class Normalizing(Operation):
    """What both norms share. Options: `epsilon`; arrays `weight` and `bias`, or none."""

    roles, passes = ("weight", "bias"), Channels.ALL

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_whole(node, products=4 * prod(work.shapes[node.output]))

    def _check_epsilon(self, node: Node) -> None:
        epsilon = node.options.get("epsilon")
        need(isinstance(epsilon, float) and 0 <= epsilon <= 1, node.output, "a wrong epsilon", epsilon)

    def _arrays(self, graph: Graph, node: Node, length: int) -> tuple[Array, Array]:
        gain, shift = (graph.array(node, role) for role in self.roles)
        return (
            np.ones(length, np.float32) if gain is None else gain.astype(np.float32),
            np.zeros(length, np.float32) if shift is None else shift.astype(np.float32),
        )

    def _normalized(self, node: Node, x: Array, axes: tuple[int, ...]) -> Array:
        wide = x.astype(np.float64)
        less = wide - wide.mean(axis=axes, keepdims=True)
        variance = (less * less).mean(axis=axes, keepdims=True)
        found: Array = (less / np.sqrt(variance + float(node.options["epsilon"]))).astype(np.float32)
        return found


class LayerNorm(Normalizing):
    """Layer norm over the last axis."""

    name, onnx, takes_views = "layer_norm", "LayerNormalization", True

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        self._check_epsilon(node)
        for role in self.roles:
            check_vector(graph, node, role, inputs[0][-1])
        return inputs[0]

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        gain, shift = self._arrays(graph, node, inputs[0].shape[-1])
        return self._normalized(node, inputs[0], (-1,)) * gain + shift

    def lower(self, lowering: Lowering, node: Node) -> None:
        view = lowering.planes_last(node.inputs[0])
        sides, length = lowering.shapes[view.value], view.shape[-1]
        step = steps.LayerNormStep(length, *self._arrays(lowering.graph, node, length), float(node.options["epsilon"]))
        lowering.emit_step(node, step, view.value, sides, view.of(node.output))

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        return {} if "weight" in node.tensors else {"ones": np.ones(shape[-1], np.float32)}  # which ONNX needs

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        given = [*inputs] if "weight" in node.tensors else [inputs[0], inputs[-1], *inputs[1:-1]]
        return [OnnxCall(self.onnx, given, output, {"axis": -1, "epsilon": float(node.options["epsilon"])})]


class GroupNorm(Normalizing):
    """Group norm of (C, ...), in `groups` of channels; an instance norm has as many groups as channels."""

    name, onnx = "group_norm", "InstanceNormalization"

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        self._check_epsilon(node)
        need(inputs[0][0] % count(node, "groups") == 0, node.output, "groups that do not divide its channels", inputs)
        for role in self.roles:
            check_vector(graph, node, role, inputs[0][0])
        return inputs[0]

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        (x,) = inputs
        gain, shift = self._arrays(graph, node, x.shape[1])
        grouped = x.reshape(len(x), int(node.options["groups"]), -1)
        normalized = self._normalized(node, grouped, (2,)).reshape(x.shape)
        column = (-1, *[1] * (x.ndim - 2))
        return normalized * gain.reshape(column) + shift.reshape(column)

    def lower(self, lowering: Lowering, node: Node) -> None:
        value = lowering.materialized(node.inputs[0])
        sides = lowering.shapes[value]
        gain, shift = self._arrays(lowering.graph, node, sides[0])
        step = steps.GroupNormStep(sides[0] // int(node.options["groups"]), gain, shift, float(node.options["epsilon"]))
        lowering.emit_step(node, step, value, sides)

    def onnx_array_shape(self, role: str, array: Array, shape: Shape) -> Shape:
        return (len(array), *[1] * (len(shape) - 1))

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        groups = int(node.options["groups"])
        numbers = {"ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32)}
        return {"grouped": np.array([0, groups, -1]), "back": np.array([0, *shape]), **numbers}

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        x, *arrays, grouped, back, ones, zeros = inputs
        epsilon = {"epsilon": float(node.options["epsilon"])}
        calls = [
            OnnxCall("Reshape", [x, grouped], f"{output} 0"),
            OnnxCall(self.onnx, [f"{output} 0", ones, zeros], f"{output} 1", epsilon),
            OnnxCall("Reshape", [f"{output} 1", back], f"{output} 2"),
        ]
        for place, (role, array) in enumerate(zip((r for r in self.roles if r in node.tensors), arrays, strict=True)):
            kind = "Mul" if role == "weight" else "Add"
            calls.append(OnnxCall(kind, [f"{output} {place + 2}", array], f"{output} {place + 3}"))
        return [*calls[:-1], calls[-1]._replace(output=output)]


class Reduce(Operation):
    """Mean, sum, maximum or minimum over the last axis. Option: `function`."""

    name, onnx, takes_views, any_axes = "reduce", "ReduceMean", True, True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        reduction_of(node)
        need(len(inputs[0]) > 1, node.output, "an input of one axis", inputs[0])
        return inputs[0][:-1]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_whole(node, products=prod(work.shapes[node.inputs[0]]), moved=prod(work.shapes[node.inputs[0]]))

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return REDUCTIONS[reduction_of(node)].compute(inputs[0], axis=-1)

    def lower(self, lowering: Lowering, node: Node) -> None:
        (name,), function = node.inputs, reduction_of(node)
        view = lowering.covering(name)
        channels, *sides = lowering.shapes[view.value]
        size = prod(sides)
        if function == "mean" and size > 1 and view.merged()[-1] == ((size, 1),):
            layer = Layer("mean", view.value, node.output, np.arange(channels))
            axes = tuple(tuple((side, stride // size) for side, stride in axis) for axis in view.axes[:-1])
            lowering.emit_whole(node, layer, (channels, 1, 1), View(node.output, axes))
            return
        view = lowering.planes_last(name)
        channels, *sides = lowering.shapes[view.value]
        length = view.shape[-1]
        made = (channels // length, *sides)
        axes = tuple(tuple((n, _without(s, length, prod(sides))) for n, s in axis) for axis in view.axes[:-1])
        lowering.emit_step(node, steps.ReduceStep(length, function), view.value, made, View(node.output, axes))  # type: ignore[arg-type]

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        kind = REDUCTIONS[reduction_of(node)].onnx
        if kind == "ReduceSum":  # takes its axes as an input
            return [OnnxCall(kind, inputs, output, {"keepdims": 0})]
        return [OnnxCall(kind, inputs, output, {"axes": [-1], "keepdims": 0})]

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        return {"axes": np.array([-1])} if node.options["function"] == "sum" else {}


def reduction_of(node: Node) -> str:
    """The function of a reduction."""
    return one_of(node, "function", REDUCTIONS)


def _without(stride: int, length: int, size: int) -> int:
    """A stride between groups of `length` planes, once each group is one plane."""
    return stride // length if stride >= size else stride


class SoftmaxLast(Operation):
    """Softmax over the last axis of a value of two axes or more."""

    name, onnx, takes_views = "softmax_last", "Softmax", True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        need(len(inputs[0]) > 1, node.output, "an input of one axis", inputs[0])
        return inputs[0]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_whole(node, products=20 * prod(work.shapes[node.output]))

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return softmax(inputs[0])

    def lower(self, lowering: Lowering, node: Node) -> None:
        view = lowering.planes_last(node.inputs[0])
        step = steps.SoftmaxStep(view.shape[-1])
        lowering.emit_step(node, step, view.value, lowering.shapes[view.value], view.of(node.output))

    def onnx_attributes(self, node: Node) -> dict[str, Any]:
        return {"axis": -1}


class MatMul(Operation):
    """Product of two values of matrices (..., M, K) and (..., K, N), times the number `scale`."""

    name, onnx, inputs = "matmul", "MatMul", 2
    takes_views = any_axes = broadcasts = True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        first, second = inputs
        scale = node.options.get("scale")
        fits = isinstance(scale, float) and isfinite(scale) and abs(scale) <= MAX_SCALE
        need(fits, node.output, "a wrong scale", scale)
        fits = len(first) == len(second) >= 2 and first[-1] == second[-2]
        fits = fits and all(one == two or 1 in (one, two) for one, two in zip(first[:-2], second[:-2], strict=True))
        need(fits, node.output, "inputs that cannot be multiplied", inputs)
        batch = (max(pair) for pair in zip(first[:-2], second[:-2], strict=True))
        return (*batch, first[-2], second[-1])

    def count_work(self, work: WorkCounter, node: Node) -> None:
        first, second = (work.shapes[name] for name in node.inputs)
        made = prod(work.shapes[node.output])
        moved = made + made // second[-1] * first[-1] + made // first[-2] * first[-1]  # the product may be turned
        work.add_whole(node, products=made * first[-1], moved=moved)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        return (inputs[0] @ inputs[1]) * np.float32(node.options["scale"])

    def lower(self, lowering: Lowering, node: Node) -> None:
        shape, scale = lowering.node_shapes[node.output], float(node.options["scale"])
        batch, rows, length = shape[:-2], shape[-2], shape[-1]
        one, two = (self._expanded(lowering.view(name), batch) for name in node.inputs)
        if _runs(lowering, one, -2):  # by columns: each factor of the second times runs of the first
            self._emit(lowering, node, (_turned(two), _turned(one)), (*batch, length, rows), scale, turned=True)
            return
        if not _runs(lowering, two, -1):
            two = View.whole(lowering.arranged(two, _matrix_sides(two.shape)), two.shape)
        self._emit(lowering, node, (one, two), shape, scale, turned=False)

    def _expanded(self, view: View, batch: Shape) -> View:
        return view.expanded((*batch, *view.shape[-2:]))

    def _emit(
        self, lowering: Lowering, node: Node, factors: tuple[View, View], shape: Shape, scale: float, *, turned: bool
    ) -> None:
        """Output (..., rows, length) of first factors (..., rows, terms) and runs (..., terms, length)."""
        one, two = factors
        *batch, rows, length = shape
        if not _is_even(lowering, one, 2):
            one = View.whole(lowering.arranged(one, _matrix_sides(one.shape)), one.shape)
        first, row, term = _strides(one)
        second, second_term, _ = _strides(two)
        step = steps.MatMulStep(two.value, first, row, term, second, second_term, rows, one.shape[-1], length, scale)
        sides = (prod(batch) * rows, 1, length)
        view = View.whole(node.output, shape)
        lowering.emit_step(node, step, one.value, sides, _turned(view) if turned else view)

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        return {} if node.options["scale"] == 1.0 else {"scale": node.options["scale"]}

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        if len(inputs) == 2:
            return [OnnxCall("MatMul", inputs, output)]
        scaled = f"{output} scaled"
        return [OnnxCall("Mul", [inputs[0], inputs[2]], scaled), OnnxCall("MatMul", [scaled, inputs[1]], output)]


def _turned(view: View) -> View:
    axes = len(view.axes)
    return view.permuted((*range(axes - 2), axes - 1, axes - 2))


def _matrix_sides(shape: Shape) -> tuple[int, int, int]:
    return (prod(shape[:-1]), 1, shape[-1])


def _runs(lowering: Lowering, view: View, axis: int) -> bool:
    """Whether the elements of an axis follow each other in memory, and the other's are evenly apart."""
    _, height, _ = lowering.shapes[view.value]
    side = view.merged()[axis]
    if height != 1 or view.value in lowering.vectors or (view.shape[axis] > 1 and (len(side) != 1 or side[0][1] != 1)):
        return False
    return _is_even(lowering, view, 2)


def _is_even(lowering: Lowering, view: View, axes: int) -> bool:
    """Whether each of the last axes has its elements evenly apart in memory, be the gaps between rows what they may."""
    width = lowering.shapes[view.value][2]
    places = view.indices()
    gaps = places // width * 7 if view.value not in lowering.vectors else 0
    at = places + gaps
    return all(_even(at, axis) for axis in range(-axes, 0))


def _even(at: Array, axis: int) -> bool:
    steps = np.diff(at, axis=axis)
    return not steps.size or bool((steps == steps.flat[0]).all())


def _strides(view: View) -> tuple[Array, int, int]:
    """Places of the batches' first elements, and how far apart rows and columns are."""
    places = view.indices().reshape(-1, *view.shape[-2:])
    row = int(places[0, 1, 0] - places[0, 0, 0]) if places.shape[1] > 1 else 0
    column = int(places[0, 0, 1] - places[0, 0, 0]) if places.shape[2] > 1 else 0
    return places[:, 0, 0].astype(np.int32), row, column

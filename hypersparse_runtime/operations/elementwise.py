"""Functions of each element, and arithmetic with two values."""

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

import numpy as np

from hypersparse_runtime.functions import FUNCTIONS, OPERATORS
from hypersparse_runtime.graph import Graph, GraphError, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering, sides_of
from hypersparse_runtime.operations.base import Channels, OnnxCall, Operation, one_of
from hypersparse_runtime.sparse_layers import Array
from hypersparse_runtime.value_steps.elements import ArithmeticStep, ElementwiseStep
from hypersparse_runtime.views import View

MAX_PARAMETER = 1e6


class Elementwise(Operation):
    """A function of each element. Options: `function`, and `parameter` of a leaky ReLU or an ELU."""

    name, onnx, takes_views = "elementwise", "Mul", True
    passes = Channels.SAME

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        parameter_of(node)
        return inputs[0]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_whole(node)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        with np.errstate(all="ignore"):
            return FUNCTIONS[function_of(node)].compute(inputs[0], parameter_of(node)).astype(np.float32, copy=False)

    def lower(self, lowering: Lowering, node: Node) -> None:
        view = lowering.covering(node.inputs[0])
        sides = lowering.shapes[view.value]
        step = ElementwiseStep(function_of(node), parameter_of(node))
        lowering.emit_step(node, step, view.value, sides, view.of(node.output))

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        given = (each for _, *inputs in FUNCTIONS[function_of(node)].onnx_steps for each in inputs)
        return {f"c{each}": each for each in given if isinstance(each, float)}

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        function = FUNCTIONS[function_of(node)]
        constants = dict(zip(self.onnx_constants(graph, node, shape).values(), inputs[1:], strict=True))
        names = [*(f"{output} {place}" for place in range(len(function.onnx_steps) - 1)), output]
        attributes = {**function.attributes, **({"alpha": parameter_of(node)} if function.parameter else {})}

        def said(given: str | int | float) -> str:
            if isinstance(given, str):
                return inputs[0]
            return names[given] if isinstance(given, int) else constants[given]

        return [
            OnnxCall(str(kind), [said(each) for each in given], name, attributes)
            for (kind, *given), name in zip(function.onnx_steps, names, strict=True)
        ]


def function_of(node: Node) -> str:
    """The function of an elementwise node."""
    return one_of(node, "function", FUNCTIONS)


def parameter_of(node: Node) -> float:
    """The slope of a leaky ReLU, the scale of an ELU; nothing of the others."""
    parameter = node.options.get("parameter", 0.0)
    wanted = FUNCTIONS[function_of(node)].parameter
    fits = isinstance(parameter, float) and isfinite(parameter) and abs(parameter) <= MAX_PARAMETER
    if not fits or wanted != ("parameter" in node.options):
        said = "a finite number" if wanted else "nothing"
        raise GraphError(f"`{node.output}` needs as `parameter` {said}; got {parameter!r:.40}.")
    return float(parameter)


class Arithmetic(Operation):
    """Two values element by element, axes of one element repeated. Option: `operator`."""

    name, onnx, inputs = "arithmetic", "Add", 2
    takes_views = any_axes = broadcasts = True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        operator_of(node)
        first, second = inputs
        fits = len(first) == len(second) and all(
            one == two or 1 in (one, two) for one, two in zip(*inputs, strict=True)
        )
        need(fits, node.output, "inputs that do not broadcast", inputs)
        return tuple(max(pair) for pair in zip(*inputs, strict=True))

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_whole(node, moved=prod(work.shapes[node.output]))

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        with np.errstate(all="ignore"):
            return OPERATORS[operator_of(node)].compute(*inputs)

    def lower(self, lowering: Lowering, node: Node) -> None:
        lower_arithmetic(lowering, node, operator_of(node))

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        return [OnnxCall(OPERATORS[operator_of(node)].onnx, inputs, output)]


def operator_of(node: Node) -> str:
    """The operator of an arithmetic node."""
    return one_of(node, "operator", OPERATORS)


def lower_arithmetic(lowering: Lowering, node: Node, operator: str) -> None:
    """A layer of two values; the one that has the output's shape is read where it lies."""
    first, second = node.inputs
    shape = lowering.node_shapes[node.output]
    swapped = lowering.node_shapes[first] != shape or (first in lowering.constants)
    if swapped and lowering.node_shapes[second] == shape and second not in lowering.constants:
        first, second, operator = second, first, OPERATORS[operator].swapped or operator
    view = lowering.covering(first)
    if view.shape != shape:
        value = lowering.arranged(view.expanded(shape), sides_of(shape))
        view = View.whole(value, shape)
    sides, order = lowering.shapes[view.value], view.indices().reshape(-1)
    constant = lowering.constants.get(second)
    other = View.whole("", constant.shape) if constant is not None else lowering.view(second)
    places = np.empty(prod(sides), dtype=np.int32)
    places[order] = other.expanded(shape).indices().reshape(-1)
    given = None if constant is None else constant.reshape(-1).astype(np.float32)
    step = ArithmeticStep(operator, places, None if constant is not None else other.value, given)
    lowering.emit_step(node, step, view.value, sides, view.of(node.output))

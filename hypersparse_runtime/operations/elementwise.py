"""Functions of each element, and arithmetic with two values."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, prod, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from hypersparse_runtime.graph import Graph, GraphError, Node, Shape, need
from hypersparse_runtime.limits import WorkCounter
from hypersparse_runtime.lowering import Lowering, sides_of
from hypersparse_runtime.operations.base import Channels, OnnxCall, Operation
from hypersparse_runtime.sparse_layers import Array, Layer
from hypersparse_runtime.value_layers import Arithmetic as ArithmeticWork
from hypersparse_runtime.value_layers import Elementwise as ElementwiseWork
from hypersparse_runtime.views import View

MAX_PARAMETER = 1e6


def erf(x: Array) -> Array:
    """The error function, with an absolute error of at most 1.5e-7 (Abramowitz and Stegun, 7.1.26).

    >>> erf(np.array([-1.0, 0.0, 0.5])).round(6).tolist()
    [-0.842701, 0.0, 0.5205]
    """
    t = 1 / (1 + 0.3275911 * np.abs(x))
    powers = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    found: Array = np.sign(x) * (1 - powers * np.exp(-(x * x)))
    return found


def sigmoid(x: Array) -> Array:
    """The logistic function, without overflow."""
    found: Array = 0.5 + 0.5 * np.tanh(0.5 * x)
    return found


def _softplus(x: Array) -> Array:
    found: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return found


def _gelu(x: Array, _: float) -> Array:
    found: Array = 0.5 * x * (1 + erf(x / sqrt(2)))
    return found


def _gelu_tanh(x: Array, _: float) -> Array:
    found: Array = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    return found


Function = Callable[[Array, float], Any]
FUNCTIONS: Mapping[str, Function] = MappingProxyType(  # in the order of `enum function` in elementwise.h
    {
        "sigmoid": lambda x, _: sigmoid(x),
        "tanh": lambda x, _: np.tanh(x),
        "silu": lambda x, _: x * sigmoid(x),
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "hardswish": lambda x, _: x * np.clip(x + 3, 0, 6) / 6,
        "hardsigmoid": lambda x, _: np.clip(x + 3, 0, 6) / 6,
        "leaky_relu": lambda x, slope: np.where(x > 0, x, x * slope),
        "elu": lambda x, scale: np.where(x > 0, x, scale * np.expm1(np.minimum(x, 0))),
        "softplus": lambda x, _: _softplus(x),
        "mish": lambda x, _: x * np.tanh(_softplus(x)),
        "exp": lambda x, _: np.exp(x),
        "erf": lambda x, _: erf(x),
        "sqrt": lambda x, _: np.sqrt(x),
        "rsqrt": lambda x, _: 1 / np.sqrt(x),
        "log": lambda x, _: np.log(x),
        "abs": lambda x, _: np.abs(x),
        "neg": lambda x, _: -x,
    }
)
KEEPS_ZERO = frozenset(
    ("tanh", "silu", "gelu", "gelu_tanh", "hardswish", "leaky_relu", "elu", "mish", "erf", "sqrt", "abs", "neg")
)
WITH_PARAMETER = MappingProxyType(
    {"leaky_relu": "LeakyRelu", "elu": "Elu"}
)  # and its name in ONNX, where it is `alpha`
# ONNX nodes of each function: the kind, then `x` for its input, the number of an earlier node, or a constant.
Step = tuple[str, tuple[Any, ...]]
ONNX_STEPS: Mapping[str, tuple[Step, ...]] = MappingProxyType(
    {
        **{name: ((name.title(), ("x",)),) for name in ("sigmoid", "tanh", "exp", "erf", "sqrt", "log", "abs", "neg")},
        "silu": (("Sigmoid", ("x",)), ("Mul", ("x", 0))),
        "gelu": (("Div", ("x", sqrt(2))), ("Erf", (0,)), ("Add", (1, 1.0)), ("Mul", ("x", 2)), ("Mul", (3, 0.5))),
        "gelu_tanh": (
            ("Mul", ("x", "x")),
            ("Mul", (0, "x")),
            ("Mul", (1, 0.044715)),
            ("Add", ("x", 2)),
            ("Mul", (3, 0.7978845608028654)),
            ("Tanh", (4,)),
            ("Add", (5, 1.0)),
            ("Mul", ("x", 6)),
            ("Mul", (7, 0.5)),
        ),
        "hardswish": (("HardSwish", ("x",)),),
        "softplus": (("Softplus", ("x",)),),
        "mish": (("Softplus", ("x",)), ("Tanh", (0,)), ("Mul", ("x", 1))),
        "rsqrt": (("Sqrt", ("x",)), ("Reciprocal", (0,))),
    }
)


class Elementwise(Operation):
    """A function of each element. Options: `function`, and `parameter` of a leaky ReLU or an ELU."""

    name, onnx, takes_views = "elementwise", "Mul", True
    passes = Channels.SAME

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        function_of(node)
        parameter_of(node)
        return inputs[0]

    def count_work(self, work: WorkCounter, node: Node) -> None:
        work.add_whole(node)

    def compute(self, graph: Graph, node: Node, *inputs: Array) -> Any:
        with np.errstate(all="ignore"):
            return FUNCTIONS[function_of(node)](inputs[0], parameter_of(node)).astype(np.float32, copy=False)

    def lower(self, lowering: Lowering, node: Node) -> None:
        view = lowering.covering(node.inputs[0])
        sides = lowering.shapes[view.value]
        work = ElementwiseWork(function_of(node), parameter_of(node))
        layer = Layer("elementwise", view.value, node.output, np.arange(sides[0]), work=work)
        lowering.emit_whole(node, layer, sides, view.of(node.output))

    def onnx_constants(self, graph: Graph, node: Node, shape: Shape) -> dict[str, Any]:
        return {f"c{each}": each for each in _constants(function_of(node))}

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        function = function_of(node)
        if function in WITH_PARAMETER:
            return [OnnxCall(WITH_PARAMETER[function], inputs, output, {"alpha": parameter_of(node)})]
        if function == "hardsigmoid":
            return [OnnxCall("HardSigmoid", inputs, output, {"alpha": 1 / 6, "beta": 0.5})]
        constants = dict(zip(_constants(function), inputs[1:], strict=True))
        steps = ONNX_STEPS[function]
        names = [*(f"{output} {place}" for place in range(len(steps) - 1)), output]

        def said(given: Any) -> str:
            return inputs[0] if given == "x" else names[given] if isinstance(given, int) else constants[given]

        return [
            OnnxCall(kind, [said(each) for each in given], name)
            for (kind, given), name in zip(steps, names, strict=True)
        ]


def _constants(function: str) -> list[float]:
    """Numbers in a function's nodes of ONNX."""
    steps = ONNX_STEPS.get(function, ())
    return list(dict.fromkeys(each for _, given in steps for each in given if isinstance(each, float)))


def function_of(node: Node) -> str:
    """The function of an elementwise node."""
    function = node.options.get("function")
    if not isinstance(function, str) or function not in FUNCTIONS:
        raise GraphError(f"`{node.output}` needs `function`, one of {', '.join(FUNCTIONS)}; got {function!r:.40}.")
    return function


def parameter_of(node: Node) -> float:
    """The slope of a leaky ReLU, the scale of an ELU; nothing of the others."""
    parameter = node.options.get("parameter", 0.0)
    wanted = node.options.get("function") in WITH_PARAMETER
    fits = isinstance(parameter, float) and isfinite(parameter) and abs(parameter) <= MAX_PARAMETER
    if not fits or wanted != ("parameter" in node.options):
        said = "a finite number" if wanted else "nothing"
        raise GraphError(f"`{node.output}` needs as `parameter` {said}; got {parameter!r:.40}.")
    return float(parameter)


OPERATORS: Mapping[str, tuple[Callable[[Array, Array], Any], str]] = MappingProxyType(
    {  # in the order of `enum operator` in elementwise.h, each with its name in ONNX
        "add": (np.add, "Add"),
        "sub": (np.subtract, "Sub"),
        "mul": (np.multiply, "Mul"),
        "div": (np.divide, "Div"),
        "maximum": (np.maximum, "Max"),
        "minimum": (np.minimum, "Min"),
    }
)
SWAPPED = MappingProxyType({"sub": "rsub", "div": "rdiv"})  # in the kernel, where the second operand is the first
OPERATOR_NAMES = (*OPERATORS, *SWAPPED.values())


class Arithmetic(Operation):
    """Two values element by element, axes of one element repeated. Option: `operator`."""

    name, onnx, inputs, takes_views = "arithmetic", "Add", 2, True
    passes = Channels.ALL

    def shape(self, graph: Graph, node: Node, inputs: list[Shape]) -> Shape:
        operator = node.options.get("operator")
        known = isinstance(operator, str) and operator in OPERATORS
        need(known, node.output, f"no `operator` of {', '.join(OPERATORS)}", operator)
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
            return OPERATORS[str(node.options["operator"])][0](*inputs)

    def lower(self, lowering: Lowering, node: Node) -> None:
        lower_arithmetic(lowering, node, str(node.options["operator"]))

    def onnx_calls(self, graph: Graph, node: Node, inputs: Sequence[str], output: str, shape: Shape) -> list[OnnxCall]:
        return [OnnxCall(OPERATORS[str(node.options["operator"])][1], inputs, output)]


def lower_arithmetic(lowering: Lowering, node: Node, operator: str) -> None:
    """A layer of two values; the one that has the output's shape is read where it lies."""
    first, second = node.inputs
    shape = lowering.node_shapes[node.output]
    swapped = lowering.node_shapes[first] != shape or (first in lowering.constants)
    if swapped and lowering.node_shapes[second] == shape and second not in lowering.constants:
        first, second, operator = second, first, SWAPPED.get(operator, operator)
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
    work = ArithmeticWork(operator, places, None if constant is not None else other.value, given)
    layer = Layer("arithmetic", view.value, node.output, np.arange(sides[0]), work=work)
    lowering.emit_whole(node, layer, sides, view.of(node.output))

"""Calls of elementwise functions, and arithmetic with two values or with a number."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from types import MappingProxyType
from typing import Any

import torch

from hypersparse.export.operations.activations import Clip, bounds_of
from hypersparse.export.operations.elementwise import TORCH_FUNCTIONS
from hypersparse.export.rules.emitter import Emitter, need, without_batch
from hypersparse.export.rules.shaping import Rule
from hypersparse_runtime.operations.elementwise import MAX_PARAMETER


def apply(emit: Emitter, name: str, function: str, **options: float) -> str:
    """An elementwise function of a value."""
    return emit.emit("elementwise", [name], emit.shapes[name], function=function, **options)


def _first(emit: Emitter) -> str:
    argument: Any = emit.given.get("self", emit.given.get("input"))
    need(emit.is_value(argument) and argument.meta["val"].dtype == emit.call.node.meta["val"].dtype)
    return emit.value(argument)


def _function(emit: Emitter) -> str:
    """The function that a call is, if any with these arguments."""
    called = emit.call.name.removeprefix("aten.").removesuffix(".default")
    fitting = (name for name, each in TORCH_FUNCTIONS.items() if each.call == called and each.fits(emit.given))
    function = next(fitting, "")
    need(function)
    argument = TORCH_FUNCTIONS[function].parameter
    options = {"parameter": float(emit.given[argument])} if argument else {}
    need(all(abs(value) <= MAX_PARAMETER for value in options.values()))
    return apply(emit, _first(emit), function, **options)


def _prelu(emit: Emitter) -> str:
    """A leaky ReLU with one slope; with one for each channel, two parts of which the negative one is scaled."""
    slopes, full, name = emit.tensor(emit.given["weight"]), emit.full(), _first(emit)
    shape = emit.shapes[name]
    if slopes.numel() == 1 and abs(float(slopes)) <= MAX_PARAMETER:
        return apply(emit, name, "leaky_relu", parameter=float(slopes))
    need(full[0] == 1 and len(full) > 1)
    column = emit.value(emit.given["weight"], (len(slopes), *[1] * (len(shape) - 1)))
    negative = joined(emit, "mul", emit.emit("clip", [name], shape, high=0.0), column)
    return joined(emit, "add", emit.emit("relu", [name], shape), negative)


def join(emit: Emitter, operator: str, first: Any, second: Any, alpha: float = 1) -> str:
    """Combine two values, constants or numbers, element by element."""
    full = emit.full()
    need(emit.is_value(first) or emit.is_value(second))
    need(all(not isinstance(each, float) or isfinite(each) for each in (first, second)))
    need(emit.call.node.meta["val"].dtype.is_floating_point)
    drop = 1 if len(full) > 1 and full[0] == 1 else 0
    one, two = (_wide(emit, each, len(full), drop) for each in (first, second))
    if alpha != 1:
        factor = emit.number(alpha, len(emit.shapes[two]))
        two = emit.emit("arithmetic", [two, factor], emit.shapes[two], operator="mul")
    return joined(emit, operator, one, two)


def joined(emit: Emitter, operator: str, one: str, two: str) -> str:
    """Combine two existing values."""
    shapes = emit.shapes[one], emit.shapes[two]
    constants = {node.output for node in emit.nodes if node.op == "constant"}
    if operator == "add" and shapes[0] == shapes[1] and not {one, two} & constants:
        return emit.emit("add", [one, two], shapes[0])
    made = tuple(max(pair) for pair in zip(*shapes, strict=True))
    return emit.emit("arithmetic", [one, two], made, operator=operator)


def _wide(emit: Emitter, argument: Any, axes: int, drop: int) -> str:
    if isinstance(argument, int | float):
        return emit.number(argument, axes - drop)
    own = tuple(emit.tensor(argument).shape) if emit.is_constant(argument) else emit.full(argument)
    own = own if emit.is_constant(argument) or argument.meta["val"].dim() else ()
    wide = (*(1,) * (axes - len(own)), *own)
    return emit.value(argument, wide[drop:])


def _arithmetic(operator: str, *, swapped: bool = False) -> Rule:
    def rule(emit: Emitter) -> str:
        first, second = emit.given["self"], emit.given["other"]
        need(emit.given.get("rounding_mode") is None)
        scaled = None if swapped else _scaled_product(emit, operator, first, second)
        if scaled is not None:
            return scaled
        pair = (second, first) if swapped else (first, second)
        return join(emit, operator, *pair, alpha=emit.given.get("alpha", 1))

    return rule


def _scaled_product(emit: Emitter, operator: str, first: Any, second: Any) -> str | None:
    """A number times a matrix product that nothing else reads, fused into the product's scale."""
    number = second if isinstance(second, int | float) else None
    if emit.is_constant(second) and emit.tensor(second).numel() == 1:
        number = float(emit.tensor(second))
    if number is None or operator not in ("mul", "div") or not emit.is_value(first) or len(first.users) != 1:
        return None
    name, nodes = emit.state.values[first], emit.state.nodes
    made = next((node for node in reversed(nodes) if node.output == name), None)
    if made is None or made.op != "matmul" or not isfinite(number) or not 1e-6 <= abs(number) <= 1e6:
        return None
    if any(name in node.inputs for node in nodes) or emit.full(first) != emit.full():
        return None
    scale = made.options["scale"] * (number if operator == "mul" else 1 / number)
    nodes[nodes.index(made)] = replace(made, options={"scale": float(scale)})
    return emit.value(first)


def _pow(emit: Emitter) -> str:
    base, exponent = emit.given["self"], emit.given["exponent"]
    need(exponent in (2, 3, 0.5, -0.5, -1))
    name = _first(emit)
    if exponent in (0.5, -0.5):
        return apply(emit, name, "sqrt" if exponent > 0 else "rsqrt")
    if exponent == -1:
        return join(emit, "div", 1.0, base)
    shape = emit.shapes[name]
    square = emit.emit("arithmetic", [name, name], shape, operator="mul")
    return square if exponent == 2 else emit.emit("arithmetic", [square, name], shape, operator="mul")


def _addcmul(emit: Emitter) -> str:
    """A sum with a product: `self + tensor1 * tensor2`."""
    given, full = emit.given, emit.full()
    need(given["value"] == 1 and (emit.is_value(given["tensor1"]) or emit.is_value(given["tensor2"])))
    drop = 1 if len(full) > 1 and full[0] == 1 else 0
    first, second, added = (_wide(emit, given[name], len(full), drop) for name in ("tensor1", "tensor2", "self"))
    return joined(emit, "add", joined(emit, "mul", first, second), added)


def _square(emit: Emitter) -> str:
    name = _first(emit)
    return emit.emit("arithmetic", [name, name], emit.shapes[name], operator="mul")


def _reciprocal(emit: Emitter) -> str:
    return join(emit, "div", 1.0, emit.given["self"])


def _masked_fill(emit: Emitter) -> str:
    """Replace a value by a number where a constant mask is set."""
    mask, value = emit.given["mask"], emit.given["value"]
    return _chosen(emit, emit.tensor(mask), value, emit.given["self"])


def _where(emit: Emitter) -> str:
    first, second = emit.given["self"], emit.given["other"]
    mask = emit.tensor(emit.given["condition"])
    if emit.is_value(first):
        return _chosen(emit, ~mask, second, first)
    return _chosen(emit, mask, first, second)


def _chosen(emit: Emitter, mask: torch.Tensor, filled: Any, kept: Any) -> str:
    """Select by a constant mask: one value times zero where it is set, plus the other."""
    value = filled if isinstance(filled, int | float) else float(emit.tensor(filled).reshape(-1)[0])
    constant = isinstance(filled, int | float) or emit.tensor(filled).numel() == 1
    full = emit.full()
    need(constant and emit.full(kept) == full and mask.dtype == torch.bool)
    value = max(min(float(value), 1e30), -1e30)
    wide = mask.reshape(*(1,) * (len(full) - mask.dim()), *mask.shape)
    shape = tuple(wide.shape)[1:] if full[0] == 1 and len(full) > 1 else tuple(wide.shape)
    parts = {"kept": (~wide).float(), "filled": torch.where(wide, value, 0.0)}
    names = {
        part: emit.emit(
            "constant",
            [emit.state.input],
            shape,
            {"value": emit.made_array(f"{part}.{emit.call.output}", tensor.reshape(shape))},
        )
        for part, tensor in parts.items()
    }
    left = joined(emit, "mul", emit.value(kept, without_batch(full)), names["kept"])
    return joined(emit, "add", left, names["filled"])


def _relu(emit: Emitter) -> str:
    name = _first(emit)
    return emit.emit("relu", [name], emit.shapes[name])


def _clip(emit: Emitter) -> str:
    both, name = bounds_of(emit.call), _first(emit)
    need(both)
    return emit.emit("clip", [name], emit.shapes[name], **(both or {}))


def _converted(emit: Emitter) -> str:
    """Convert to another floating-point type, or to integers for an embedding, which truncates itself."""
    source = emit.given["self"]
    kinds = source.meta["val"].dtype, emit.call.node.meta["val"].dtype
    only_ids = all(str(node.target) == "aten.embedding.default" for node in emit.call.node.users)
    need(kinds[0] == kinds[1] or (not kinds[1].is_floating_point and only_ids and kinds[1] != torch.bool))
    return emit.value(source)


def _overloads(name: str, rule: Rule) -> dict[str, Rule]:
    return {f"{name}.{overload}": rule for overload in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")}


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{f"{each.call}.default": _function for each in TORCH_FUNCTIONS.values()},
        "relu.default": _relu,
        "prelu.default": _prelu,
        **dict.fromkeys(Clip.calls, _clip),
        **dict.fromkeys(("_to_copy.default", "to.dtype", "to.dtype_layout"), _converted),
        **_overloads("add", _arithmetic("add")),
        **_overloads("sub", _arithmetic("sub")),
        **_overloads("rsub", _arithmetic("sub", swapped=True)),
        **_overloads("mul", _arithmetic("mul")),
        **_overloads("div", _arithmetic("div")),
        "maximum.default": _arithmetic("maximum"),
        "minimum.default": _arithmetic("minimum"),
        "pow.Tensor_Scalar": _pow,
        "square.default": _square,
        "addcmul.default": _addcmul,
        "reciprocal.default": _reciprocal,
        **dict.fromkeys(("masked_fill.Scalar", "masked_fill.Tensor"), _masked_fill),
        **dict.fromkeys(("where.self", "where.ScalarSelf", "where.ScalarOther"), _where),
    }
)

"""Calls of norms, matrix products, softmax, attention, reductions, embeddings and recurrent layers."""

from collections.abc import Callable, Mapping
from math import prod, sqrt
from types import MappingProxyType
from typing import Any, cast

import torch

from hypersparse.errors import ModelError
from hypersparse.export.rules.elementwise import apply, joined
from hypersparse.export.rules.emitter import Emitter, need, without_batch
from hypersparse.export.rules.shaping import Rule
from hypersparse_runtime.operations import OPERATIONS
from hypersparse_runtime.operations.recurrent import Recurrent


def _linear(emit: Emitter) -> str:
    given = emit.given
    weight = emit.tensor(given["weight"])
    need(weight.dim() == 2)
    arrays = emit.arrays()
    return layer(emit, emit.value(given["input"]), arrays, len(weight))


def layer(emit: Emitter, name: str, arrays: Mapping[str, str], rows: int) -> str:
    """A linear layer on the last axis."""
    shape = (*emit.shapes[name][:-1], rows)
    return emit.emit("linear" if len(shape) == 1 else "token_linear", [name], shape, arrays)


def _by_constant(emit: Emitter, first: Any, second: Any, bias: Any = None) -> str:
    """A product with a constant matrix, which is a linear layer."""
    weight = emit.tensor(second)
    need(weight.dim() == 2)
    arrays = {"weight": emit.made_array(f"{second.name}.turned", weight.T.contiguous())}
    if bias is not None:
        arrays["bias"] = emit.array(bias)
        need(emit.tensor(bias).dim() == 1)
    return layer(emit, emit.value(first), arrays, weight.shape[1])


def _matmul(emit: Emitter) -> str:
    first = emit.given["self"]
    second = emit.given["mat2"] if "mat2" in emit.given else emit.given["other"]
    if emit.is_constant(second) and emit.tensor(second).dim() == 2:
        return _by_constant(emit, first, second)
    full = emit.full()
    sides = [_sides(emit, each) for each in (first, second)]
    need(len(full) >= 2 and all(len(each) >= 2 for each in sides))
    wide = [(*(1,) * (len(full) - len(each)), *each) for each in sides]
    drop = 1 if len(full) > 2 and full[0] == 1 else 0
    one, two = (emit.value(each, shape[drop:]) for each, shape in zip((first, second), wide, strict=True))
    return product(emit, one, two)


def _sides(emit: Emitter, argument: Any) -> tuple[int, ...]:
    return tuple(emit.tensor(argument).shape) if emit.is_constant(argument) else emit.full(argument)


def product(emit: Emitter, one: str, two: str, scale: float = 1.0) -> str:
    """A product of two values of matrices."""
    first, second = emit.shapes[one], emit.shapes[two]
    batch = (max(pair) for pair in zip(first[:-2], second[:-2], strict=True))
    return emit.emit("matmul", [one, two], (*batch, first[-2], second[-1]), scale=float(scale))


def _addmm(emit: Emitter) -> str:
    need(emit.given["beta"] == 1 and emit.given["alpha"] == 1)
    return _by_constant(emit, emit.given["mat1"], emit.given["mat2"], emit.given["self"])


def _attention(emit: Emitter) -> str:
    given = emit.given
    need(not given["dropout_p"])
    query, key, value = (given[name] for name in ("query", "key", "value"))
    full = emit.full(query)
    need(len(full) >= 3 and emit.full(key)[:-2] == full[:-2] == emit.full(value)[:-2])
    drop = 1 if len(full) > 3 and full[0] == 1 else 0
    q, k, v = (emit.value(each, emit.full(each)[drop:]) for each in (query, key, value))
    axes = len(full) - drop
    turned = emit.permute(k, (*range(axes - 2), axes - 1, axes - 2))
    scale = given["scale"] if given["scale"] is not None else 1 / sqrt(full[-1])
    scores = product(emit, q, turned, scale)
    mask = _mask(emit, len(full), drop)
    if mask is not None:
        scores = joined(emit, "add", scores, mask)
    return product(emit, emit.emit("softmax_last", [scores], emit.shapes[scores]), v)


def _mask(emit: Emitter, axes: int, drop: int) -> str | None:
    """A mask added to attention scores, with a finite number instead of infinity."""
    given = emit.given
    rows, columns = (emit.full(given[name])[-2] for name in ("query", "key"))
    if given["is_causal"]:
        tensor = torch.zeros(rows, columns).masked_fill(torch.ones(rows, columns).tril().logical_not(), -1e30)
    elif given["attn_mask"] is None:
        return None
    else:
        if emit.is_value(given["attn_mask"]):
            full = emit.full(given["attn_mask"])
            return emit.value(given["attn_mask"], (*(1,) * (axes - len(full)), *full)[drop:])
        tensor = emit.tensor(given["attn_mask"])
        if tensor.dtype == torch.bool:
            tensor = torch.zeros(tensor.shape).masked_fill(~tensor, -1e30)
    tensor = tensor.float().clamp(min=-1e30)
    if not tensor.any():
        return None
    wide = tensor.reshape(*(1,) * (axes - tensor.dim()), *tensor.shape)
    array = emit.made_array(f"mask.{emit.call.output}", wide.reshape(tuple(wide.shape)[drop:]))
    return emit.emit("constant", [emit.state.input], tuple(wide.shape)[drop:], {"value": array})


def _softmax(emit: Emitter) -> str:
    full = emit.full()
    axis = emit.axis(emit.given["dim"], full)
    need(emit.given["self"].meta["val"].dtype == emit.call.node.meta["val"].dtype)
    drop = 1 if len(full) > 2 and full[0] == 1 else 0
    name, axis = emit.value(emit.given["self"], full[drop:]), axis - drop
    order = [each for each in range(len(full) - drop) if each != axis] + [axis]
    turned = emit.permute(name, order)
    made = emit.emit("softmax_last", [turned], emit.shapes[turned])
    return emit.permute(made, [order.index(each) for each in range(len(order))])


def _layer_norm(emit: Emitter) -> str:
    given, full = emit.given, emit.full()
    count = prod(given["normalized_shape"])
    axes = len(given["normalized_shape"])
    outer = full[:-axes]
    need(full[0] == 1 or outer)
    arrays = emit.arrays((count,))
    kept = without_batch(outer) if len(outer) > 1 else ()
    name = emit.value(given["input"], (*kept, count))
    made = emit.emit("layer_norm", [name], emit.shapes[name], arrays, epsilon=float(given["eps"]))
    return emit.reshape(made, without_batch(full))


def _rms_norm(emit: Emitter) -> str:
    given = emit.given
    need(len(given["normalized_shape"]) == 1)
    name = emit.value(given["input"])
    shape = emit.shapes[name]
    square = emit.emit("arithmetic", [name, name], shape, operator="mul")
    rows = shape if len(shape) > 1 else (1, *shape)
    mean = emit.emit("reduce", [emit.reshape(square, rows)], rows[:-1], function="mean")
    mean = emit.reshape(mean, (*shape[:-1], 1))
    epsilon = given["eps"] if given["eps"] is not None else torch.finfo(torch.float32).eps
    moved = joined(emit, "add", mean, emit.number(epsilon, len(shape)))
    made = joined(emit, "mul", name, apply(emit, moved, "rsqrt"))
    if given["weight"] is None:
        return made
    weight = emit.value(given["weight"], (*(1,) * (len(shape) - 1), shape[-1]))
    return joined(emit, "mul", made, weight)


def _group_norm(emit: Emitter) -> str:
    given = emit.given
    return _normalized(emit, int(given["num_groups"]), given["input"])


def _instance_norm(emit: Emitter) -> str:
    need(emit.given["use_input_stats"] or emit.given["running_mean"] is None)
    return _normalized(emit, emit.full()[1], emit.given["input"])


def _normalized(emit: Emitter, groups: int, source: Any) -> str:
    given, full = emit.given, emit.full()
    need(full[0] == 1 and len(full) > 2)
    arrays, name = emit.arrays(), emit.value(source)
    return emit.emit("group_norm", [name], emit.shapes[name], arrays, groups=groups, epsilon=float(given["eps"]))


def _reduction(function: str) -> Rule:
    def rule(emit: Emitter) -> str:
        return _reduced(emit, function, lambda name: name)

    return rule


def _reduced(emit: Emitter, function: str, change: Callable[[str], str]) -> str:
    given, full = emit.given, emit.full(emit.given["self"])
    need(given.get("dtype") is None)
    dims = given.get("dim")
    dims = dims if isinstance(dims, list | tuple) else [] if dims is None else [dims]
    axes = sorted(emit.axis(dim, full) for dim in dims)
    need(axes)
    drop = 1 if full[0] == 1 else 0
    name = change(emit.value(given["self"], full[drop:]))
    inner = [axis - drop for axis in axes]
    outer = [axis for axis in range(len(full) - drop) if axis not in inner]
    turned = emit.permute(name, [*outer, *inner])
    shape = tuple(emit.shapes[name][axis] for axis in outer) or (1,)
    count = prod(emit.shapes[name][axis] for axis in inner)
    return emit.emit("reduce", [emit.reshape(turned, (*shape, count))], shape, function=function)


def _vector_norm(emit: Emitter) -> str:
    need(emit.given["ord"] == 2)
    return apply(emit, _reduced(emit, "sum", lambda name: joined(emit, "mul", name, name)), "sqrt")


def _embedding(emit: Emitter) -> str:
    weight, ids = emit.tensor(emit.given["weight"]), emit.given["indices"]
    name = emit.value(ids)
    shape = (*emit.shapes[name], weight.shape[1])
    return emit.emit("embedding", [name], shape, {"weight": emit.array(emit.given["weight"])})


def _recurrent(op: str) -> Rule:
    def rule(emit: Emitter) -> list[str]:
        given = emit.given
        _check_states(emit, op)
        full = emit.full(given["input"])
        need(full[0 if given["batch_first"] else 1] == 1 and len(full) == 3)
        length = full[1 if given["batch_first"] else 0]
        name = emit.value(given["input"], (length, full[2]))
        arrays, last = [emit.array(each) for each in given["params"]], []
        each_count = 4 if given["has_biases"] else 2
        directions = 2 if given["bidirectional"] else 1
        for _ in range(given["num_layers"]):
            made = [
                _direction(emit, op, name, arrays[each_count * way :][:each_count], way) for way in range(directions)
            ]
            arrays = arrays[each_count * directions :]
            last += [emit.cut(each, 0, 0 if way else length - 1, 1) for way, each in enumerate(made)]
            name = emit.concat(made, 1)
        values = emit.call.node.meta["val"]
        states = (tuple(int(side) for side in value.shape) for value in values[:2])
        outputs = (name, emit.concat(last, 0))  # the states after the last step are outputs of that step
        return [emit.reshape(each, without_batch(shape)) for each, shape in zip(outputs, states, strict=True)]

    return rule


def _check_states(emit: Emitter, op: str) -> None:
    """Refuse initial states other than zeros, and the cells after the last step."""
    given, kind = emit.given["hx"], op.upper()
    states = given if isinstance(given, list | tuple) else [given]
    if not all(emit.is_constant(state) and not emit.tensor(state).any() for state in states):
        raise ModelError(f"The network gives its {kind} initial states; only those of zeros can be exported.")
    if not {node.args[1] for node in emit.call.node.users} <= {0, 1}:
        raise ModelError(f"The network reads the cell state of its {kind}; only outputs and `h_n` can be exported.")


def _direction(emit: Emitter, op: str, name: str, arrays: list[str], way: int) -> str:
    roles = dict(zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), arrays, strict=False))
    size = emit.state.tensors[arrays[1]].shape[1]
    need(emit.state.tensors[arrays[1]].shape[0] == size * cast(Recurrent, OPERATIONS[op]).step.gates)
    return emit.emit(op, [name], (emit.shapes[name][0], size), roles, reverse=way)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "linear.default": _linear,
        **dict.fromkeys(("matmul.default", "bmm.default", "mm.default"), _matmul),
        "addmm.default": _addmm,
        "scaled_dot_product_attention.default": _attention,
        **dict.fromkeys(("softmax.int", "_softmax.default"), _softmax),
        "layer_norm.default": _layer_norm,
        "rms_norm.default": _rms_norm,
        "group_norm.default": _group_norm,
        "instance_norm.default": _instance_norm,
        "mean.dim": _reduction("mean"),
        "sum.dim_IntList": _reduction("sum"),
        "amax.default": _reduction("max"),
        "amin.default": _reduction("min"),
        "linalg_vector_norm.default": _vector_norm,
        "embedding.default": _embedding,
        "lstm.input": _recurrent("lstm"),
        "gru.input": _recurrent("gru"),
    }
)

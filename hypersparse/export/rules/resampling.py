"""Calls on sequences, transposed convolutions, resizing and adaptive pooling."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hypersparse.export.aten_call import int_pair
from hypersparse.export.operations.layers import ROLES
from hypersparse.export.rules.emitter import Emitter, need, without_batch
from hypersparse.export.rules.shaping import Rule
from hypersparse_runtime.operations.resampling import MAX_SIDE


def _image(emit: Emitter, argument: Any) -> str:
    """A sequence (C, L) as an image of one row."""
    full = emit.full(argument)
    need(full[0] == 1 and len(full) == 3)
    return emit.value(argument, (full[1], 1, full[2]))


def _wide(emit: Emitter) -> tuple[int, int, int]:
    full = emit.full()
    need(full[0] == 1 and len(full) == 3)
    return (full[1], 1, full[2])


def _one(value: Any) -> int:
    return int(value[0] if isinstance(value, list | tuple) else value)


def _conv1d(emit: Emitter) -> str:
    given = emit.given
    size = emit.tensor(given["weight"]).shape[2]
    stride, dilation, padding = _one(given["stride"]), _one(given["dilation"]), given["padding"]
    if isinstance(padding, str):
        edge = dilation * (size - 1)
        need(padding == "valid" or edge % 2 == 0)
        padding = edge // 2 if padding == "same" else 0
    sides = {"stride": (1, stride), "padding": (0, _one(padding)), "dilation": (1, dilation)}
    name = _image(emit, given["input"])
    return emit.emit("conv", [name], _wide(emit), emit.arrays(), **sides, groups=given["groups"])


def _conv_transpose(emit: Emitter) -> str:
    given, full = emit.given, emit.full(emit.given["input"])
    flat = len(full) == 3
    need(full[0] == 1 and len(full) in (3, 4))
    weight = emit.tensor(given["weight"])
    shape = (*weight.shape[:2], 1, weight.shape[2]) if flat else tuple(weight.shape)
    arrays = {"weight": emit.array(given["weight"], shape)}
    if given["bias"] is not None:
        arrays["bias"] = emit.array(given["bias"])
    sides = {}
    for option, usual in (("stride", 1), ("padding", 0), ("output_padding", 0), ("dilation", 1)):
        pair = int_pair(given[option])
        sides[option] = (usual, pair[1]) if flat else pair
    name = _image(emit, given["input"]) if flat else emit.value(given["input"])
    made = _wide(emit) if flat else emit.full()[1:]
    return emit.emit("conv_transpose", [name], made, arrays, **sides, groups=given["groups"])


def _pool1d(op: str) -> Rule:
    def rule(emit: Emitter) -> str:
        given = emit.given
        need(not given["ceil_mode"] and _one(given.get("dilation", 1)) == 1)
        kernel, padding = _one(given["kernel_size"]), _one(given["padding"])
        need(given.get("count_include_pad", True) or padding == 0)
        stride = _one(given["stride"]) if given["stride"] else kernel
        name = _image(emit, given["self"])
        return emit.emit(op, [name], _wide(emit), kernel=(1, kernel), stride=(1, stride), padding=(0, padding))

    return rule


def _adaptive1d(emit: Emitter) -> str:
    return _adaptive(emit, _image(emit, emit.given["self"]), _wide(emit))


def _adaptive2d(emit: Emitter) -> str:
    full = emit.full()
    need(full[0] == 1 and len(full) == 4)
    return _adaptive(emit, emit.value(emit.given["self"]), full[1:])


def _adaptive(emit: Emitter, name: str, made: tuple[int, ...]) -> str:
    need(max(*made[1:], *emit.shapes[name][1:]) <= MAX_SIDE)
    return emit.emit("adaptive_pool", [name], made, size=tuple(made[1:]))


def _adaptive_max(emit: Emitter) -> list[str]:
    """Adaptive max pooling over the whole image."""
    value = emit.call.node.meta["val"][0]
    full = emit.full(emit.given["self"])
    need(tuple(value.shape[2:]) == (1, 1) and full[0] == 1 and len(full) == 4)
    need(all(node.args[1] == 0 for node in emit.call.node.users))
    name = emit.value(emit.given["self"], (full[1], full[2] * full[3]))
    return [emit.reshape(emit.emit("reduce", [name], (full[1],), function="max"), (full[1], 1, 1))]


def _resize(mode: str) -> Rule:
    def rule(emit: Emitter) -> str:
        given, full, made = emit.given, emit.full(emit.given["input" if "input" in emit.given else "self"]), emit.full()
        need(full[0] == 1 and len(full) == 4 and max(*full[2:], *made[2:]) <= MAX_SIDE)
        scales = given.get("scale_factors") or (given.get("scales_h"), given.get("scales_w"))
        sides = zip(scales, full[2:], made[2:], strict=True)
        scale = tuple(float(new / old if by is None else by) for by, old, new in sides)
        corners = int(bool(given.get("align_corners")))
        name = emit.value(given.get("input", given.get("self")))
        return emit.emit("resize", [name], made[1:], mode=mode, size=made[2:], scale=scale, align_corners=corners)

    return rule


def _batch_norm(emit: Emitter) -> list[str]:
    """Batch norm of a sequence (C, L), as an image of one row; images and vectors have their own operation."""
    given = emit.given
    full = emit.full(given["input"])
    need(full[0] == 1 and len(full) == 3 and all(node.args[1] == 0 for node in emit.call.node.users))
    need(all(given[name] is not None for name in ROLES.values()))
    arrays = {role: emit.array(given[name]) for role, name in ROLES.items()}
    name = _image(emit, given["input"])
    made = emit.emit("batch_norm", [name], emit.shapes[name], arrays, epsilon=float(given["eps"]))
    return [emit.reshape(made, without_batch(full))]


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(("conv1d.default", "conv1d.padding"), _conv1d),
        **dict.fromkeys(("conv_transpose1d.default", "conv_transpose2d.input"), _conv_transpose),
        "max_pool1d.default": _pool1d("max_pool"),
        "avg_pool1d.default": _pool1d("avg_pool"),
        "adaptive_avg_pool1d.default": _adaptive1d,
        "adaptive_avg_pool2d.default": _adaptive2d,
        "adaptive_max_pool2d.default": _adaptive_max,
        **dict.fromkeys(("upsample_nearest2d.vec", "upsample_nearest2d.default"), _resize("nearest")),
        **dict.fromkeys(("upsample_bilinear2d.vec", "upsample_bilinear2d.default"), _resize("bilinear")),
        "_native_batch_norm_legit_no_training.default": _batch_norm,
    }
)

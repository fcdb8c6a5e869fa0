"""Calls that reshape, move or join elements."""

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from hypersparse.export.rules.emitter import Emitter, need, without_batch

Made = str | list[str]
Rule = Callable[[Emitter], Made]


def _reshape(emit: Emitter) -> str:
    given = next(iter(emit.given.values()))
    return emit.value(given, without_batch(emit.full()))


def _permute(emit: Emitter) -> str:
    full = emit.full(emit.given["self"])
    axes = [axis % len(full) for axis in emit.given["dims"]]
    return _permuted(emit, axes)


def _transpose(emit: Emitter) -> str:
    axes = list(range(len(emit.full(emit.given["self"]))))
    first, second = (emit.given.get(name, default) % len(axes) for name, default in (("dim0", 0), ("dim1", 1)))
    axes[first], axes[second] = axes[second], axes[first]
    return _permuted(emit, axes)


def _permuted(emit: Emitter, order: list[int]) -> str:
    """Permutations; the batch axis has length one and stays in front."""
    full = emit.full(emit.given["self"])
    if order[0] == 0 and full[0] == 1 and len(full) > 1:
        return emit.permute(emit.value(emit.given["self"]), [axis - 1 for axis in order[1:]])
    return emit.permute(emit.value(emit.given["self"], full), order)


def _expand(emit: Emitter) -> str:
    source, made = emit.given["self"], emit.full()
    full = emit.full(source)
    wide = (*(1,) * (len(made) - len(full)), *full)
    if made[0] == 1 and len(made) > 1:
        return emit.expand(emit.value(source, wide[1:]), made[1:])
    return emit.expand(emit.value(source, wide), made)


def _repeat(emit: Emitter) -> str:
    """Each axis is repeated by a new axis in front of it."""
    source, made = emit.given["self"], emit.full()
    full = emit.full(source)
    wide = (*(1,) * (len(made) - len(full)), *full)
    pairs = [(after // before, before) for before, after in zip(wide, made, strict=True)]
    need(len(pairs) <= 4)
    inner = tuple(side for times, before in pairs for side in (1, before))
    outer = tuple(side for pair in pairs for side in pair)
    return emit.expand(emit.value(source, inner), outer)


def _slice(emit: Emitter) -> str:
    given, full = emit.given, emit.full(emit.given["self"])
    start = given["start"] or 0
    axis = given["dim"] % len(full)
    if emit.full() == full:
        return emit.value(given["self"])
    start = min(max(start + full[axis] if start < 0 else start, 0), full[axis])
    return _cut(emit, given["dim"], start, emit.full()[axis], given["step"])


def _narrow(emit: Emitter) -> str:
    return _cut(emit, emit.given["dim"], emit.given["start"], emit.given["length"])


def _select(emit: Emitter) -> str:
    full = emit.full(emit.given["self"])
    index = emit.given["index"]
    return _cut(emit, emit.given["dim"], index % full[emit.given["dim"] % len(full)], 1)


def _cut(emit: Emitter, dim: int, start: int, length: int, step: int = 1) -> str:
    full = emit.full(emit.given["self"])
    axis = dim % len(full)
    if full[0] != 1 or len(full) == 1:
        return emit.cut(emit.value(emit.given["self"], full), axis, start, length, step)
    if axis == 0:  # of a batch of one
        return emit.value(emit.given["self"])
    return emit.cut(emit.value(emit.given["self"]), axis - 1, start, length, step)


def _pieces(emit: Emitter) -> list[str]:
    """The pieces of a split, chunk or unbind, by their shapes."""
    values = emit.call.node.meta["val"]
    full = emit.full(emit.given["self"])
    axis = emit.axis(emit.given.get("dim", 0), full)
    pieces, start = [], 0
    for value in values:
        length = int(value.shape[axis]) if value.dim() == len(full) else 1  # `unbind` gives pieces without the axis
        rest = tuple(int(side) for side in value.shape[1:])
        shape = (1, *rest) if full[0] == 1 else (int(value.shape[0]), *rest)
        pieces.append(emit.reshape(_cut(emit, axis, start, length), without_batch(shape)))
        start += length
    return pieces


def _cat(emit: Emitter) -> str:
    full = emit.full()
    axis = emit.axis(emit.given["dim"], full)
    parts = [part for part in emit.given["tensors"] if prod(emit.full(part)) > 0]
    drop = 1 if full[0] == 1 else 0
    need(all(len(emit.full(part)) == len(full) for part in parts))
    return emit.concat([emit.value(part, emit.full(part)[drop:]) for part in parts], axis - drop)


def _stack(emit: Emitter) -> str:
    full = emit.full()
    axis = emit.axis(emit.given["dim"], full)
    drop = 1 if full[0] == 1 else 0
    shape = (*full[drop:axis], 1, *full[axis + 1 :])
    return emit.concat([emit.value(part, shape) for part in emit.given["tensors"]], axis - drop)


def _roll(emit: Emitter) -> str:
    full, shifts = emit.full(), emit.given["shifts"]
    need(full[0] == 1 and len(emit.given["dims"]) == len(shifts))
    name = emit.value(emit.given["self"])
    for dim, shift in zip(emit.given["dims"], shifts, strict=True):
        axis = emit.axis(dim, full) - 1
        side = emit.shapes[name][axis]
        first = side - shift % side
        if first != side:
            name = emit.concat([emit.cut(name, axis, first, side - first), emit.cut(name, axis, 0, first)], axis)
    return name


def _flip(emit: Emitter) -> str:
    full = emit.full()
    need(full[0] == 1)
    name = emit.value(emit.given["self"])
    for dim in emit.given["dims"]:
        axis = emit.axis(dim, full) - 1
        shape = emit.shapes[name]
        name = emit.emit("slice", [name], shape, axis=axis, start=shape[axis] - 1, length=shape[axis], step=-1)
    return name


def _pad(emit: Emitter) -> str:
    given, full = emit.given, emit.full(emit.given["self"])
    value = given.get("value") or 0.0
    need(given.get("mode", "constant") == "constant" and full[0] == 1)
    name = emit.value(given["self"])
    pads = list(given["pad"])
    for place in range(len(pads) // 2):
        axis = len(full) - 2 - place
        need(axis >= 0 or not any(pads[2 * place : 2 * place + 2]))
        before, after = pads[2 * place : 2 * place + 2]
        if axis < 0:
            continue
        name = emit.cut(name, axis, max(-before, 0), emit.shapes[name][axis] + min(before, 0) + min(after, 0))
        parts = [_filled(emit, name, axis, before, value), [name], _filled(emit, name, axis, after, value)]
        name = emit.concat([each for part in parts for each in part], axis)
    return name


def _filled(emit: Emitter, name: str, axis: int, length: int, value: float) -> list[str]:
    """A value of one number to concatenate along an axis."""
    if length <= 0:
        return []
    shape = emit.shapes[name]
    return [emit.expand(emit.number(value, len(shape)), (*shape[:axis], length, *shape[axis + 1 :]))]


def _channel_shuffle(emit: Emitter) -> str:
    (channels, *sides), groups = emit.full(emit.given["self"])[1:], emit.given["groups"]
    name = emit.value(emit.given["self"], (groups, channels // groups, *sides))
    return emit.permute(name, (1, 0, *range(2, 2 + len(sides))))


def _pixel_shuffle(emit: Emitter) -> str:
    full, by = emit.full(emit.given["self"]), emit.given["upscale_factor"]
    need(len(full) == 4)
    _, channels, height, width = full
    name = emit.value(emit.given["self"], (channels // by**2, by, by, height, width))
    return emit.permute(name, (0, 3, 1, 4, 2))


def _pixel_unshuffle(emit: Emitter) -> str:
    full, by = emit.full(emit.given["self"]), emit.given["downscale_factor"]
    need(len(full) == 4)
    _, channels, height, width = full
    name = emit.value(emit.given["self"], (channels, height // by, by, width // by, by))
    return emit.permute(name, (0, 2, 4, 1, 3))


def _names(text: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(text.split(), rule)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **_names("view.default reshape.default _unsafe_view.default flatten.using_ints unflatten.int", _reshape),
        **_names("unsqueeze.default squeeze.default squeeze.dim squeeze.dims", _reshape),
        "permute.default": _permute,
        **_names("transpose.int t.default", _transpose),
        "expand.default": _expand,
        "repeat.default": _repeat,
        "slice.Tensor": _slice,
        "narrow.default": _narrow,
        "select.int": _select,
        **_names("split.Tensor split_with_sizes.default split.sizes chunk.default unbind.int", _pieces),
        **_names("cat.default concat.default concatenate.default", _cat),
        "stack.default": _stack,
        "roll.default": _roll,
        "flip.default": _flip,
        **_names("pad.default constant_pad_nd.default", _pad),
        "channel_shuffle.default": _channel_shuffle,
        "pixel_shuffle.default": _pixel_shuffle,
        "pixel_unshuffle.default": _pixel_unshuffle,
    }
)

"""Checks of the arguments of PyTorch's operations: no read out of bounds, no side effect, no endless loop.

PyTorch checks most of this, except what its own layers cannot get wrong. `_native_batch_norm_legit_no_training`, for
example, reads as many numbers as its input has channels, whatever the length of its arrays.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from math import floor, prod
from types import MappingProxyType
from typing import Any

from torch import Tensor

from hypersparse.errors import ModelError
from hypersparse_runtime.limits import MOST_OF_A_VALUE

Arguments = Mapping[str, Any]  # by their names in the operation's schema

MOST_PIECES = 1024  # that a value is split into
END = sys.maxsize  # how exported programs write "to the end" of a slice
MOST_SIDE = MOST_OF_A_VALUE  # no side, window or step can be longer than a value

# Least whole numbers by the names of arguments; all others may be negative.
AT_LEAST_ONE = (
    *("C", "HxW", "N", "chunks", "dilation", "divisor_override", "downscale_factor", "group", "groups", "kernel_size"),
    *("normalized_shape", "num_groups", "output_size", "split_size", "step", "stride", "upscale_factor"),
)
NOT_NEGATIVE = ("length", "output_padding", "padding", "split_sizes")
LEAST = MappingProxyType({**dict.fromkeys(AT_LEAST_ONE, 1), **dict.fromkeys(NOT_NEGATIVE, 0)})
# Values that an argument must have: others draw random numbers, change the statistics of a norm or move the result.
FIXED = MappingProxyType(
    {
        "dropout_p": 0,
        "half_to_float": False,
        "training": False,
        "non_blocking": False,
        **dict.fromkeys(("device", "layout", "memory_format", "path", "pin_memory")),
    }
)


def named_arguments(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of a call by its name in the operation's schema, defaults included."""
    known = function._schema.arguments
    named = {argument.name: argument.default_value for argument in known}
    given = {**dict(zip(named, arguments, strict=False)), **keywords}
    if len(arguments) > len(known) or not given.keys() <= named.keys():
        raise ModelError(f"`{function}` takes {', '.join(named)}; got {len(arguments)} and {', '.join(keywords)}.")
    return {**named, **given}


def check_arguments(op: str, given: Arguments) -> None:
    """Raise ModelError unless an operation with these arguments only computes a tensor."""
    for name, value in given.items():
        if name in FIXED and value != FIXED[name]:
            raise ModelError(f"`{name}` of `{op}` must be {FIXED[name]}; got {value!r}.")
        for number in _numbers(value):
            if not LEAST.get(name, -MOST_SIDE) <= number <= MOST_SIDE and abs(number) != END:
                expected = f"a whole number from {LEAST.get(name, -MOST_SIDE)} to {MOST_SIDE}"
                raise ModelError(f"`{name}` of `{op}` must be {expected}; got {number}.")
    for check in CHECKS.get(op.split(".")[1], ()):
        check(op, given)


def _numbers(value: Any) -> list[int]:
    values = value if isinstance(value, list | tuple) else (value,)
    return [number for number in values if isinstance(number, int)]


def _need(condition: bool, op: str, said: str) -> None:
    if not condition:
        raise ModelError(f"`{op}` {said}.")


def _vectors(op: str, given: Arguments, names: Sequence[str], length: int) -> None:
    """Check that each array is missing or has one number of the input's type for each channel."""
    kind = given["input"].dtype
    _need(kind.is_floating_point, op, f"needs an input of floating-point numbers; got {kind}")
    for name in names:
        array = given[name]
        if array is not None and (tuple(array.shape) != (length,) or array.dtype != kind):
            came = f"{tuple(array.shape)} of {array.dtype}"
            raise ModelError(f"`{name}` of `{op}` must have the shape ({length},) and be {kind}; got {came}.")


def _channels(op: str, given: Arguments) -> int:
    _need(given["input"].ndim > 1, op, "needs an input with channels")
    return int(given["input"].shape[1])


def _statistics(op: str, given: Arguments) -> None:
    """Check that a norm uses stored statistics without changing them, or the statistics of each input."""
    _vectors(op, given, ("weight", "bias", "running_mean", "running_var"), _channels(op, given))
    there = [given[name] is not None for name in ("running_mean", "running_var")]
    of_inputs = given.get("use_input_stats", False)
    _need(there == [not of_inputs] * 2, op, "needs either a mean and a variance or those of its input")


def _groups(op: str, given: Arguments) -> None:
    channels = _channels(op, given)
    _vectors(op, given, ("weight", "bias"), channels)
    groups = given.get("num_groups", given.get("group"))
    _need(channels % groups == 0, op, f"cannot put {channels} channels into {groups} groups")


def _group_sizes(op: str, given: Arguments) -> None:
    shape = given["input"].shape
    fits = given["C"] == shape[1] and given["N"] == shape[0] and given["HxW"] == prod(shape[2:])
    _need(fits, op, f"has other sizes than its input of shape {tuple(shape)}")


def _normalized(op: str, given: Arguments) -> None:
    shape, kind = tuple(given["normalized_shape"]), given["input"].dtype
    _need(kind.is_floating_point, op, f"needs an input of floating-point numbers; got {kind}")
    fits = 0 < len(shape) <= given["input"].ndim and tuple(given["input"].shape[-len(shape) :]) == shape
    _need(fits, op, f"cannot normalize {tuple(given['input'].shape)} over {shape}")
    for array in (given["weight"], given.get("bias")):
        _need(
            array is None or (tuple(array.shape) == shape and array.dtype == kind),
            op,
            f"needs arrays of the shape {shape} that are {kind}",
        )


def _pieces(op: str, given: Arguments) -> None:
    size = given.get("split_size")
    side = given["self"].shape[given["dim"]]
    count = min(given["chunks"], side) if "chunks" in given else -(-side // size) if isinstance(size, int) else 0
    _need(count <= MOST_PIECES, op, f"gives {count} pieces, and {MOST_PIECES} are the most")


def _scales(op: str, given: Arguments) -> None:
    """Check that scales match the two sizes; other scales read outside the input."""
    x = given.get("self", given.get("input"))
    _need(isinstance(x, Tensor) and x.ndim == 4, op, "needs an input of four axes")
    assert x is not None
    scales = given.get("scale_factors") or [given.get("scales_h"), given.get("scales_w")]
    sizes = given.get("output_size") or [None, None]
    _need(len(scales) == len(sizes) == 2, op, "needs two sizes or scales")
    for side, size, scale in zip(x.shape[2:], sizes, scales, strict=True):
        fits = size is None or scale is None or floor(side * scale) == size
        _need((scale is None or 0 < scale <= MOST_SIDE) and fits, op, f"cannot scale {side} to {size} by {scale}")


def _slopes(op: str, given: Arguments) -> None:
    x, weight = given["self"], given["weight"]
    channels = x.shape[1] if x.ndim > 1 else 1
    _need(weight.ndim <= 1 and weight.numel() in (1, channels), op, f"needs one slope or {channels}")


def _attention(op: str, given: Arguments) -> None:
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    _need(query.ndim == key.ndim == value.ndim > 2, op, "needs three inputs of one count of axes, at least 3")
    fits = query.shape[-1] == key.shape[-1] and key.shape[:-1] == value.shape[:-1]
    heads = query.shape[-3] % key.shape[-3] == 0 if given["enable_gqa"] else query.shape[-3] == key.shape[-3]
    fits = fits and heads and query.shape[:-3] == key.shape[:-3]
    _need(fits, op, f"cannot join {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}")
    scores = (*query.shape[:-1], key.shape[-2])
    sides = zip(reversed(mask.shape), reversed(scores), strict=False) if mask is not None else ()
    fits = all(side in (1, size) for side, size in sides) and (mask is None or mask.ndim <= len(scores))
    _need(fits, op, f"needs a mask of the shape {scores}")


Check = Callable[[str, Arguments], None]
CHECKS: Mapping[str, Sequence[Check]] = MappingProxyType(
    {
        "_native_batch_norm_legit_no_training": (_statistics,),
        "batch_norm": (_statistics,),
        "instance_norm": (_statistics,),
        "group_norm": (_groups,),
        "native_group_norm": (_groups, _group_sizes),
        **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), (_normalized,)),
        **dict.fromkeys(("chunk", "split"), (_pieces,)),
        **dict.fromkeys(("upsample_bilinear2d", "upsample_nearest2d"), (_scales,)),
        "prelu": (_slopes,),
        "scaled_dot_product_attention": (_attention,),
    }
)

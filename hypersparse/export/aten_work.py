"""Estimates of the time and extra memory of PyTorch's operations, from shapes alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from torch import Tensor

from hypersparse.export.aten_checks import Arguments

LOOP_STEP = 32  # a step of a loop over windows or elements takes as long as this many multiplications of a product

Work = tuple[int, int]
"""Multiplications, and elements of the largest array that an operation makes for itself."""


def work_of(op: str, given: Arguments, made: Any) -> Work:
    """The work of one call, given its named arguments and its output."""
    results = [value for value in (made if isinstance(made, list | tuple) else (made,)) if isinstance(value, Tensor)]
    rule = RULES.get(op.removeprefix("aten.").partition(".")[0], _elements)
    return rule(given, results)


def _elements(given: Arguments, results: Sequence[Tensor]) -> Work:
    return LOOP_STEP * sum(value.numel() for value in (*_tensors(given.values()), *results)), 0


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    flat = [item for value in values for item in (value if isinstance(value, list | tuple) else (value,))]
    return [value for value in flat if isinstance(value, Tensor)]


def _product(given: Arguments, results: Sequence[Tensor]) -> Work:
    """Matrix products: each result is a sum over the last side of the first factor."""
    first = given["mat1"] if "mat1" in given else given.get("self", given.get("input"))
    assert isinstance(first, Tensor)
    return results[0].numel() * first.shape[-1], 0


def _broadcast_product(given: Arguments, results: Sequence[Tensor]) -> Work:
    """Broadcast matrix products: each factor is copied for every matrix of the other."""
    first, second, (result,) = given["self"], given["other"], results
    work, _ = _product(given, results)
    if min(first.ndim, second.ndim) < 2:
        return work, 0
    return work, prod(result.shape[:-2]) * first.shape[-1] * (first.shape[-2] + second.shape[-1])


def _convolution(given: Arguments, results: Sequence[Tensor]) -> Work:
    """Convolutions allocate an array with every window as a column."""
    return _windows(given["input"], given["weight"], results[0], transposed=bool(given.get("transposed")))


def _transposed_convolution(given: Arguments, results: Sequence[Tensor]) -> Work:
    return _windows(given["input"], given["weight"], results[0], transposed=True)


def _windows(x: Tensor, weight: Tensor, result: Tensor, *, transposed: bool) -> Work:
    slid, window = (x if transposed else result), prod(weight.shape[2:])
    axes = weight.ndim - 2
    channels, places = (result if transposed else x).shape[-axes - 1], prod(slid.shape[-axes:])
    return slid.numel() * (weight.numel() // max(weight.shape[0], 1)), channels * window * places


def _pool(given: Arguments, results: Sequence[Tensor]) -> Work:
    """Pooling; missing dimensions of a window equal the last given one."""
    kernel = list(given["kernel_size"])
    axes = max(len(kernel), given["self"].ndim - 2)
    kernel += kernel[-1:] * (axes - len(kernel))
    return LOOP_STEP * results[0].numel() * prod(kernel), 0


def _adaptive_pool(given: Arguments, results: Sequence[Tensor]) -> Work:
    sides = zip(given["self"].shape[1:], results[0].shape[1:], strict=True)
    return LOOP_STEP * results[0].numel() * prod(-(-side // max(size, 1)) + 1 for side, size in sides), 0


def _attention(given: Arguments, results: Sequence[Tensor]) -> Work:
    width, (keys, depth) = given["query"].shape[-1], given["value"].shape[-2:]
    rows = results[0].numel() // depth
    matrices = rows // given["query"].shape[-2]
    return rows * keys * (width + depth), rows * (keys + width) + matrices * keys * (width + depth)


def _einsum(given: Arguments, results: Sequence[Tensor]) -> Work:
    """Every combination of the letters is multiplied; with more than two factors all may be stored."""
    sides: dict[str, int] = {}
    for letters, tensor in zip(given["equation"].split("->")[0].split(","), given["tensors"], strict=True):
        before, _, after = letters.replace(" ", "").partition("...")
        rest = [f"...{axis}" for axis in range(tensor.ndim - len(before) - len(after), 0, -1)]
        for letter, side in zip([*before, *rest, *after], tensor.shape, strict=True):
            sides[letter] = max(sides.get(letter, 1), side)
    count = prod(sides.values())
    return count, count if len(given["tensors"]) > 2 else 0


Rule = Callable[[Arguments, Sequence[Tensor]], Work]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(("addmm", "bmm", "linear", "mm"), _product),
        "matmul": _broadcast_product,
        **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
        **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
        **dict.fromkeys(("avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d", "max_pool3d"), _pool),
        **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d"), _adaptive_pool),
        "scaled_dot_product_attention": _attention,
        "einsum": _einsum,
    }
)

"""The operations of PyTorch without an equivalent in a `Graph` that may be run, and how they are run.

A file can name these operations and no others. Each computes a tensor from its arguments, reads no file, draws no
random number and has no side effect. `aten_checks` checks their arguments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from hypersparse.errors import ModelError, unknown
from hypersparse.export.aten_call import GETITEM
from hypersparse.export.aten_checks import check_arguments, named_arguments
from hypersparse.export.operations.elementwise import TORCH_FUNCTIONS
from hypersparse.export.silence_torch import first_line
from hypersparse_runtime.graph import Node


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What maps every element of one value by itself, so that a constant channel stays one.
ELEMENTWISE = frozenset(each.call for each in TORCH_FUNCTIONS.values()) | _words(
    "clamp clamp_max clamp_min expm1 hardtanh log1p relu relu6"
)
NORMS = _words("batch_norm group_norm instance_norm layer_norm rms_norm")
WITH_NUMBERS = _words("add sub rsub mul div pow")  # elementwise too, if the other operand is a number
# By their names and, after a dot, the overloads other than `default`.
ALLOWED = ELEMENTWISE | _words(
    "add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar mul.Tensor mul.Scalar "
    "div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar "
    "clamp.Tensor clamp_max.Tensor clamp_min.Tensor cos sin logit maximum minimum prelu reciprocal "
    "_log_softmax _softmax log_softmax.int softmax.int _to_copy "
    "amax amin cumsum mean mean.dim sum sum.dim_IntList var var.dim var.correction "
    "addmm bmm einsum linear matmul mm scaled_dot_product_attention "
    "conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding convolution "
    "conv_transpose1d conv_transpose2d.input conv_transpose3d.input "
    "batch_norm group_norm instance_norm layer_norm native_group_norm native_layer_norm rms_norm "
    "_native_batch_norm_legit_no_training "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d avg_pool1d avg_pool2d "
    "max_pool1d max_pool2d max_pool3d upsample_bilinear2d upsample_bilinear2d.vec "
    "upsample_nearest2d upsample_nearest2d.vec "
    "constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad2d "
    "_unsafe_view cat channel_shuffle chunk expand flatten.using_ints index_select movedim.int movedim.intlist narrow "
    "permute pixel_shuffle pixel_unshuffle reshape roll select.int slice.Tensor split split.Tensor split.sizes "
    "split_with_sizes squeeze squeeze.dim squeeze.dims stack t transpose.int unflatten.int unsqueeze view"
)
VIEWS = ("view", "_unsafe_view")
DTYPES = {name: getattr(torch, name) for name in ("float16", "float32", "float64", "int32", "int64", "bool")}


def is_elementwise(node: Node) -> bool:
    """Whether a node maps each element of its only input independently."""
    parts = node.op.split(".")
    if len(parts) != 3 or parts[0] != "aten" or len(node.inputs) != 1 or node.tensors:
        return False
    numbers = all(isinstance(value, int | float) for value in node.options["arguments"][1:])
    return parts[1] in ELEMENTWISE or (parts[1] in WITH_NUMBERS and numbers)


def function_of(node: Node) -> Callable[..., Any]:
    """The operation of a node, if it may be run."""
    return _picked if node.op == GETITEM else _operation(node.op)


@cache
def _operation(op: str) -> Callable[..., Any]:
    package, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    if package != "aten" or rest.removesuffix(".default") not in ALLOWED or "." not in rest:
        if any(rest.startswith(f"{known.partition('.')[0]}.") for known in ALLOWED):
            raise ModelError(unknown("operation of PyTorch", op, [f"aten.{known}" for known in sorted(ALLOWED)]))
        raise ModelError(f"The network has an operation `{op}`, which is not one that may be run.")
    if name in VIEWS:  # what is before it may lie otherwise in memory than in the model
        name = "reshape"
    function: Callable[..., Any] = getattr(getattr(torch.ops.aten, name), overload)
    return function


def call(node: Node, inputs: Sequence[Any], tensors: Mapping[str, Tensor], batch: int) -> Any:
    """Check the arguments of a node and run it."""
    with errors_of(node):
        arguments, keywords = meant_arguments(node, inputs, tensors, batch)
        function = function_of(node)
        if function is not _picked:
            check_arguments(node.op, named_arguments(function, arguments, keywords))
        return function(*arguments, **keywords)


@contextmanager
def errors_of(node: Node) -> Iterator[None]:
    """Turn any error in the block into one sentence about the node."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # operations raise anything from ZeroDivisionError to AssertionError
        said = f"The operation `{node.op}` cannot be run as it was written down: {first_line(error)}"
        raise ModelError(said) from None


def meant_arguments(
    node: Node, inputs: Sequence[Any], tensors: Mapping[str, Tensor], batch: int
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a node, with the references in its JSON resolved."""

    def meant(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [meant(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, what),) = value.items()
        meanings: dict[str, Callable[[], Any]] = {
            "input": lambda: inputs[what],
            "tensor": lambda: tensors[what],
            "batch": lambda: batch,
            "dtype": lambda: DTYPES[what],
        }
        return meanings[kind]()

    return (
        [meant(value) for value in node.options["arguments"]],
        {str(name): meant(value) for name, value in node.options["keywords"].items()},
    )


def count_arguments(node: Node) -> int:
    """The number of values, arrays and options of a node, including those in lists."""
    count, rest = len(node.inputs) + len(node.tensors), [node.options.get("arguments"), node.options.get("keywords")]
    while rest:
        value = rest.pop()
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        count += len(inside)
        rest.extend(inside)
    return count


def _picked(values: Any, place: Any) -> Any:
    if isinstance(values, Tensor) or type(place) is not int:
        raise TypeError("it picks one of several values")
    return values[place]

"""Operations of PyTorch that a `Graph` has no word for: which of them may be run, and how.

A file can name any of these and nothing else: each computes a tensor from its arguments, reads no file, draws no random
number and changes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hypersparse.errors import ModelError, unknown
from hypersparse.export.quiet import first_line
from hypersparse_runtime.graph import Node

GETITEM = "getitem"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What maps every element of one value by itself, so that a constant channel stays one.
ELEMENTWISE = _words(
    "abs celu clamp clamp_max clamp_min elu erf exp expm1 gelu hardsigmoid hardswish hardtanh leaky_relu log1p "
    "log_sigmoid mish neg relu relu6 selu sigmoid silu softplus softsign sqrt tanh tanhshrink"
)
OTHERS = _words(
    "_log_softmax _softmax _to_copy _unsafe_view adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d add addmm "
    "amax amin avg_pool1d avg_pool2d batch_norm bmm cat channel_shuffle chunk constant_pad_nd conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d convolution cos cumsum div einsum expand flatten "
    "group_norm index_select instance_norm layer_norm linear log_softmax logit matmul max_pool1d max_pool2d max_pool3d "
    "maximum mean minimum mm movedim mul narrow native_group_norm native_layer_norm "
    "_native_batch_norm_legit_no_training pad permute pixel_shuffle pixel_unshuffle pow prelu reciprocal "
    "reflection_pad1d reflection_pad2d replication_pad2d reshape rms_norm roll rsqrt rsub "
    "scaled_dot_product_attention select sin slice softmax split split_with_sizes squeeze stack sub sum t transpose "
    "unflatten unsqueeze upsample_bilinear2d upsample_nearest2d var view"
)
WITH_NUMBERS = _words("add sub rsub mul div pow")  # elementwise too, if the other operand is a number
DTYPES = {name: getattr(torch, name) for name in ("float16", "float32", "float64", "int32", "int64", "bool")}


def is_elementwise(node: Node) -> bool:
    """Whether a node maps each element of its one input by itself."""
    parts = node.op.split(".")
    if len(parts) != 3 or parts[0] != "aten" or len(node.inputs) != 1 or node.tensors:
        return False
    numbers = all(isinstance(value, int | float) for value in node.options["arguments"][1:])
    return parts[1] in ELEMENTWISE or (parts[1] in WITH_NUMBERS and numbers)


def function_of(node: Node) -> Callable[..., Any]:
    """The operation of a node, if it is one that may be run."""
    if node.op == GETITEM:
        return _picked
    package, _, rest = node.op.partition(".")
    name, _, overload = rest.partition(".")
    if package != "aten" or name not in ELEMENTWISE | OTHERS:
        raise ModelError(f"The network has an operation `{node.op}`, which is not one that may be run.")
    found = getattr(getattr(torch.ops.aten, name, None), overload, None)
    if not callable(found) or getattr(found, "_schema", None) is None or found._schema.is_mutable:
        raise ModelError(unknown("operation of PyTorch", node.op, [f"aten.{known}" for known in sorted(ELEMENTWISE)]))
    function: Callable[..., Any] = found
    return function


def call(node: Node, inputs: Sequence[Any], tensors: dict[str, Tensor], batch: int) -> Any:
    """Run a node with what was said of its arguments."""

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

    try:
        arguments = [meant(value) for value in node.options["arguments"]]
        keywords = {str(name): meant(value) for name, value in node.options["keywords"].items()}
        return function_of(node)(*arguments, **keywords)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        said = f"The operation `{node.op}` cannot be run as it was written down: {first_line(error)}"
        raise ModelError(said) from None


def _picked(values: Sequence[Any], place: int) -> Any:
    return values[place]

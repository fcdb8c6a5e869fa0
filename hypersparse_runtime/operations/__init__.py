"""Every operation of a graph, a class each. A new one is a class in this folder and its name in `OPERATIONS`."""

from collections.abc import Mapping
from types import MappingProxyType

from hypersparse_runtime.operations.activations import Clip, LogSoftmax, Relu, Softmax
from hypersparse_runtime.operations.base import Opaque, Operation
from hypersparse_runtime.operations.elementwise import Arithmetic, Elementwise
from hypersparse_runtime.operations.layers import BatchNorm, Conv, Linear, TokenLinear
from hypersparse_runtime.operations.merging import Add, Concat, Flatten, Plane
from hypersparse_runtime.operations.pooling import AvgPool, MaxPool, Mean
from hypersparse_runtime.operations.recurrent import Gru, Lstm
from hypersparse_runtime.operations.resampling import AdaptivePool, ConvTranspose, Resize
from hypersparse_runtime.operations.shaping import Constant, Embedding, Expand, Permute, Reshape, Slice
from hypersparse_runtime.operations.tokens import GroupNorm, LayerNorm, MatMul, Reduce, SoftmaxLast

_ALL = (
    *(Conv, Linear, BatchNorm, Relu, Clip, Add, Concat, Plane, MaxPool, AvgPool, Mean, Flatten, Softmax, LogSoftmax),
    *(TokenLinear, Elementwise, Arithmetic, Reshape, Permute, Slice, Expand, Constant, Embedding),
    *(LayerNorm, GroupNorm, Reduce, SoftmaxLast, MatMul, ConvTranspose, Resize, AdaptivePool, Lstm, Gru),
)
OPERATIONS: Mapping[str, Operation] = MappingProxyType({each.name: each() for each in _ALL})
_OPAQUE = Opaque()


def operation(op: str) -> Operation:
    """The operation of this name; any other is opaque."""
    return OPERATIONS.get(op, _OPAQUE)

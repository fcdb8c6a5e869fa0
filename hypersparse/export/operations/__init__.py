"""Every operation of a graph in PyTorch and C, a class each. A new one is a class in this folder and its name here."""

from collections.abc import Mapping
from types import MappingProxyType

from hypersparse.export.operations.activations import Clip, LogSoftmax, Relu, Softmax
from hypersparse.export.operations.base import TorchOperation
from hypersparse.export.operations.elementwise import Arithmetic, Elementwise
from hypersparse.export.operations.layers import BatchNorm, Conv, Linear
from hypersparse.export.operations.merging import Add, Concat, Flatten, Plane
from hypersparse.export.operations.pooling import AvgPool, MaxPool, Mean
from hypersparse.export.operations.recurrent import Gru, Lstm
from hypersparse.export.operations.resampling import AdaptivePool, ConvTranspose, Resize
from hypersparse.export.operations.shaping import Constant, Embedding, Expand, Permute, Reshape, Slice
from hypersparse.export.operations.tokens import GroupNorm, LayerNorm, MatMul, Reduce, SoftmaxLast, TokenLinear

_ALL = (
    *(Conv, Linear, BatchNorm, Relu, Clip, Add, Concat, Plane, MaxPool, AvgPool, Mean, Flatten, Softmax, LogSoftmax),
    *(TokenLinear, Elementwise, Arithmetic, Reshape, Permute, Slice, Expand, Constant, Embedding),
    *(LayerNorm, GroupNorm, Reduce, SoftmaxLast, MatMul, ConvTranspose, Resize, AdaptivePool, Lstm, Gru),
)
TORCH_OPERATIONS: Mapping[str, TorchOperation] = MappingProxyType({each.name: each() for each in _ALL})


def operations_for(call: str) -> list[TorchOperation]:
    """The operations that a call of PyTorch may become."""
    return [each for each in TORCH_OPERATIONS.values() if call.removeprefix("aten.") in each.calls]

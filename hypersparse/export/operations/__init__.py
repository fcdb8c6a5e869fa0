"""Every operation of a graph in PyTorch and C, a class each. A new one is a class in a file of this folder."""

from collections.abc import Mapping

from hypersparse.export.operations import (
    activations,
    elementwise,
    layers,
    merging,
    pooling,
    recurrent,
    resampling,
    shaping,
    tokens,
)
from hypersparse.export.operations.base import TorchOperation
from hypersparse_runtime.registry import classes_by_name

_MODULES = (layers, activations, merging, pooling, elementwise, shaping, tokens, resampling, recurrent)
TORCH_OPERATIONS: Mapping[str, TorchOperation] = {
    name: each() for name, each in classes_by_name(TorchOperation, _MODULES).items()
}

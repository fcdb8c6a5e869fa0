"""Every operation of a graph, a class each. A new one is a class in a file of this folder."""

from collections.abc import Mapping

from hypersparse_runtime.operations import (
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
from hypersparse_runtime.operations.base import Opaque, Operation
from hypersparse_runtime.registry import classes_by_name

_MODULES = (layers, activations, merging, pooling, elementwise, shaping, tokens, resampling, recurrent)
OPERATIONS: Mapping[str, Operation] = {name: each() for name, each in classes_by_name(Operation, _MODULES).items()}
_OPAQUE = Opaque()


def operation(op: str) -> Operation:
    """The operation of this name; any other is opaque."""
    return OPERATIONS.get(op, _OPAQUE)

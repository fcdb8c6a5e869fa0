"""Functions of each element and operators of two values: a row for each, which everything else reads.

A new function is a row of `FUNCTIONS`, a row of `FUNCTIONS` in kernel/kernel.h in the same place, and a C function
`of_NAME` in `hypersparse/export/kernels_fp32.c`. One that PyTorch calls by another name, or with arguments, has a row
in `hypersparse.export.operations.elementwise` too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from types import MappingProxyType
from typing import Any

import numpy as np

from hypersparse_runtime.sparse_layers import Array

OnnxStep = tuple[str | int | float, ...]  # its kind, then its inputs: `x`, the numbers of earlier nodes, or constants


@dataclass(frozen=True)
class Function:
    """A function of each element, given the value and the parameter."""

    compute: Callable[[Array, float], Any]  # the reference, in numpy
    onnx: str | tuple[OnnxStep, ...]  # its node of ONNX, or several
    keeps_zero: bool = True  # whether it is zero at zero
    parameter: bool = False  # whether it has one, which is `alpha` in ONNX
    attributes: Mapping[str, float] = field(default_factory=dict)  # of its node of ONNX

    @property
    def onnx_steps(self) -> tuple[OnnxStep, ...]:
        """Its nodes of ONNX."""
        return ((self.onnx, "x"),) if isinstance(self.onnx, str) else self.onnx


def erf(x: Array) -> Array:
    """The error function, with an absolute error of at most 1.5e-7 (Abramowitz and Stegun, 7.1.26).

    >>> erf(np.array([-1.0, 0.0, 0.5])).round(6).tolist()
    [-0.842701, 0.0, 0.5205]
    """
    t = 1 / (1 + 0.3275911 * np.abs(x))
    powers = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    found: Array = np.sign(x) * (1 - powers * np.exp(-(x * x)))
    return found


def sigmoid(x: Array) -> Array:
    """The logistic function, without overflow."""
    found: Array = 0.5 + 0.5 * np.tanh(0.5 * x)
    return found


def _softplus(x: Array) -> Array:
    found: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return found


def _elu(x: Array, scale: float) -> Array:
    found: Array = np.where(x > 0, x, scale * np.expm1(np.minimum(x, 0)))
    return found


def _celu(x: Array, scale: float) -> Array:
    found: Array = np.where(x > 0, x, scale * np.expm1(np.minimum(x, 0) / scale))
    return found


def _gelu_tanh(x: Array, _: float) -> Array:
    found: Array = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    return found


_GELU = (("Div", "x", sqrt(2)), ("Erf", 0), ("Add", 1, 1.0), ("Mul", "x", 2), ("Mul", 3, 0.5))
_GELU_TANH = (
    *(("Mul", "x", "x"), ("Mul", 0, "x"), ("Mul", 1, 0.044715), ("Add", "x", 2), ("Mul", 3, 0.7978845608028654)),
    *(("Tanh", 4), ("Add", 5, 1.0), ("Mul", "x", 6), ("Mul", 7, 0.5)),
)
_SIXTH = {"alpha": 1 / 6, "beta": 0.5}
FUNCTIONS: Mapping[str, Function] = MappingProxyType(  # in the order of kernel.h
    {
        "sigmoid": Function(lambda x, _: sigmoid(x), "Sigmoid", keeps_zero=False),
        "tanh": Function(lambda x, _: np.tanh(x), "Tanh"),
        "silu": Function(lambda x, _: x * sigmoid(x), (("Sigmoid", "x"), ("Mul", "x", 0))),
        "gelu": Function(lambda x, _: 0.5 * x * (1 + erf(x / sqrt(2))), _GELU),
        "gelu_tanh": Function(_gelu_tanh, _GELU_TANH),
        "hardswish": Function(lambda x, _: x * np.clip(x + 3, 0, 6) / 6, "HardSwish"),
        "hardsigmoid": Function(
            lambda x, _: np.clip(x + 3, 0, 6) / 6, "HardSigmoid", keeps_zero=False, attributes=_SIXTH
        ),
        "leaky_relu": Function(lambda x, slope: np.where(x > 0, x, x * slope), "LeakyRelu", parameter=True),
        "elu": Function(_elu, "Elu", parameter=True),
        "softplus": Function(lambda x, _: _softplus(x), "Softplus", keeps_zero=False),
        "mish": Function(lambda x, _: x * np.tanh(_softplus(x)), (("Softplus", "x"), ("Tanh", 0), ("Mul", "x", 1))),
        "exp": Function(lambda x, _: np.exp(x), "Exp", keeps_zero=False),
        "erf": Function(lambda x, _: erf(x), "Erf"),
        "sqrt": Function(lambda x, _: np.sqrt(x), "Sqrt"),
        "rsqrt": Function(lambda x, _: 1 / np.sqrt(x), (("Sqrt", "x"), ("Reciprocal", 0)), keeps_zero=False),
        "log": Function(lambda x, _: np.log(x), "Log", keeps_zero=False),
        "abs": Function(lambda x, _: np.abs(x), "Abs"),
        "neg": Function(lambda x, _: -x, "Neg"),
        "selu": Function(lambda x, _: 1.0507009873554805 * _elu(x, 1.6732632423543772), "Selu"),
        "celu": Function(_celu, "Celu", parameter=True),
        "log_sigmoid": Function(
            lambda x, _: -_softplus(-x), (("Neg", "x"), ("Softplus", 0), ("Neg", 1)), keeps_zero=False
        ),
    }
)


@dataclass(frozen=True)
class Operator:
    """An operator of two values."""

    compute: Callable[[Array, Array], Any]
    onnx: str  # its name there
    swapped: str = ""  # its name in the kernel where the second operand is the first; empty: the same


OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "add": Operator(np.add, "Add"),
        "sub": Operator(np.subtract, "Sub", swapped="rsub"),
        "mul": Operator(np.multiply, "Mul"),
        "div": Operator(np.divide, "Div", swapped="rdiv"),
        "maximum": Operator(np.maximum, "Max"),
        "minimum": Operator(np.minimum, "Min"),
    }
)
KERNEL_OPERATORS = (*OPERATORS, *(each.swapped for each in OPERATORS.values() if each.swapped))  # as in kernel.h


@dataclass(frozen=True)
class Reduction:
    """A function of the last axis."""

    compute: Callable[..., Any]  # in numpy
    onnx: str


REDUCTIONS: Mapping[str, Reduction] = MappingProxyType(  # in the order of tokens.h
    {
        "mean": Reduction(np.mean, "ReduceMean"),
        "sum": Reduction(np.sum, "ReduceSum"),
        "max": Reduction(np.max, "ReduceMax"),
        "min": Reduction(np.min, "ReduceMin"),
    }
)

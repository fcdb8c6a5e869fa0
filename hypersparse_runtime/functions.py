"""Functions of each element and operators of two values: a row for each, which everything else reads.

A new function is a row of `FUNCTIONS` and, in the same place, a row of `FUNCTIONS` in kernel/kernel.h. One that PyTorch
calls by another name, or with arguments, has a row in `hypersparse.export.operations.elementwise` too.
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
    """A function of each element, given the value and the parameter. In C source, `of_NAME` calls another one."""

    compute: Callable[[Array, float], Any]  # the reference, in numpy
    onnx: str | tuple[OnnxStep, ...]  # its node of ONNX, or several
    c: str  # of one element `x`, in C source
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
        "sigmoid": Function(lambda x, _: sigmoid(x), "Sigmoid", "1.0f / (1.0f + expf(-x))", keeps_zero=False),
        "tanh": Function(lambda x, _: np.tanh(x), "Tanh", "tanhf(x)"),
        "silu": Function(lambda x, _: x * sigmoid(x), (("Sigmoid", "x"), ("Mul", "x", 0)), "x / (1.0f + expf(-x))"),
        "gelu": Function(
            lambda x, _: 0.5 * x * (1 + erf(x / sqrt(2))), _GELU, "0.5f * x * (1.0f + erff(x * 0.70710678f))"
        ),
        "gelu_tanh": Function(
            _gelu_tanh, _GELU_TANH, "0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))"
        ),
        "hardswish": Function(lambda x, _: x * np.clip(x + 3, 0, 6) / 6, "HardSwish", "x * of_hardsigmoid(x)"),
        "hardsigmoid": Function(
            lambda x, _: np.clip(x + 3, 0, 6) / 6,
            "HardSigmoid",
            "x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : (x + 3.0f) / 6.0f",
            keeps_zero=False,
            attributes=_SIXTH,
        ),
        "leaky_relu": Function(
            lambda x, slope: np.where(x > 0, x, x * slope), "LeakyRelu", "x > 0.0f ? x : x * parameter", parameter=True
        ),
        "elu": Function(_elu, "Elu", "x > 0.0f ? x : parameter * expm1f(x)", parameter=True),
        "softplus": Function(
            lambda x, _: _softplus(x), "Softplus", "(x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)))", keeps_zero=False
        ),
        "mish": Function(
            lambda x, _: x * np.tanh(_softplus(x)),
            (("Softplus", "x"), ("Tanh", 0), ("Mul", "x", 1)),
            "x * tanhf(of_softplus(x))",
        ),
        "exp": Function(lambda x, _: np.exp(x), "Exp", "expf(x)", keeps_zero=False),
        "erf": Function(lambda x, _: erf(x), "Erf", "erff(x)"),
        "sqrt": Function(lambda x, _: np.sqrt(x), "Sqrt", "sqrtf(x)"),
        "rsqrt": Function(
            lambda x, _: 1 / np.sqrt(x), (("Sqrt", "x"), ("Reciprocal", 0)), "1.0f / sqrtf(x)", keeps_zero=False
        ),
        "log": Function(lambda x, _: np.log(x), "Log", "logf(x)", keeps_zero=False),
        "abs": Function(lambda x, _: np.abs(x), "Abs", "fabsf(x)"),
        "neg": Function(lambda x, _: -x, "Neg", "-x"),
        "selu": Function(
            lambda x, _: 1.0507009873554805 * _elu(x, 1.6732632423543772),
            "Selu",
            "x > 0.0f ? 1.05070099f * x : 1.75809934f * expm1f(x)",
        ),
        "celu": Function(_celu, "Celu", "x > 0.0f ? x : parameter * expm1f(x / parameter)", parameter=True),
        "log_sigmoid": Function(
            lambda x, _: -_softplus(-x),
            (("Neg", "x"), ("Softplus", 0), ("Neg", 1)),
            "-of_softplus(-x)",
            keeps_zero=False,
        ),
    }
)


@dataclass(frozen=True)
class Operator:
    """An operator of two values."""

    compute: Callable[[Array, Array], Any]
    onnx: str  # its name there
    c: str  # of elements `x` and `z`, in C source
    swapped: str = ""  # its name in the kernel where the second operand is the first; empty: the same


OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "add": Operator(np.add, "Add", "x + z"),
        "sub": Operator(np.subtract, "Sub", "x - z", swapped="rsub"),
        "mul": Operator(np.multiply, "Mul", "x * z"),
        "div": Operator(np.divide, "Div", "x / z", swapped="rdiv"),
        "maximum": Operator(np.maximum, "Max", "x > z ? x : z"),
        "minimum": Operator(np.minimum, "Min", "x < z ? x : z"),
    }
)
KERNEL_OPERATORS = (*OPERATORS, *(each.swapped for each in OPERATORS.values() if each.swapped))  # as in kernel.h


@dataclass(frozen=True)
class Reduction:
    """A function of the last axis."""

    compute: Callable[..., Any]  # in numpy
    onnx: str
    c: str  # its function in C source
    torch: str  # its name in PyTorch


REDUCTIONS: Mapping[str, Reduction] = MappingProxyType(  # in the order of tokens.h
    {
        "mean": Reduction(np.mean, "ReduceMean", "mean", "mean"),
        "sum": Reduction(np.sum, "ReduceSum", "fold_add", "sum"),
        "max": Reduction(np.max, "ReduceMax", "fold_maximum", "amax"),
        "min": Reduction(np.min, "ReduceMin", "fold_minimum", "amin"),
    }
)

"""`compile_once`: a function of networks, compiled once for all networks of the same structure."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any, TypeVar, cast

import torch
from torch import nn

from hypersparse.training.kernels.convolution import function_cached

MOST_VARIANTS = 64  # of what a function of networks of one structure is compiled for: options, sizes of batches
Function = TypeVar("Function", bound=Callable[..., Any])


def compile_once(function: Function, *networks: nn.Module | None) -> Function:
    """Compile a function for these networks, which are among its arguments; call it inside `compiling()`.

    torch keeps what it compiled with the code of a function, for so many kinds of arguments, and runs it eagerly for
    others. So each structure of networks has a copy of the function, which all networks of that structure share.
    """
    copied = _copy(cast("FunctionType", function), tuple(map(_structure, networks)))
    return cast("Function", torch.compile(copied, dynamic=False))


@contextmanager
def compiling() -> Iterator[None]:
    """Around calls that compile: cache what is compiled, and raise an error where torch would give up silently.

    It suppresses the compiler's warning about a split softmax.
    """
    from torch._dynamo import config  # takes a second, and only who compiles needs it

    limits: dict[str, Any] = {"recompile_limit": MOST_VARIANTS, "fail_on_recompile_limit_hit": True}
    with warnings.catch_warnings(), function_cached(), config.patch(limits):
        warnings.filterwarnings("ignore", message=r"\s*Online softmax is disabled")
        yield


def is_compiler_error(error: Exception) -> bool:
    """Whether an error is torch's own while it compiles."""
    return type(error).__module__.startswith("torch._")


@cache
def _copy(function: FunctionType, structures: tuple[str, ...]) -> FunctionType:
    return FunctionType(function.__code__.replace(), function.__globals__, function.__name__)


def _structure(network: nn.Module | None) -> str:
    """The modules of a network with their options, and the shapes of its parameters."""
    if network is None:
        return ""
    classes = [type(module) for module in network.modules()]
    shapes = [tuple(parameter.shape) for parameter in network.parameters()]
    return f"{network} {classes} {shapes}"

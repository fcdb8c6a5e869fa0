"""Built-in networks, and models from the user's own code.

>>> model = build("resnet8", shape=(1, 8, 8), classes=10, options={"width": 4})
>>> type(model).__name__
'ResNet'
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn

from hypersparse import own_code as own
from hypersparse.errors import ModelError, OptionError, unknown
from hypersparse.models import mlp, resnet, vgg, wide_resnet

__all__ = ["build", "factory_of", "names"]

Factory = Callable[..., Any]

FACTORIES: Mapping[str, Factory] = MappingProxyType(
    {
        "mlp": mlp.mlp,
        **{f"resnet{depth}": partial(resnet.resnet, depth) for depth in (8, 20, 32, 44, 56, 110)},
        **{f"vgg{depth}": partial(vgg.vgg, depth) for depth in vgg.CONVS_PER_STAGE},
        "wide_resnet": wide_resnet.wide_resnet,
    }
)
FROM_DATA = ("shape", "classes")  # arguments set from the data set, not by the user


def names() -> list[str]:
    """The names of the built-in models."""
    return list(FACTORIES)


def build(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    own_code: Collection[str] = (),
) -> nn.Module:
    """Build a model with random weights from torch's global generator; seed the generator first.

    `name` is one of `names()`, or `package.file:factory`, which may be a file in the current folder. The latter is
    imported only if `own_code` contains it.

    The factory receives `options`, and the arguments `shape` (of one input) and `classes` if it has them.
    """
    factory = factory_of(name, own_code=own_code)
    try:
        signature = inspect.signature(factory)
    except ValueError:
        raise ModelError(f"The model `{name}` must be a class or function written in Python.") from None
    given = {"shape": shape, "classes": classes}
    arguments = {key: value for key, value in given.items() if key in signature.parameters}
    _check_options(name, signature, options)
    model = factory(**arguments, **options)
    if not isinstance(model, nn.Module):
        raise ModelError(f"The model `{name}` must return a torch.nn.Module; got {type(model).__name__}.")
    return model


def factory_of(name: str, *, own_code: Collection[str] = ()) -> Factory:
    """The factory of a model; user code is imported only if `own_code` contains its name."""
    if own.is_own(name):
        return own.load(name, kind="model", own_code=own_code)
    if name not in FACTORIES:
        raise OptionError(unknown("model", name, FACTORIES) + " Your own is named `package.file:factory`.")
    return FACTORIES[name]


def _check_options(name: str, signature: inspect.Signature, options: Mapping[str, Any]) -> None:
    known, needed = set(), set()
    for key, parameter in signature.parameters.items():
        if key in FROM_DATA or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            known.update(options.keys() - signature.parameters.keys())
            continue
        known.add(key)
        if parameter.default is parameter.empty:
            needed.add(key)
    if unknown_names := options.keys() - known:
        raise OptionError(unknown(f"option of {name}", min(unknown_names), known))
    if missing := needed - options.keys():
        raise OptionError(f"The model `{name}` needs the option `{min(missing)}`.")

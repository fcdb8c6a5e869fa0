"""The networks that come with hypersparse, and the way to name your own.

>>> model = build("resnet8", shape=(1, 8, 8), classes=10, options={"width": 4})
>>> type(model).__name__
'ResNet'
"""

import inspect
from collections.abc import Callable, Collection, Mapping
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
        factory.__name__: factory
        for factory in (
            mlp.mlp,
            resnet.resnet8,
            resnet.resnet20,
            resnet.resnet32,
            resnet.resnet44,
            resnet.resnet56,
            resnet.resnet110,
            vgg.vgg11,
            vgg.vgg13,
            vgg.vgg16,
            vgg.vgg19,
            wide_resnet.wide_resnet,
        )
    }
)
FROM_DATA = ("shape", "classes")  # arguments that follow from the data set, not from the user


def names() -> list[str]:
    """The models that can be built by a plain name."""
    return list(FACTORIES)


def build(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    own_code: Collection[str] = (),
) -> nn.Module:
    """Make the model called `name` with random weights from torch's global generator: seed it first.

    `name` is one of `names()` or `package.file:factory`, where the file may lie in the current folder; of these only
    the names in `own_code` are imported.

    The factory gets `options`, and `shape` (of one input) and `classes` if it has arguments of these names.
    """
    factory = factory_of(name, own_code=own_code)
    try:
        signature = inspect.signature(factory)
    except ValueError:
        raise ModelError(f"The model `{name}` should be a class or function written in Python.") from None
    given = {"shape": shape, "classes": classes}
    arguments = {key: value for key, value in given.items() if key in signature.parameters}
    _check_options(name, signature, options)
    model = factory(**arguments, **options)
    if not isinstance(model, nn.Module):
        raise ModelError(f"The model `{name}` should give a torch.nn.Module; got {type(model).__name__}.")
    return model


def factory_of(name: str, *, own_code: Collection[str] = ()) -> Factory:
    """What makes the model called `name`; only names in `own_code` are imported."""
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

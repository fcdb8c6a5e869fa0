"""`narrowed`: the options that make a model narrower, until it has about so many parameters."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch

from hypersparse.errors import OptionError
from hypersparse.models import build, factory_of

WIDTHS = ("width", "hidden", "factor")  # what models call their width: a number, or a list of them


def parameters_of(
    name: str, *, shape: tuple[int, ...], classes: int, options: Mapping[str, Any], own_code: Collection[str] = ()
) -> int:
    """How many parameters a model has; torch's random numbers stay where they are."""
    with torch.random.fork_rng(devices=[]):
        model = build(name, shape=shape, classes=classes, options=options, own_code=own_code)
    return sum(parameter.numel() for parameter in model.parameters())


def narrowed(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    options: Mapping[str, Any],
    parameters: int,
    own_code: Collection[str] = (),
) -> dict[str, Any]:
    """The options of the model with a smaller width, whose count of parameters is nearest to `parameters`.

    >>> narrowed("resnet8", shape=(1, 8, 8), classes=10, options={"width": 32}, parameters=5000)
    {'width': 4}
    """
    option, width = _width_of(name, options, own_code)

    def with_width(number: int) -> dict[str, Any]:
        return {**options, option: _scaled(width, number)}

    def count(number: int) -> int:
        return parameters_of(name, shape=shape, classes=classes, options=with_width(number), own_code=own_code)

    least, most = 1, width[0] if isinstance(width, list) else width
    while least < most:  # the least width with at least so many parameters
        middle = (least + most) // 2
        if count(middle) < parameters:
            least = middle + 1
        else:
            most = middle
    near = [number for number in (least - 1, least) if number >= 1]
    return with_width(min(near, key=lambda number: abs(count(number) - parameters)))


def _width_of(name: str, options: Mapping[str, Any], own_code: Collection[str]) -> tuple[str, Any]:
    arguments = inspect.signature(factory_of(name, own_code=own_code)).parameters
    for option in WIDTHS:
        if option in arguments:
            width = options.get(option, arguments[option].default)
            return option, list(width) if isinstance(width, list | tuple) else int(width)
    raise OptionError(f"The model `{name}` cannot be made narrower: it has none of the options {', '.join(WIDTHS)}.")


def _scaled(width: Any, number: int) -> Any:
    if isinstance(width, list):
        return [max(1, round(layer * number / width[0])) for layer in width]
    return number

"""`narrowed`: the width at which a model has a given number of parameters."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch

from hypersparse.errors import OptionError
from hypersparse.models import build, factory_of

WIDTHS = ("width", "hidden", "factor")  # the names of width options; a value is an integer or a list of integers


def count_parameters(
    name: str, *, shape: tuple[int, ...], classes: int, options: Mapping[str, Any], own_code: Collection[str] = ()
) -> int:
    """The number of parameters of a model; the state of torch's generator does not change."""
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
    """The options of the model, with the width at which its number of parameters is nearest to `parameters`.

    >>> narrowed("resnet8", shape=(1, 8, 8), classes=10, options={"width": 32}, parameters=5000)
    {'width': 4}
    """
    option, width = _width_of(name, options, own_code)

    def with_width(number: int) -> dict[str, Any]:
        return {**options, option: _scaled(width, number)}

    def count(number: int) -> int:
        return count_parameters(name, shape=shape, classes=classes, options=with_width(number), own_code=own_code)

    least, most = 1, width[0] if isinstance(width, list) else width
    while least < most:  # bisect for the smallest width with at least `parameters`
        middle = (least + most) // 2
        if count(middle) < parameters:
            least = middle + 1
        else:
            most = middle
    candidates = [number for number in (least - 1, least) if number >= 1]
    return with_width(min(candidates, key=lambda number: abs(count(number) - parameters)))


def _width_of(name: str, options: Mapping[str, Any], own_code: Collection[str]) -> tuple[str, Any]:
    arguments = inspect.signature(factory_of(name, own_code=own_code)).parameters
    for option in WIDTHS:
        if option in arguments:
            width = options.get(option, arguments[option].default)
            return option, list(width) if isinstance(width, list | tuple) else int(width)
    raise OptionError(f"The model `{name}` cannot be made narrower: it needs one of the options {', '.join(WIDTHS)}.")


def _scaled(width: Any, number: int) -> Any:
    if isinstance(width, list):
        return [max(1, round(layer * number / width[0])) for layer in width]
    return number

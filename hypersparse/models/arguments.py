"""Checks of the arguments of models."""

from typing import Any

from hypersparse.errors import ModelError, OptionError


def image_shape(model: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The channels, height and width of the images of a convolutional network.

    >>> image_shape("resnet32", (3, 32, 32))
    (3, 32, 32)
    """
    if len(shape) != 3:
        raise ModelError(
            f"`{model}` expects images of shape (channels, height, width); got {tuple(shape)}. "
            "For other inputs use `mlp`."
        )
    channels, height, width = shape
    return channels, height, width


def positive(name: str, value: Any) -> int:
    """Check an option that is a positive integer, such as a number of channels."""
    if not isinstance(value, int) or value < 1:
        raise OptionError(f"`{name}` must be a whole number of at least 1; got {value!r}.")
    return value


def blocks_per_stage(model: str, depth: Any, *, extra: int) -> int:
    """The number of blocks in each of three stages, for a depth of `6 * blocks + extra` layers.

    >>> blocks_per_stage("resnet", 32, extra=2)
    5
    """
    blocks, rest = divmod(positive("depth", depth) - extra, 6)
    if blocks < 1 or rest:
        nearest = 6 * max(blocks + rest // 3, 1) + extra
        raise OptionError(f"`depth` of `{model}` must be 6 n + {extra}; got {depth}. The nearest is {nearest}.")
    return blocks

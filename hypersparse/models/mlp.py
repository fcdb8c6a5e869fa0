"""Multi-layer perceptron; LeNet-300-100 by default.

Reference: LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 1998.
"""

from collections.abc import Sequence
from math import prod

from torch import nn

from hypersparse.errors import OptionError
from hypersparse.models.arguments import positive


def mlp(hidden: Sequence[int] = (300, 100), *, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Linear layers with ReLU between them, on the flattened input; `hidden` holds the widths of the hidden layers.

    Weights are initialized Xavier-normal and biases to 0, as in the lottery ticket paper.

    >>> [name for name, _ in mlp(hidden=(8,), shape=(1, 4, 4), classes=10).named_parameters()]
    ['fc1.weight', 'fc1.bias', 'linear.weight', 'linear.bias']
    """
    if not isinstance(hidden, list | tuple):
        raise OptionError(f"`hidden` must list the widths of the hidden layers, such as [300, 100]; got {hidden!r}.")
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    features = prod(shape)
    for number, width in enumerate(hidden, start=1):
        model.add_module(f"fc{number}", nn.Linear(features, positive("hidden", width)))
        model.add_module(f"relu{number}", nn.ReLU())
        features = width
    model.add_module("linear", nn.Linear(features, classes))
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model

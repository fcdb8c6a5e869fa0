"""How much each weight matters: larger = keep."""

from collections.abc import Mapping

from torch import Tensor


def magnitude(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """|w|: large weights matter."""
    return {name: weight.detach().abs() for name, weight in weights.items()}

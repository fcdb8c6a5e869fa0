from typing import Any

import pytest
import torch
from torch import nn

from hypersparse.errors import OptionError
from hypersparse.models.narrow import count_parameters, narrowed


@pytest.mark.parametrize(
    ("name", "options", "width"),
    [("resnet8", {}, "width"), ("mlp", {}, "hidden"), ("wide_resnet", {"factor": 4}, "factor"), ("vgg11", {}, "width")],
)
@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.5])
def test_the_width_is_the_nearest(name: str, options: dict[str, Any], width: str, fraction: float) -> None:
    shape = (3, 16, 16)
    wanted = int(fraction * count_parameters(name, shape=shape, classes=10, options=options))
    found = narrowed(name, shape=shape, classes=10, options=options, parameters=wanted)

    def miss(value: Any) -> int:
        changed = {**options, width: value}
        return abs(count_parameters(name, shape=shape, classes=10, options=changed) - wanted)

    value = found[width]
    around = [value - 1, value + 1] if isinstance(value, int) else [[value[0] + by, value[1]] for by in (-2, 2)]
    assert all(miss(value) <= miss(other) for other in around if (other if isinstance(other, int) else other[0]) > 0)


def test_lists_keep_their_proportions() -> None:
    found = narrowed("mlp", shape=(1, 8, 8), classes=10, options={"hidden": [40, 20]}, parameters=1000)
    assert found["hidden"][0] == pytest.approx(2 * found["hidden"][1], abs=1)


def without_width(classes: int) -> nn.Module:
    return nn.Linear(4, classes)


def test_a_model_without_a_width_is_refused() -> None:
    name = "tests.models.test_narrow:without_width"
    with pytest.raises(OptionError, match="cannot be made narrower"):
        narrowed(name, shape=(4,), classes=2, options={}, parameters=5, own_code=[name])


def test_no_random_number_is_drawn() -> None:
    before = torch.get_rng_state()
    narrowed("resnet8", shape=(1, 8, 8), classes=4, options={}, parameters=3000)
    assert torch.equal(torch.get_rng_state(), before)

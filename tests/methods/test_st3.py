"""ST-3: a step and a threshold by hand."""

from typing import Any

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import ST3, Sparsifier
from hypersparse.methods.st3 import RawWeights
from tests.techniques.one_layer import one_layer, step, values


def raw(sparsifier: Sparsifier) -> list[float]:
    found = sparsifier.state.memory.get(RawWeights)
    assert found is not None
    numbers: list[float] = found.values[0][0].tolist()
    return numbers


def test_two_steps_by_hand() -> None:
    # Four weights, half of them stay. The ramp is over after one of three epochs; without an interval it is unknown
    # how many steps that is, so that the second step is at the ramp's end.
    sparsifier = one_layer([4.0, -3.0, 2.0, -1.0], method=ST3(sparsity=0.5, ramp=0.34, update_every=2))
    assert step(sparsifier, [10.0, 0.0, 0.0, 0.0]) == pytest.approx([3.0, -3.0, 2.0, -1.0])  # no threshold yet
    found = step(sparsifier, [0.0, 10.0, 0.0, 0.0])
    # The raw weights are (3, -4, 2, -1); the two largest stay, and lose the third's magnitude.
    assert raw(sparsifier) == pytest.approx([3.0, -4.0, 2.0, -1.0])
    assert found == pytest.approx([1.0, -2.0, 0.0, 0.0])
    # Straight through: gradients of the shrunk weights move the raw ones, also those that are not used.
    assert step(sparsifier, [0.0, 10.0, -30.0, 0.0]) == pytest.approx([1.0, -3.0, 0.0, 0.0])
    assert raw(sparsifier) == pytest.approx([3.0, -5.0, 5.0, -1.0])
    assert step(sparsifier, [0.0] * 4) == pytest.approx([0.0, -2.0, 2.0, 0.0])  # the third has come back
    sparsifier.finish_epoch()
    assert sparsifier.mask is not None
    assert sparsifier.mask["weight"].tolist() == [[False, True, True, False]]
    assert sparsifier.state.memory.tensors() == []
    sparsifier.begin_epoch()
    assert sparsifier.phase.name == "settle"
    assert step(sparsifier, [1.0] * 4) == pytest.approx([0.0, -2.1, 1.9, 0.0])


def test_the_ramp_is_cubic() -> None:
    sparsifier = one_layer([float(value) for value in range(1, 9)], method=ST3(sparsity=0.5, update_every=1))
    sparsifier.state.steps_per_epoch = 2  # of which two epochs ramp
    kept = []
    for _ in range(4):
        step(sparsifier, [0.0] * 8)
        assert sparsifier.mask is not None
        kept.append(sparsifier.mask.kept)
    assert kept == [4 + round(4 * left**3) for left in (0.75, 0.5, 0.25, 0.0)] == [6, 4, 4, 4]


def test_layers_are_compared_by_their_width() -> None:
    assert ST3(scale_by_width=True).scale(torch.zeros(2, 3, 3, 3)) == pytest.approx(27**0.5)
    assert ST3().scale(torch.zeros(2, 3, 3, 3)) == 1.0
    assert values(one_layer([1.0], method=ST3())) == [1.0]


@pytest.mark.parametrize(
    ("options", "used"),
    [  # of half the weights; scores of the first layer are twice its weights where layers are compared by their width
        ({}, [[0.6, 0.0, 0.0, 0.0], [0.5, 0.1]]),  # 1, 0.9 and 0.5 stay, and lose 0.4
        ({"scale_by_width": True}, [[0.7, 0.0, 0.0, 0.1], [0.3, 0.0]]),  # 2, 0.9 and 0.8 stay, and lose 0.6
        ({"distribution": "uniform"}, [[0.7, 0.0, 0.0, 0.1], [0.4, 0.0]]),  # each layer loses its own third and second
    ],
)
def test_thresholds_of_two_layers_by_hand(options: dict[str, Any], used: list[list[float]]) -> None:
    model = nn.Sequential(nn.Linear(4, 1, bias=False), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.2, 0.3, 0.4]]))
        model[1].weight.copy_(torch.tensor([[0.9], [0.5]]))
    method = ST3(sparsity=0.5, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=3)
    sparsifier.begin_epoch()
    method.use_largest(sparsifier.state, 3)
    for layer, expected in zip(model, used, strict=True):
        found = layer.weight.flatten().tolist()
        assert found == pytest.approx(expected)
        assert [value == 0.0 for value in found] == [value == 0.0 for value in expected]

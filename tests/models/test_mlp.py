"""The perceptron: LeNet-300-100 and its errors."""

from typing import Any

import pytest
import torch

from hypersparse.errors import OptionError
from hypersparse.models.mlp import mlp


def test_lenet_300_100_has_266_200_weights() -> None:
    model = mlp(shape=(1, 28, 28), classes=10)
    weights = [parameter.numel() for name, parameter in model.named_parameters() if name.endswith("weight")]
    assert weights == [235_200, 30_000, 1_000]


@pytest.mark.parametrize("shape", [(64,), (1, 8, 8), (3, 4, 5, 6)])
def test_any_input_is_flattened(shape: tuple[int, ...]) -> None:
    model = mlp([5], shape=shape, classes=3)
    assert model(torch.rand(2, *shape)).shape == (2, 3)


def test_no_hidden_layer_is_a_linear_classifier() -> None:
    assert [name for name, _ in mlp((), shape=(8,), classes=3).named_parameters()] == [
        "linear.weight",
        "linear.bias",
    ]


def test_first_weights_are_xavier_normal_and_biases_zero() -> None:
    model = mlp(shape=(1, 28, 28), classes=10)
    weight = model.get_submodule("fc1").get_parameter("weight")
    torch.testing.assert_close(weight.std(), torch.tensor((2 / (784 + 300)) ** 0.5), rtol=0.02, atol=0)
    assert not any(bias.any() for name, bias in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("hidden", [300, "300", [0], [2.5]])
def test_impossible_hidden_layers_are_refused(hidden: Any) -> None:
    with pytest.raises(OptionError, match="`hidden` must"):
        mlp(hidden, shape=(8,), classes=3)

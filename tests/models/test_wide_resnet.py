"""Wide residual networks: counts by hand, forward passes and errors."""

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from hypersparse.errors import ModelError, OptionError
from hypersparse.models.wide_resnet import wide_resnet
from tests.models.plain import layers_of, shaken


def weights_by_hand(depth: int, factor: int, classes: int) -> int:
    """Convolutions and linear layer of a wide residual network for colour images."""
    total, before = 27 * 16, 16
    for stage in range(3):
        width = 16 * factor * 2**stage
        blocks = (depth - 4) // 6
        total += 9 * before * width + before * width + (2 * blocks - 1) * 9 * width * width
        before = width
    return total + before * classes


@pytest.mark.parametrize(("depth", "factor", "classes"), [(22, 2, 10), (28, 10, 100), (10, 3, 200)])
def test_the_number_of_weights_matches_a_count_by_hand(depth: int, factor: int, classes: int) -> None:
    with torch.device("meta"):
        model = wide_resnet(depth, factor, shape=(3, 32, 32), classes=classes)
    sizes = [layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert sum(sizes) == weights_by_hand(depth, factor, classes)


def test_wrn_28_10_has_the_36_5_million_parameters_of_its_paper() -> None:
    with torch.device("meta"):
        model = wide_resnet(28, 10, shape=(3, 32, 32), classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 36_479_194


def test_the_forward_pass_matches_a_step_by_step_computation() -> None:
    model = shaken(wide_resnet(16, 1, shape=(3, 12, 12), classes=5))
    conv, norm = layers_of(model)
    images = torch.randn(2, 3, 12, 12)
    x = conv("conv1", images)
    for stage in (1, 2, 3):
        for block in (0, 1):
            path, strides = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            active = relu(norm(f"{path}.bn1", x))
            out = conv(f"{path}.conv2", relu(norm(f"{path}.bn2", conv(f"{path}.conv1", active, strides))))
            x = out + (conv(f"{path}.downsample", active, 2) if strides == 2 else x)  # 16 channels stay 16 in the first
    assert x.shape == (2, 64, 3, 3)
    torch.testing.assert_close(model(images), model.linear(relu(norm("bn", x)).mean((2, 3))))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 64, 64)])
def test_any_image_size_returns_one_score_per_class(shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        model = wide_resnet(shape=shape, classes=7)
        assert model(torch.empty(2, *shape)).shape == (2, 7)


def test_dropout_changes_training_only() -> None:
    model = wide_resnet(10, 1, shape=(1, 8, 8), classes=3, dropout=0.5)
    images = torch.rand(8, 1, 8, 8)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


def test_without_dropout_no_random_number_is_used() -> None:
    model = wide_resnet(10, 1, shape=(1, 8, 8), classes=3)
    before = torch.get_rng_state()
    model(torch.ones(2, 1, 8, 8))
    assert torch.equal(torch.get_rng_state(), before)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match=r"6 n \+ 4; got 20. The nearest is 22"):
        wide_resnet(20, shape=(3, 32, 32), classes=10)
    with pytest.raises(OptionError, match="`factor`"):
        wide_resnet(factor=0, shape=(3, 32, 32), classes=10)
    with pytest.raises(OptionError, match=r"`dropout` is a fraction .* got 50"):
        wide_resnet(dropout=50, shape=(3, 32, 32), classes=10)
    with pytest.raises(ModelError, match="channels, height, width"):
        wide_resnet(shape=(64,), classes=10)

"""VGG networks: the sizes, the order and the first weights of the paper's VGG-19."""

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from hypersparse.errors import ModelError, OptionError
from hypersparse.models.vgg import vgg
from tests.models.plain import layers_of, shaken

PAPER_SIZES = [1728, 36864, 73728, 147456, 294912, *[589824] * 3, 1179648, *[2359296] * 7]


@pytest.mark.parametrize(
    ("classes", "weights", "parameters"),
    [(10, 20_024_000, 20_040_522), (100, 20_070_080, 20_086_692), (200, 20_121_280, 20_137_992)],
)
def test_vgg19_has_the_layers_and_counts_of_the_paper(classes: int, weights: int, parameters: int) -> None:
    with torch.device("meta"):
        model = vgg(19, shape=(3, 32, 32), classes=classes)
    sizes = [layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert sizes == [*PAPER_SIZES, 512 * classes]
    assert sum(sizes) == weights
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize(("shape", "side"), [((3, 32, 32), 2), ((3, 64, 64), 4), ((1, 16, 16), 1)])
def test_four_poolings_leave_a_map_to_average(shape: tuple[int, ...], side: int) -> None:
    with torch.device("meta"):
        model = vgg(19, shape=shape, classes=7)
        images = torch.empty(2, *shape)
        features = model.layer5(model.layer4(model.layer3(model.layer2(model.layer1(images)))))
        assert features.shape == (2, 512, side, side)
        assert model(images).shape == (2, 7)


def test_the_forward_pass_matches_a_step_by_step_computation() -> None:
    model = shaken(vgg(13, 4, shape=(3, 32, 32), classes=5))
    conv, norm = layers_of(model)
    images = torch.randn(2, 3, 32, 32)
    x = images
    for stage in range(1, 6):
        for number in (1, 2):
            x = relu(norm(f"layer{stage}.bn{number}", conv(f"layer{stage}.conv{number}", x)))
        x = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5)) if stage < 5 else x  # the largest of 2 x 2
    assert x.shape == (2, 32, 2, 2)
    torch.testing.assert_close(model(images), model.linear(x.mean((2, 3))))


def test_first_weights_are_kaiming_normal_by_fan_in_and_biases_zero() -> None:
    model = vgg(11, shape=(3, 32, 32), classes=1000, width=32)
    conv = model.get_parameter("layer3.conv1.weight")
    torch.testing.assert_close(conv.std(), torch.tensor((2 / (9 * 64)) ** 0.5), rtol=0.02, atol=0)
    torch.testing.assert_close(model.linear.weight.std(), torch.tensor(0.01), rtol=0.02, atol=0)
    assert not any(bias.any() for name, bias in model.named_parameters() if name.endswith("bias"))


def test_the_average_is_over_the_whole_map() -> None:
    model = vgg(11, shape=(3, 64, 64), classes=5, width=4).eval()
    images = torch.rand(2, 3, 64, 64)
    features = model.layer5(model.layer4(model.layer3(model.layer2(model.layer1(images)))))
    pooled = nn.functional.avg_pool2d(features, 4).flatten(1)
    torch.testing.assert_close(model(images), model.linear(pooled))


@pytest.mark.parametrize(("depth", "layers"), [(11, 9), (13, 11), (16, 14), (19, 17)])
def test_depth_counts_two_omitted_linear_layers(depth: int, layers: int) -> None:
    with torch.device("meta"):
        model = vgg(depth, shape=(3, 32, 32), classes=10)
    assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in model.modules()) == layers


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ModelError, match=r"`vgg16` halves its images four times .* got 8 x 8"):
        vgg(16, shape=(1, 8, 8), classes=10)
    with pytest.raises(OptionError, match="11, 13, 16 or 19; got 12"):
        vgg(12, shape=(3, 32, 32), classes=10)
    with pytest.raises(OptionError, match="`width`"):
        vgg(16, shape=(3, 32, 32), classes=10, width=-1)

"""Residual networks: the sizes, the order and the first weights of the paper's ResNet-32."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from hypersparse.errors import ModelError, OptionError
from hypersparse.models.resnet import resnet
from tests.models.plain import layers_of, shaken

PAPER_SIZES = [864, *[9216] * 10, 18432, 36864, 2048, *[36864] * 8, 73728, 147456, 8192, *[147456] * 8]


def prunable(model: nn.Module) -> dict[str, Tensor]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    return {name: layer.weight for name, layer in layers.items()}


@pytest.mark.parametrize(
    ("classes", "weights", "parameters"),
    [(10, 1_855_584, 1_860_522), (100, 1_867_104, 1_872_132), (200, 1_879_904, 1_885_032)],
)
def test_resnet32_has_the_counts_of_the_paper(classes: int, weights: int, parameters: int) -> None:
    with torch.device("meta"):
        model = resnet(32, shape=(3, 32, 32), classes=classes)
    assert sum(weight.numel() for weight in prunable(model).values()) == weights
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_layers_have_the_order_of_the_papers_figure_3() -> None:
    with torch.device("meta"):
        layers = prunable(resnet(32, shape=(3, 32, 32), classes=100))
    assert [weight.numel() for weight in layers.values()] == [*PAPER_SIZES, 12800]
    named = list(layers)
    assert named[:2] == ["conv1", "layer1.0.conv1"]
    assert named[11:14] == ["layer2.0.conv1", "layer2.0.conv2", "layer2.0.downsample.0"]
    assert named[22:25] == ["layer3.0.conv1", "layer3.0.conv2", "layer3.0.downsample.0"]
    assert named[33] == "linear"


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 64, 64), (3, 33, 47)])
def test_any_image_size_returns_one_score_per_class(shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        model = resnet(32, shape=shape, classes=7)
        assert model(torch.empty(2, *shape)).shape == (2, 7)


def test_first_weights_are_kaiming_normal_by_fan_out_and_the_linear_layer_is_small() -> None:
    model = resnet(8, shape=(3, 32, 32), classes=1000)
    wide = model.get_parameter("layer3.0.conv2.weight")
    torch.testing.assert_close(wide.std(), torch.tensor((2 / (9 * 128)) ** 0.5), rtol=0.02, atol=0)
    strided = model.get_parameter("layer3.0.downsample.0.weight")
    torch.testing.assert_close(strided.std(), torch.tensor((2 / 128) ** 0.5), rtol=0.05, atol=0)
    torch.testing.assert_close(model.linear.weight.std(), torch.tensor(0.01), rtol=0.02, atol=0)
    assert not model.linear.bias.any()
    assert all((norm.weight == 1).all() for norm in model.modules() if isinstance(norm, nn.BatchNorm2d))


def test_the_forward_pass_matches_a_step_by_step_computation() -> None:
    model = shaken(resnet(14, 4, shape=(3, 12, 12), classes=5))
    conv, norm = layers_of(model)
    images = torch.randn(2, 3, 12, 12)
    x = relu(norm("bn1", conv("conv1", images)))
    for stage in (1, 2, 3):
        for block in (0, 1):
            path, strides = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            inner = relu(norm(f"{path}.bn1", conv(f"{path}.conv1", x, strides)))
            short = norm(f"{path}.downsample.1", conv(f"{path}.downsample.0", x, 2)) if strides == 2 else x
            x = relu(norm(f"{path}.bn2", conv(f"{path}.conv2", inner)) + short)
    assert x.shape == (2, 16, 3, 3)
    torch.testing.assert_close(model(images), model.linear(x.mean((2, 3))))


def test_same_seed_gives_the_same_weights() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(resnet(8, shape=(1, 8, 8), classes=10, width=4))
    first, second = (list(model.parameters()) for model in models)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_block_adds_its_input() -> None:
    block = resnet(8, shape=(1, 8, 8), classes=10, width=4).layer1[0].eval()
    nn.init.zeros_(block.get_parameter("conv2.weight"))
    x = torch.rand(2, 4, 8, 8)
    torch.testing.assert_close(block(x), x)


@pytest.mark.parametrize("depth", [8, 20, 32, 44, 56, 110])
def test_depth_does_not_count_shortcuts(depth: int) -> None:
    with torch.device("meta"):
        layers = prunable(resnet(depth, shape=(3, 32, 32), classes=10))
    assert len([name for name in layers if "downsample" not in name]) == depth


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match=r"6 n \+ 2; got 37. The nearest is 38"):
        resnet(37, shape=(3, 32, 32), classes=10)
    with pytest.raises(OptionError, match="The nearest is 8"):
        resnet(2, shape=(3, 32, 32), classes=10)
    with pytest.raises(OptionError, match="`width` must be a whole number of at least 1; got 0"):
        resnet(8, shape=(3, 32, 32), classes=10, width=0)
    with pytest.raises(ModelError, match=r"`resnet8` expects images .* got \(784,\)"):
        resnet(8, shape=(784,), classes=10)

"""Models by name: the ones that come along, the user's own, and every error."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hypersparse import models
from hypersparse.errors import ModelError, OptionError

USER_FILE = """
from torch import nn

def sized(shape, classes, width=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], width), nn.Linear(width, classes))

def fixed(outputs=4):
    return nn.Linear(2, outputs)

def open_ended(outputs=4, **more):
    return nn.Linear(2, outputs, **more)

def needy(outputs):
    return nn.Linear(2, outputs)

def wrong():
    return "a model"

class Net(nn.Linear):
    def __init__(self, classes):
        super().__init__(2, classes)
"""


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_models_for_tests.py").write_text(USER_FILE)
    (tmp_path / "my_broken_file.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_models_for_tests", None)


def build_mine(factory: str, **options: object) -> nn.Module:
    name = f"my_models_for_tests:{factory}"
    return models.build(name, shape=(1, 2, 2), classes=5, options=options, own_code=[name])


@pytest.mark.parametrize("name", models.names())
def test_every_name_builds_a_model_for_a_shape_and_classes(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name, shape=(3, 32, 32), classes=6)
        assert model(torch.empty(2, 3, 32, 32)).shape == (2, 6)


def macs_per_image(model: nn.Module, image: Tensor) -> int:
    """Multiplications of one image in convolutions and linear layers."""
    total = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        outputs_per_channel = output.numel() // output.shape[1]
        total += layer.get_parameter("weight").numel() * outputs_per_channel

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    model(image)
    return total


@pytest.mark.parametrize(
    ("name", "classes", "side", "millions"),
    [
        ("resnet32", 10, 32, 275.6),
        ("resnet32", 100, 32, 275.6),
        ("resnet32", 200, 64, 1102.5),
        ("vgg19", 10, 32, 398.1),
        ("vgg19", 100, 32, 398.2),
        ("vgg19", 200, 64, 1592.6),
    ],
)
def test_models_of_the_paper_have_the_expected_cost(name: str, classes: int, side: int, millions: float) -> None:
    with torch.device("meta"):
        model = models.build(name, shape=(3, side, side), classes=classes)
        macs = macs_per_image(model, torch.empty(1, 3, side, side))
    assert round(macs / 1e6, 1) == millions


def test_options_are_passed_to_the_model() -> None:
    model = models.build("mlp", shape=(2,), classes=3, options={"hidden": [4]})
    assert sum(parameter.numel() for parameter in model.parameters()) == 2 * 4 + 4 + 4 * 3 + 3


def test_a_depth_without_a_name_is_built_through_its_module() -> None:
    options = {"depth": 14, "width": 2}
    name = "hypersparse.models.resnet:resnet"
    model = models.build(name, shape=(1, 8, 8), classes=10, options=options, own_code=[name])
    assert model(torch.rand(1, 1, 8, 8)).shape == (1, 10)


@pytest.mark.usefixtures("user_file")
def test_a_factory_in_the_current_folder_gets_shape_and_classes_if_it_asks() -> None:
    path = list(sys.path)
    assert build_mine("sized", width=7)(torch.rand(3, 1, 2, 2)).shape == (3, 5)
    assert build_mine("Net")(torch.rand(3, 2)).shape == (3, 5)
    assert build_mine("fixed")(torch.rand(3, 2)).shape == (3, 4)
    assert build_mine("open_ended", bias=False)(torch.rand(3, 2)).shape == (3, 4)
    assert sys.path == path


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="no model `resnet33`; did you mean `resnet32`"):
        models.build("resnet33", shape=(3, 32, 32), classes=10)


@pytest.mark.parametrize("option", ["widht", "depth", "classes", "shape"])
def test_unknown_option_names_the_known_ones(option: str) -> None:
    with pytest.raises(OptionError, match=f"no option of resnet32 `{option}`.*Known: width"):
        models.build("resnet32", shape=(3, 32, 32), classes=10, options={option: 3})


@pytest.mark.usefixtures("user_file")
def test_errors_of_user_factories() -> None:
    with pytest.raises(ModelError, match=r"must return a torch.nn.Module; got str"):
        build_mine("wrong")
    with pytest.raises(OptionError, match="needs the option `outputs`"):
        build_mine("needy")
    with pytest.raises(OptionError, match="did you mean `outputs`"):
        build_mine("fixed", output=3)
    with pytest.raises(OptionError, match="no class or function in my_models_for_tests `fixd`; did you mean `fixed`"):
        build_mine("fixd")
    with pytest.raises(OptionError, match=r"`my_broken_file` .* cannot be imported: No module named 'a_package"):
        models.build("my_broken_file:net", shape=(1,), classes=2, own_code=["my_broken_file:net"])
    with pytest.raises(OptionError, match="without slashes"):
        models.build("./my.py:net", shape=(1,), classes=2)

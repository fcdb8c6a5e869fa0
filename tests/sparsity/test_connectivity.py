"""Paths against brute force: in a network of positive weights without biases, who can change an output?"""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse import Mask, PrunableWeights, models
from hypersparse.errors import OptionError
from hypersparse.sparsity.connectivity import Paths, find_paths
from tests.sparsity.asks import Asks


class Residual(nn.Module):
    """A convolution with a shortcut around it, and one behind."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.inner = nn.Conv2d(3, 3, 3, padding=1, groups=3)
        self.pool = pool
        self.last = nn.Linear(12, 2)

    def forward(self, images: Tensor) -> Tensor:
        values = functional.relu(self.norm(self.first(images)))
        values = values + functional.gelu(self.inner(values))
        return functional.log_softmax(self.last(self.pool(values).flatten(1)), dim=1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 2))


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(inplace=True),
        nn.Conv2d(3, 4, 2),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(4, 3),
    )


def residual() -> nn.Module:
    return Residual(nn.AvgPool2d(2))


NETWORKS = {"mlp": (mlp, (4,)), "conv": (conv, (1, 5, 5)), "residual": (residual, (2, 4, 4))}


def positive(model: nn.Module, mask: Mapping[str, Tensor], images: Tensor) -> Tensor:
    """The outputs of a network of positive weights where `mask` keeps them, with nothing but sums in it."""
    weights = dict(model.named_parameters())

    def layer(name: str) -> Tensor:
        return mask[f"{name}.weight"].double() * (1 + torch.arange(weights[f"{name}.weight"].numel())).view_as(
            weights[f"{name}.weight"]
        )

    if isinstance(model, Residual):
        values = functional.conv2d(images, layer("first"), padding=1)
        values = values + functional.conv2d(values, layer("inner"), padding=1, groups=3)
        return functional.avg_pool2d(values, 2).flatten(1) @ layer("last").T
    if isinstance(model[0], nn.Linear):  # type: ignore[index]
        return images @ layer("0").T @ layer("2").T @ layer("4").T
    values = functional.conv2d(images, layer("0"), stride=2, padding=1)
    return functional.conv2d(values, layer("3")).mean((2, 3)) @ layer("8").T


def by_brute_force(model: nn.Module, mask: Mask, shape: tuple[int, ...]) -> tuple[Mask, bool]:
    images = torch.ones(1, *shape, dtype=torch.float64)
    before = positive(model, mask, images)
    found = {name: torch.zeros_like(layer) for name, layer in mask.items()}
    for name, layer in mask.items():
        for place in layer.nonzero().tolist():
            without = {other: kept.clone() for other, kept in mask.items()}
            without[name][tuple(place)] = False
            found[name][tuple(place)] = not torch.equal(positive(model, without, images), before)
    return Mask(found), bool((before > 0).any())


@pytest.mark.parametrize("density", [0.05, 0.15, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_paths_are_those_of_brute_force(name: str, density: float) -> None:
    build, shape = NETWORKS[name]
    model = build()
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        weights = PrunableWeights(model)
        mask = Mask({key: torch.rand(weight.shape, generator=generator) < density for key, weight in weights.items()})
        paths = find_paths(model, mask, shape)
        expected, connected = by_brute_force(model, mask, shape)
        assert paths.effective == expected
        assert paths.connected == connected
        assert paths.kept == mask.kept_by_layer()


def full(model: nn.Module) -> dict[str, Tensor]:
    return dict(Mask.all_kept(PrunableWeights(model)))


def test_weights_that_only_see_padding_are_on_no_path() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1))
    paths = find_paths(model, full(model), (1, 1, 1))
    assert paths.effective is not None
    assert paths.effective["0.weight"].flatten().tolist() == [False] * 4 + [True] + [False] * 4
    assert paths.effective_sparsity == pytest.approx(8 / 9)


def test_a_maximum_passes_on_what_any_of_its_inputs_has() -> None:
    model = Residual(nn.MaxPool2d(2))
    same = Residual(nn.AvgPool2d(2))
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        mask = {name: torch.rand(layer.shape, generator=generator) < 0.2 for name, layer in full(model).items()}
        assert find_paths(model, mask, (2, 4, 4)).effective == find_paths(same, mask, (2, 4, 4)).effective


def test_norms_that_are_zero_or_negative_do_not_matter() -> None:
    model = conv()
    norm = model[1]  # type: ignore[index]
    nn.init.constant_(norm.weight, -1.0)
    nn.init.zeros_(norm.weight[0:1].data)
    norm.running_mean.fill_(100.0)
    assert find_paths(model, full(model), (1, 5, 5)).effective_kept == PrunableWeights(model).total


def test_empty_shortcuts_and_empty_blocks_do_not_cut_a_residual_network() -> None:
    model = models.build("resnet8", shape=(1, 8, 8), classes=4, options={"width": 4})
    mask = full(model)
    shortcuts = [name for name in mask if "downsample" in name]
    for name in shortcuts:
        mask[name] = torch.zeros_like(mask[name])
    paths = find_paths(model, mask, (1, 8, 8))
    assert paths.empty == shortcuts
    assert paths.connected
    assert paths.effective_kept == sum(paths.kept.values())
    assert "Paths from input to output remain around them" in str(paths)
    mask["layer1.0.conv2.weight"] = torch.zeros_like(mask["layer1.0.conv2.weight"])
    paths = find_paths(model, mask, (1, 8, 8))  # the block's first convolution is kept in vain
    assert paths.effective_kept == sum(paths.kept.values()) - mask["layer1.0.conv1.weight"].numel()
    mask["layer3.0.conv1.weight"] = torch.zeros_like(mask["layer3.0.conv1.weight"])
    paths = find_paths(model, mask, (1, 8, 8))
    assert (paths.connected, paths.effective_kept, paths.effective_sparsity) == (False, 0, 1.0)
    assert "No path from input to output remains" in str(paths)


def test_dead_channels_take_their_weights_along() -> None:
    model = models.build("resnet8", shape=(1, 8, 8), classes=4, options={"width": 4})
    mask = full(model)
    mask["layer1.0.conv1.weight"] = mask["layer1.0.conv1.weight"].clone()
    mask["layer1.0.conv1.weight"][2] = False  # so that nothing enters channel 2 of the next convolution
    paths = find_paths(model, mask, (1, 8, 8))
    assert paths.effective_kept == sum(paths.kept.values()) - 4 * 9
    assert paths.effective is not None
    assert not paths.effective["layer1.0.conv2.weight"][:, 2].any()


def test_deep_networks_neither_overflow_nor_vanish() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(600)))
    assert find_paths(model, full(model), (8,)).effective_kept == 600 * 64
    thin = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8)) for _ in range(200)))
    assert find_paths(thin, full(thin), (8,)).effective_kept == 200 * 64


def test_nothing_of_the_model_changes() -> None:
    model = conv().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    parameters = [id(parameter) for parameter in model.parameters()]
    find_paths(model, full(model), (1, 5, 5))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training
    assert torch.equal(torch.get_rng_state(), random)
    assert [id(parameter) for parameter in model.parameters()] == parameters
    assert all(parameter.grad is None for parameter in model.parameters())


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.value(x) * self.gate(x).sigmoid()


class Scaled(nn.Module):
    """A factor, a shift and a constant of its own, which pass everything on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.scale, self.shift = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        values = (2 * self.layer(x / 3) * self.scale + self.shift - 1).reshape(x.shape[0], -1)
        return values, {"again": torch.cat([values, values], dim=1)}


class Remembering(nn.Module):
    """It keeps something of every forward pass, and draws."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.scale: Tensor | None = None
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += 1
        self.calls += 1
        if self.scale is None:
            self.scale = torch.ones(6, dtype=inputs.dtype) + torch.rand(6, dtype=inputs.dtype)
        return self.layer(functional.dropout(inputs * self.scale))  # type: ignore[no-any-return]


@pytest.mark.parametrize("shape", [(6,), (7,)])
def test_a_look_leaves_no_trace(shape: tuple[int, ...]) -> None:
    model = Remembering()
    before = torch.get_rng_state()
    paths = find_paths(model, {"layer.weight": torch.ones(3, 6, dtype=torch.bool)}, shape)
    assert paths.connected is (True if shape == (6,) else None)
    assert (paths.problem is None) == (shape == (6,))
    assert torch.equal(before, torch.get_rng_state())
    assert (int(model.seen), model.calls, model.scale, model.training) == (0, 0, None, True)
    model(torch.randn(2, 6)).sum().backward()
    assert (int(model.seen), model.calls) == (1, 1)


def test_a_network_that_cannot_be_followed_is_not_guessed_at() -> None:
    attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    for model, shape in ((Gate(), (3,)), (Asks(), (3,)), (attention, (5, 4)), (conv(), (7, 7, 7))):
        paths = find_paths(model, full(model), shape)
        assert (paths.effective, paths.effective_kept, paths.effective_sparsity, paths.connected) == (None,) * 4
    assert find_paths(conv(), full(conv()), None).connected is None


def test_constants_and_several_outputs_are_followed() -> None:
    mask = full(Scaled())
    mask["layer.weight"][0] = False
    assert find_paths(Scaled(), mask, (3,)).effective_kept == 6
    mask["layer.weight"][:] = False
    assert find_paths(Scaled(), mask, (3,)).connected is False


def test_a_mask_of_another_network_is_refused() -> None:
    with pytest.raises(OptionError, match=r"`0\.weight` that the model has not"):
        find_paths(Gate(), full(mlp()), (3,))


def test_words() -> None:
    assert str(Paths({"a": 0, "b": 3}, None, None)) == (
        "No weight is left in 1 of 2 layers: a. Whether a path from input to output remains is not known."
    )
    some = Mask({"a": torch.tensor([True, False])})
    assert str(Paths({"a": 2}, some, True)) == "1 of 2 kept weights lie on a path to the output."
    assert not Paths({"a": 2}, some, True).collapsed

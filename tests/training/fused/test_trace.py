"""Networks found as convolutions with batch norm, and computed from what was found."""

import copy
import logging
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.models.mlp import mlp
from hypersparse.models.resnet import resnet
from hypersparse.models.vgg import vgg
from hypersparse.models.wide_resnet import wide_resnet
from hypersparse.training.fused.trace import Activation, Branch, TracedNetwork, trace_network
from tests.architectures import dense_net, mobile_net

SHAPE = (3, 16, 16)


def compute(traced: TracedNetwork, images: Tensor) -> Tensor:
    """The outputs of a traced network by plain operations."""
    values = [images]
    for activation in traced.activations:
        terms = [
            values[branch.source] if branch.conv is None or branch.norm is None
            else branch.norm(functional.conv2d(
                values[branch.source], branch.conv.weight, branch.conv.bias, branch.conv.stride, branch.conv.padding
            ))
            for branch in activation.branches
        ]  # fmt: skip
        value = functional.relu(sum(terms[1:], terms[0]))
        values.append(functional.max_pool2d(value, 2) if activation.pool == 2 else value)
    outputs: Tensor = traced.tail(values[-1])
    return outputs


def check(model: nn.Module, shape: tuple[int, ...] = SHAPE) -> TracedNetwork:
    """Trace a network and compare outputs, gradients and running statistics with its own."""
    torch.manual_seed(0)
    original = copy.deepcopy(model)
    traced = trace_network(model, shape)
    assert traced is not None
    images = torch.randn(4, *shape)
    for step in range(2):
        torch.manual_seed(step)  # of dropout
        expected = original(images)
        torch.manual_seed(step)
        outputs = compute(traced, images)
        assert torch.allclose(outputs, expected, rtol=0, atol=1e-6)
        expected.square().sum().backward()
        outputs.square().sum().backward()
    for ours, theirs in zip(model.parameters(), original.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        assert ours.grad is None or torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    for name, value in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    model.eval(), original.eval()
    with torch.no_grad():
        assert torch.allclose(compute(traced, images), original(images), rtol=0, atol=1e-6)
    return traced


def reason(model: nn.Module, caplog: pytest.LogCaptureFixture, shape: tuple[int, ...] = SHAPE) -> str:
    """Why a network is not fused."""
    with caplog.at_level(logging.DEBUG, logger="hypersparse"):
        assert trace_network(model, shape) is None
    assert len(caplog.messages) == 1
    return caplog.messages[0]


def conv(inputs: int, outputs: int, side: int = 3, **options: int) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, side, **{"padding": side // 2, **options})  # type: ignore[arg-type]
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4)]


def plain(*, first: nn.Module | None = None, last: list[nn.Module] | None = None) -> nn.Sequential:
    layers = [first or conv(3, 8), nn.ReLU(), conv(8, 8), nn.ReLU(), conv(8, 8), nn.ReLU()]
    return nn.Sequential(*layers, *(head(8) if last is None else last))


class Block(nn.Module):
    """torchvision's BasicBlock, or its Bottleneck if `inner` has three layers."""

    def __init__(self, *inner: nn.Module, downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.downsample = nn.ModuleList(inner), downsample
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        identity, out = x, x
        for place, layer in enumerate(self.inner):
            out = layer(self.relu(out) if place else out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Written(nn.Module):
    """Three activations, the second computed by a function of two convolutions with batch norm and the first one."""

    def __init__(self, middle: Callable[["Written", Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.a, self.b, self.last = conv(3, 8), conv(8, 8), conv(8, 8), conv(8, 8)
        self.narrow, self.linear, self.middle = conv(8, 1), nn.Linear(8, 4), middle

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self, functional.relu(self.first(x)))
        logits: Tensor = self.linear(functional.relu(self.last(x)).mean((2, 3)))
        return logits

    def twice(self, x: Tensor) -> Tensor:
        return functional.relu(self.b(functional.relu(x)) + functional.relu(x))

    def without_gradients(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return functional.relu(self.a(x))


@pytest.mark.parametrize("depth", [8, pytest.param(20, marks=pytest.mark.slow), 32])
def test_resnets(depth: int) -> None:
    model = resnet(depth, width=4, shape=SHAPE, classes=4)
    traced = check(model)
    assert len(traced.activations) == depth - 1
    assert traced.activations[0] == Activation((Branch(0, model.conv1, model.bn1),))
    block = model.layer1[0]
    assert traced.activations[2].branches == (Branch(2, block.conv2, block.bn2), Branch(1))  # type: ignore[arg-type]
    shortcuts = [activation.branches[1].conv for activation in traced.activations if len(activation.branches) == 2]
    assert sum(shortcut is not None for shortcut in shortcuts) == 2


@pytest.mark.parametrize(("depth", "convs"), [(11, 8), (19, 16)])
def test_vggs_with_their_poolings(depth: int, convs: int) -> None:
    traced = check(vgg(depth, width=4, shape=SHAPE, classes=4))
    assert len(traced.activations) == convs
    assert sum(activation.pool == 2 for activation in traced.activations) == 4
    assert traced.activations[0].branches[0].conv.bias is not None  # type: ignore[union-attr]


def test_sequential_network_with_no_ops_and_a_tail() -> None:
    layers = [conv(3, 8), nn.Identity(), nn.ReLU(), nn.Dropout(0.0), conv(8, 8, stride=2), nn.ReLU(), conv(8, 8, 1)]
    traced = check(nn.Sequential(*layers, nn.ReLU(), nn.Dropout(0.5), *head(8)))
    assert [activation.branches[0].source for activation in traced.activations] == [0, 1, 2]
    assert [type(module) for module in traced.tail.modules() if type(module) is nn.Dropout] == [nn.Dropout]


def test_blocks_with_one_inplace_relu() -> None:
    down = Block(conv(8, 12, stride=2), conv(12, 12), downsample=conv(8, 12, 1, stride=2))
    stem = [conv(3, 8), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    traced = check(nn.Sequential(*stem, Block(conv(8, 8), conv(8, 8)), down, *head(12)))
    assert [branch.source for activation in traced.activations for branch in activation.branches] == [
        0, 1, 2, 1, 3, 4, 3,
    ]  # fmt: skip


def test_bottlenecks() -> None:
    block = Block(conv(8, 4, 1), conv(4, 4), conv(4, 8, 1))
    assert len(check(nn.Sequential(conv(3, 8), nn.ReLU(), block, *head(8))).activations) == 4


@pytest.mark.parametrize(
    ("middle", "branches", "pool"),
    [
        (lambda net, x: torch.relu(net.a(x).add_(net.b(x))), 2, 1),
        (lambda net, x: torch.add(x, net.a(x)).relu_(), 2, 1),
        (lambda net, x: (net.a(x) + x).relu(), 2, 1),
        (lambda net, x: functional.max_pool2d(functional.relu(net.a(x), inplace=True), (2, 2)), 1, 2),
        (lambda net, x: torch.max_pool2d(torch.relu_(net.a(x)), 2, 2), 1, 2),
    ],
)
def test_ways_to_write_an_activation(middle: Callable[[Written, Tensor], Tensor], branches: int, pool: int) -> None:
    traced = check(Written(middle))
    assert len(traced.activations) == 3
    assert (len(traced.activations[1].branches), traced.activations[1].pool) == (branches, pool)


@pytest.mark.parametrize(
    ("middle", "said"),
    [
        (lambda net, x: torch.add(net.a(x), x, alpha=2).relu(), "not a plain sum of two"),
        (lambda net, x: (net.a(x) + 1).relu(), "not a plain sum of two"),
        (lambda net, x: (net.a(x) + net.b(x) + x).relu(), "`add` is not a BatchNorm2d"),
        (lambda net, x: net.twice(net.a(x) + x), "not a plain sum of two"),
        (lambda net, x: net.twice(net.a(x)), "`a_1` is not a BatchNorm2d with one reader"),
        (lambda net, x: (net.a(x).relu() + x).relu(), "no convolution"),
        (lambda net, x: x.add_(net.a(x)).relu(), "changes an activation"),
        (lambda net, x: net.a(x).relu() + net.a[1].running_mean.mean(), "used elsewhere"),
        (lambda net, x: net.a(x).relu() * net.a[0].weight.sum(), "used elsewhere"),
        (lambda net, x: net.a(net.a(x).relu()).relu(), "used elsewhere"),
        (lambda net, x: functional.max_pool2d(net.a(x).relu(), 3, 2, 1), "reads `max_pool2d`"),
        (lambda net, x: functional.max_pool2d(net.a(x).relu(), 2, ceil_mode=True), "reads `max_pool2d`"),
        (lambda net, x: net.a(x).relu() * x, "reads `mul`"),
        (lambda net, x: (net.a(x) + net.b(x).mean((2, 3), keepdim=True)).relu(), "`mean` is not a BatchNorm2d"),
        (lambda net, x: (net.a(x) + net.narrow(x)).relu(), "different shapes"),
        (lambda net, x: [net.b(x).relu(), net.a(x).relu()][1], "no reader"),
        (lambda net, x: net.without_gradients(x), "disables gradients"),
        (lambda net, x: net.a(x).relu() if x.sum() > 0 else x, "cannot trace it, TraceError"),
        (lambda net, x: net.a(x).relu() if random.random() < 2 else x, "draws random numbers"),
        (lambda net, x: net.a(x).relu() if torch.rand(()) < 2 else x, "draws random numbers"),
        (lambda net, x: setattr(net, "seen", x) or net.a(x).relu(), "changes attributes"),
    ],
)
def test_what_is_computed_otherwise_is_not_fused(
    middle: Callable[[Written, Tensor], Tensor], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = Written(middle)
    states = torch.get_rng_state(), random.getstate()
    assert said in reason(model, caplog)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert not hasattr(model, "seen")


def test_pooling_whose_input_has_another_reader_is_not_part_of_the_activation() -> None:
    class Both(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            made: Tensor = super().forward(x)
            return functional.max_pool2d(made, 2).mean((2, 3)) + made.mean((2, 3))

    assert [activation.pool for activation in check(Both(*plain(last=[]))).activations] == [1, 1, 1]


def test_network_is_fused_up_to_what_does_not_fit() -> None:
    depthwise = [conv(8, 8, groups=8), nn.ReLU(), conv(8, 8), nn.ReLU()]
    assert len(check(plain(last=[*depthwise, *head(8)])).activations) == 3


class Concatenated(nn.Module):
    """What goes into some layers beside what they compute, as in a DenseNet."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)


def test_concatenation_ends_what_is_fused(caplog: pytest.LogCaptureFixture) -> None:
    early, late = (Concatenated(conv(8, 8), nn.ReLU(), conv(8, 8), nn.ReLU()) for _ in range(2))
    assert len(check(plain(last=[late, *head(16)])).activations) == 3
    model = nn.Sequential(conv(3, 8), nn.ReLU(), early, *head(16))
    assert "reads more than the last one" in reason(model, caplog)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (mlp(shape=SHAPE, classes=4), "is not a BatchNorm2d"),
        # Its third norm reads a sum of convolutions.
        (wide_resnet(10, 1, shape=SHAPE, classes=4), "is not a Conv2d with one reader"),
        (dense_net(), "is not a Conv2d with one reader"),
        (mobile_net(), "fewer than 3"),
        (plain(first=nn.Conv2d(3, 8, 3, padding=1)), "is not a BatchNorm2d"),
        (plain(first=Block(conv(3, 3))), "`input_1` is not a BatchNorm2d"),
    ],
    ids=["mlp", "wide_resnet", "dense_net", "mobile_net", "no norm", "shortcut of the input"],
)
def test_networks_that_are_not_fused(model: nn.Module, said: str, caplog: pytest.LogCaptureFixture) -> None:
    assert said in reason(model, caplog)


@pytest.mark.parametrize(
    "first",
    [
        conv(3, 8, dilation=2, padding=2),
        conv(3, 8, dilation=2),
        conv(3, 8, 7),
        conv(3, 8, stride=3),
        conv(3, 8, padding=0),
        conv(3, 9, groups=3),
        nn.Sequential(nn.Conv2d(3, 8, (3, 1), padding=1), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Conv2d(3, 8, 3, (1, 2), padding=1), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, affine=False)),
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, track_running_stats=False)),
    ],
    ids=str,
)
def test_layers_with_other_options_are_not_fused(first: nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    assert "has options that no kernel has" in reason(plain(first=first), caplog)


def test_network_is_traced_where_gradients_are_off() -> None:
    with torch.no_grad():
        assert trace_network(plain(), SHAPE) is not None


def share(model: nn.Sequential) -> None:
    model[4][0].weight = model[2][0].weight  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (share, "used elsewhere"),
        (lambda model: model[2].register_forward_hook(print), "`2` has hooks"),
        (lambda model: model.register_forward_pre_hook(print), "`the model` has hooks"),
        (lambda model: model[8].register_full_backward_hook(print), "`8` has hooks"),
        (lambda model: nn.utils.parametrizations.weight_norm(model[2][0]), "is not a Conv2d"),
        (lambda model: model[2][0].weight.register_hook(abs), "hooks on its weights"),
        (lambda model: model[2][1].requires_grad_(False), "frozen"),
        (lambda model: model[2][1].eval(), "options"),
        (lambda model: setattr(model[2][1], "momentum", None), "options"),
        (lambda model: setattr(model[2], "forward", abs), "`2` has hooks or a forward"),
    ],
)
def test_changed_layers_are_not_fused(
    change: Callable[[nn.Sequential], object], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = plain()
    change(model)
    assert said in reason(model, caplog)


def test_layers_are_shared_and_the_model_is_left_as_it_was() -> None:
    model = plain()
    kinds, state = [type(module) for module in model.modules()], copy.deepcopy(model.state_dict())
    traced = trace_network(model, SHAPE)
    assert traced is not None
    assert traced.activations[1].branches[0].conv is model[2][0]  # type: ignore[index]
    assert next(traced.tail.parameters()) is model[8].weight
    assert [type(module) for module in model.modules()] == kinds
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())

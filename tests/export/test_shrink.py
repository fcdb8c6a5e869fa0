"""Networks without what cannot matter, and the same outputs."""

import time
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import CollapseWarning
from hypersparse.export import channel_elimination
from hypersparse.export.shrink import Shrunk, shrink, shrink_graph
from hypersparse.export.trace import trace
from hypersparse.models.resnet import BasicBlock
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.export.networks import SHAPES, difference, graph_of, outputs, sparse_model


def layer(found: Shrunk, name: str) -> tuple[int, int, str]:
    """Channels unread and constant, and why the layer went."""
    (row,) = [row for row in found.layers if row.name == name]
    return row.unread, row.constant, row.why


def test_unread_and_constant_units_by_hand() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]))
        first.bias.copy_(torch.tensor([0.5, 7.0, 1.0]))
        last.weight.copy_(torch.tensor([[10.0, 100.0, 0.0]]))
        last.bias.copy_(torch.tensor([1.0]))
    found = shrink(model, (2,))
    state = {name: tensor.tolist() for name, tensor in found.module().state_dict().items()}
    # Unit 1 is relu(7) = 7 for every input, which gives 700; nothing reads unit 2.
    assert state == {"0.weight": [[1.0, 2.0]], "0.bias": [0.5], "2.weight": [[10.0]], "2.bias": [701.0]}
    assert layer(found, "0") == (1, 1, "")
    assert found.parameters == (13, 5)


def test_a_constant_at_a_padded_border_becomes_a_plane() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 1, 3, padding=1)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1.0)
        model[0].weight[1] = 0  # type: ignore[index]
    found = shrink(model, (1, 3, 3))
    (plane,) = [node for node in found.graph.nodes if node.op == "plane"]
    value = found.graph.tensors[plane.tensors["value"]]
    # The constant 1 is summed over as many pixels as lie inside; the bias gives 1 more.
    assert value.tolist() == [[[5.0, 7.0, 5.0], [7.0, 10.0, 7.0], [5.0, 7.0, 5.0]]]
    assert difference(model, found.module(), torch.randn(4, 1, 3, 3)) < 1e-6
    kept = shrink_graph(trace(model, (1, 3, 3)), planes=False)
    assert not [node for node in kept.graph.nodes if node.op == "plane"]
    assert difference(model, kept.module(), torch.randn(4, 1, 3, 3)) < 1e-6


def test_a_branch_that_is_constant_goes() -> None:
    model = nn.Sequential(BasicBlock(3, 3, stride=1), nn.Flatten(), nn.Linear(75, 2)).eval()
    with torch.no_grad():
        model[0].conv1.weight.zero_()  # type: ignore[union-attr]
        model[0].bn1.bias.fill_(1.0)  # type: ignore[union-attr, operator]
    found = shrink(model, (3, 5, 5))
    assert layer(found, "0.conv1")[2] == layer(found, "0.conv2")[2] == "a branch that is constant"
    assert [node.op for node in found.graph.nodes] == ["plane", "relu", "flatten", "linear"]
    assert difference(model, found.module(), torch.randn(4, 3, 5, 5)) < 1e-5


def test_a_constant_in_a_slot_that_another_block_fills_keeps_its_value() -> None:
    """The channel is constant after the first block and not after the second, so it stays, with its number."""
    model = nn.Sequential(BasicBlock(2, 2, stride=1), BasicBlock(2, 2, stride=1), nn.Flatten()).eval()
    first, second = model[0], model[1]
    assert isinstance(first, BasicBlock)
    assert isinstance(second, BasicBlock)
    stem = nn.Conv2d(1, 2, 1)
    with torch.no_grad():
        stem.weight[1] = 0
        stem.bias[1] = 2.0  # type: ignore[index]
        first.conv1.weight[:, 1] = 0
        first.conv2.weight[1] = 0
    whole = nn.Sequential(stem, nn.ReLU(), model).eval()
    found = shrink(whole, (1, 4, 4))
    assert difference(whole, found.module(), torch.randn(4, 1, 4, 4)) < 1e-5


@pytest.mark.parametrize("planes", [True, False])
@pytest.mark.parametrize("density", [0.4, 0.1, 0.04])
@pytest.mark.parametrize("name", SHAPES)
def test_outputs_stay_the_same(name: str, density: float, planes: bool) -> None:
    model = sparse_model(name, density=density, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        found = shrink_graph(graph_of(name, model), planes=planes)
    for inputs in (torch.randn(4, *SHAPES[name]), torch.zeros(1, *SHAPES[name]), 100 * torch.rand(2, *SHAPES[name])):
        assert difference(model, found.module(), inputs) < 1e-5
    assert sum(row.weights[1] for row in found.layers) <= sum(row.weights[0] for row in found.layers)


class Mixed(nn.Module):
    """Depthwise and grouped convs, a sum of three, elementwise functions, pools, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.point = nn.Conv2d(6, 6, 1)
        self.grouped = nn.Conv2d(6, 6, 3, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(6)
        self.last = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = nn.functional.silu(self.stem(x))
        b = self.norm(a + self.point(nn.functional.hardswish(self.depthwise(a))) * 0.5)
        c = nn.functional.avg_pool2d(b, 2) + nn.functional.max_pool2d(a, 2)
        d = torch.cat([c.mean((2, 3)), self.grouped(c).mean((2, 3))], 1)
        result: Tensor = self.last(d)
        return result


@pytest.mark.parametrize("density", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_it_does_not_know_it_leaves_alone(seed: int, density: float) -> None:
    torch.manual_seed(seed)
    model = Mixed().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            keep = torch.rand(weight.shape[:2]) < density
            if weight.ndim > 1:
                weight.mul_(keep.reshape(*keep.shape, *[1] * (weight.ndim - 2)))
            elif "norm" in name and "weight" in name:
                weight.mul_(torch.rand(6) < 0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        found = shrink_graph(trace(model, (2, 6, 6)))
    assert difference(model, found.module(), torch.randn(3, 2, 6, 6)) < 1e-5


def test_an_output_without_input_is_said_and_is_a_constant() -> None:
    model = sparse_model("vgg11", density=0.3)
    with torch.no_grad():
        model.layer3.conv1.weight.zero_()  # type: ignore[union-attr, operator]
    with pytest.warns(CollapseWarning, match="does not depend on the input"):
        found = shrink_graph(graph_of("vgg11", model))
    assert not found.depends_on_input
    assert difference(model, found.module(), torch.randn(2, *SHAPES["vgg11"])) < 1e-5
    assert found.parameters[1] == 4 * 3 + 4
    assert "nothing of the input" in layer(found, "layer1.conv1")[2]


def test_a_dense_network_loses_its_batch_norms_only() -> None:
    model = sparse_model("resnet8", density=100.0, clustered=False)
    found = shrink_graph(graph_of("resnet8", model))
    assert all(row.weights[0] == row.weights[1] and not row.why for row in found.layers)
    assert not [node for node in found.graph.nodes if node.op == "batch_norm"]
    assert not [node for node in found.graph.nodes if node.op == "plane"]


def test_the_smaller_network_can_be_shrunk_again_without_effect() -> None:
    model = sparse_model("resnet8", density=0.05, seed=3)
    once = shrink_graph(graph_of("resnet8", model))
    twice = shrink(once.module(), SHAPES["resnet8"])
    assert once.parameters[1] == twice.parameters[1]
    assert [node.op for node in once.graph.nodes] == [node.op for node in twice.graph.nodes]
    same = torch.randn(2, *SHAPES["resnet8"])
    assert np.allclose(outputs(once.module(), same), outputs(twice.module(), same), atol=1e-6)


class Sharing(nn.Module):
    """One norm, one bias and one plane, each used at two places of which different channels stay."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.pool = nn.BatchNorm2d(8), nn.MaxPool2d(3, 1, 1)
        self.second.bias = self.first.bias
        self.plane, self.linear = nn.Parameter(torch.randn(8, 6, 6)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(torch.relu(self.norm(self.pool(self.first(x))) + self.plane))
        return self.linear(torch.relu(self.norm(self.pool(x)) + self.plane).mean((2, 3)))


@pytest.mark.parametrize("dead", [(slice(0, 4), slice(2, 6)), (slice(0, 4), slice(4, 8)), (slice(0, 0), slice(2, 6))])
def test_what_two_places_share_is_cut_for_each(dead: tuple[slice, slice]) -> None:
    torch.manual_seed(0)
    model = Sharing().eval()
    with torch.no_grad():
        for tensor in (model.norm.weight, model.norm.bias, model.norm.running_mean, model.first.bias):
            assert tensor is not None
            tensor.normal_()
        model.second.weight[:, dead[0]] = 0
        model.linear.weight[:, dead[1]] = 0
    found = shrink(model, (3, 6, 6))
    assert found.parameters[1] < found.parameters[0]
    assert difference(model, found.module(), torch.randn(4, 3, 6, 6)) < 1e-5


def test_a_shared_bias_takes_in_only_the_norm_behind_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4)).eval()
    first, norm, _, last = model
    assert isinstance(first, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(last, nn.Linear)
    last.bias = first.bias
    with torch.no_grad():
        norm.bias.normal_()
    assert difference(model, shrink(model, (4,)).module(), torch.randn(6, 4)) < 1e-5


class Twice(nn.Module):
    """A layer that is used twice, each time with a norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.one, self.other = nn.BatchNorm1d(4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.one(self.again(torch.relu(self.first(x)))))
        return self.last(torch.relu(self.other(self.again(x))))  # type: ignore[no-any-return]


def test_a_layer_that_is_used_twice_is_two_in_the_table() -> None:
    torch.manual_seed(0)
    model = Twice().eval()
    with torch.no_grad():
        model.again.weight[1] = 0
        model.one.bias.normal_()
        model.other.bias.normal_()
    found = shrink(model, (4,))
    rows = {layer.name: layer for layer in found.layers}
    assert list(rows) == ["first", "again", "again_2", "last"]
    assert [layer.why for layer in found.layers] == [""] * 4
    assert (rows["again"].outputs, rows["again"].weights, rows["again"].constant) == ((4, 3), (12, 12), 1)
    assert (rows["again_2"].inputs, rows["again_2"].outputs, rows["again_2"].weights) == ((4, 3), (4, 3), (12, 9))
    small = found.module()
    assert not any(isinstance(module, nn.BatchNorm1d) for module in small.modules())
    assert difference(model, small, torch.randn(6, 4)) < 1e-5


class Bare(nn.Module):
    """A conv that is used twice, and weights that no module has."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.first, self.last = nn.Parameter(torch.randn(4, 2, 1, 1)), nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(nn.functional.conv2d(x, self.first))
        return nn.functional.linear(torch.relu(self.conv(torch.sigmoid(self.conv(x)))).mean((2, 3)), self.last)


def test_shared_weights_and_weights_of_no_module_get_names_that_a_module_can_have() -> None:
    torch.manual_seed(0)
    model = Bare().eval()
    with torch.no_grad():
        model.norm.bias.normal_()
        model.conv.weight[1] = 0
    found = shrink(model, (2, 5, 5))
    assert difference(model, found.module(), torch.randn(4, 2, 5, 5)) < 1e-5


def test_a_long_chain_of_planes_becomes_one_in_linear_time() -> None:
    """Of 4,096 planes that took 42 s: every change began a new search."""
    tensors = {f"a{place}": np.full((2, 4, 4), place % 3, np.float32) for place in range(4096)}
    names = [INPUT, *(f"v{place}" for place in range(4096))]
    nodes = [Node("plane", (names[place],), names[place + 1], {"value": f"a{place}"}) for place in range(4096)]
    began = time.process_time()
    found = shrink_graph(Graph((2, 4, 4), tuple(nodes), tensors))
    assert time.process_time() - began < 5.0
    (plane,) = found.graph.nodes
    assert (found.graph.tensors[plane.tensors["value"]] == sum(place % 3 for place in range(4096))).all()


def zigzag(count: int) -> Graph:
    """Sums that share terms with their neighbours, those of even and of odd places behind each other; one is read."""
    options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    kept = np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)
    nodes = [Node("conv", (INPUT,), f"x{place}", {"weight": "x.weight"}, options) for place in range(count + 1)]
    places = [*range(0, count, 2), *range(1, count, 2)]
    nodes += [Node("add", (f"x{place}", f"x{place + 1}"), f"y{place}") for place in places]
    nodes.append(Node("concat", tuple(f"y{place}" for place in range(count)), "z"))
    last = np.zeros((1, 2 * count, 1, 1), np.float32)
    last[0, 0] = 1
    nodes.append(Node("conv", ("z",), "o", {"weight": "o.weight"}, options))
    return Graph((2, 4, 4), tuple(nodes), {"x.weight": kept, "o.weight": last})


def test_values_that_keep_the_same_channels_are_found_in_any_order() -> None:
    """Of 1,000 sums that took 25 s: each sweep over all nodes came one sum further."""
    began = time.process_time()
    found = shrink_graph(zigzag(1000))
    assert time.process_time() - began < 5.0
    assert [node.op for node in found.graph.nodes] == ["conv", "conv", "add", "concat", "conv"]
    images = torch.randn(2, 2, 4, 4)
    assert torch.allclose(found.module()(images), 2 * images[:, :1])


def test_a_search_without_an_end_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_elimination, "MOST_ROUNDS", 0)
    model = sparse_model("resnet8", density=0.05)
    found = shrink_graph(graph_of("resnet8", model))
    assert all(row.inputs[0] == row.inputs[1] and row.outputs[0] == row.outputs[1] for row in found.layers)
    assert difference(model, found.module(), torch.randn(2, *SHAPES["resnet8"])) < 1e-5

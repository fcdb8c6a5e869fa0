"""Models as graphs, and graphs as models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError, OptionError
from hypersparse.export.graph_module import to_module
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import save_sparse
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import Graph, Node
from tests.export.networks import SHAPES, Expm1, outputs, sparse_model


@pytest.mark.parametrize("name", SHAPES)
def test_our_models_need_no_opaque_node_and_come_back_bit_for_bit(name: str) -> None:
    model = sparse_model(name, density=0.3)
    graph = trace(model, SHAPES[name])
    assert not [node.op for node in graph.nodes if node.opaque]
    back, inputs = to_module(graph), torch.randn(3, *SHAPES[name])
    assert torch.equal(outputs(back, inputs), outputs(model, inputs))
    state = back.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[key], tensor) for key, tensor in model.state_dict().items())


class Odd(nn.Module):
    """Reflection padding, which graphs have no word for, among chunks, sums with buffers and a norm without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect")
        self.norm = nn.BatchNorm2d(8, affine=False)
        self.linear = nn.Linear(8, 5)
        self.register_buffer("shift", torch.randn(5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.norm(self.conv(x)).chunk(2, dim=1)
        joined = torch.cat([nn.functional.silu(first) + 0.5, second], 1)
        logits = self.linear(nn.functional.dropout(joined.mean((2, 3)), training=self.training))
        return torch.softmax(logits + self.shift, 1)


def test_what_a_graph_has_no_word_for_is_kept_for_pytorch() -> None:
    model = Odd().eval()
    graph = trace(model, (3, 6, 6))
    opaque = {node.op for node in graph.nodes if node.opaque}
    assert opaque == {"aten.pad.default"}
    back = to_module(graph)
    inputs = torch.randn(4, 3, 6, 6)
    assert torch.equal(outputs(back, inputs), outputs(model, inputs))
    model.load_state_dict(back.state_dict())


def test_training_mode_stays_and_does_not_matter() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9)).train()
    assert [node.op for node in trace(model, (3,)).nodes] == ["linear"]
    assert model.training


def test_pools_and_means_are_translated() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, dilation=2, groups=2), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 1, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    ).eval()  # fmt: skip
    graph = trace(model, (2, 20, 24))
    assert [node.op for node in graph.nodes] == ["conv", "max_pool", "avg_pool", "avg_pool", "flatten", "linear"]
    inputs = torch.randn(3, 2, 20, 24)
    assert torch.allclose(outputs(to_module(graph), inputs), outputs(model, inputs), rtol=1e-6, atol=1e-6)


class Folded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0] * 2, 3).relu().reshape(x.shape[0], 6) * 2


def test_arithmetic_with_the_batch_size_is_undone() -> None:
    graph = trace(Folded(), (6,))
    assert "batch" not in graph.about
    assert torch.equal(to_module(graph)(torch.ones(3, 6)), torch.full((3, 6), 2.0))


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x[0].expand(x.shape)], 1)


def test_a_model_that_mixes_its_inputs_is_for_single_ones() -> None:
    graph, inputs = trace(Mixing(), (6,)), torch.randn(1, 6)
    assert graph.about["batch"] == 1
    assert torch.equal(to_module(graph)(inputs), Mixing()(inputs))


class Two(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x * 2


def test_a_network_that_diverged_takes_any_batch() -> None:
    layer = nn.Linear(6, 2)
    nn.init.constant_(layer.weight, float("nan"))
    model = nn.Sequential(
        nn.Unflatten(1, (3, 4)), nn.Flatten(2), nn.Unflatten(2, (2, 2)), nn.Flatten(), nn.Linear(12, 6), layer
    )
    assert "batch" not in trace(model, (12,)).about


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Two(), "one tensor; it gives 2"),
        (nn.Identity(), "gives its input"),
        (nn.Linear(4, 2), "cannot trace Linear for inputs .3,."),
        (nn.Linear(3, 2).to(torch.bfloat16), "bfloat16"),
    ],
)
def test_models_that_cannot_be_traced_are_said_in_one_line(model: nn.Module, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence) as raised:
        trace(model, (3,))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "node",
    [
        Node("aten.from_file.default", ("input",), "y", {}, {"arguments": ["/x"], "keywords": {}, "shape": (3,)}),
        Node("os.system", ("input",), "y", {}, {"arguments": ["true"], "keywords": {}, "shape": (3,)}),
        Node("aten.silu_.default", ("input",), "y", {}, {"arguments": [{"input": 0}], "keywords": {}, "shape": (3,)}),
        Node("aten.silu.out", ("input",), "y", {}, {"arguments": [{"input": 0}], "keywords": {}, "shape": (3,)}),
        Node("aten.silu.__class__", ("input",), "y", {}, {"arguments": [], "keywords": {}, "shape": (3,)}),
        Node("aten.silu.default", ("input",), "y", {}, {"arguments": [{"input": 7}], "keywords": {}, "shape": (3,)}),
        Node("aten.silu.default", ("input",), "y", {}, {"arguments": [{"input": 0}], "keywords": {}, "shape": (4,)}),
        Node("aten.silu.default", ("input",), "y", {}, {}),
        Node(
            "aten.constant_pad_nd.default", ("input",), "y", {},
            {"arguments": [{"input": 0}, [0, 2**40]], "keywords": {}, "shape": (3,)},
        ),
    ],
)  # fmt: skip
def test_only_listed_operations_with_true_shapes_are_run(node: Node) -> None:
    with pytest.raises(ModelError) as raised:
        to_module(Graph((3,), (node,), {}))
    assert "\n" not in str(raised.value)


def test_an_input_of_another_shape_is_said() -> None:
    with pytest.raises(ModelError, match=r"\(3,\).*got \(2, 4\)"):
        to_module(trace(nn.Linear(3, 2), (3,)))(torch.zeros(2, 4))


class Borrowed(nn.Module):
    """Parameters that are copied or computed on their way, and one that makes its input wider."""

    def __init__(self) -> None:
        super().__init__()
        self._layers = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1))  # also what `Network` called its own
        self.norm = nn.BatchNorm2d(3)
        self.shift, self.place = nn.Parameter(torch.randn(1, 6, 6)), nn.Parameter(torch.randn(3, 6, 6))
        self.gain, self.gate = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(()))

    def forward(self, x: Tensor) -> Tensor:
        shifted = self._layers(x) + self.shift.detach()
        wide = shifted + self.place.clone()
        norm = self.norm
        normed = nn.functional.batch_norm(wide, norm.running_mean, norm.running_var, self.gain.exp(), norm.bias)
        return normed * torch.sigmoid(torch.neg(self.gate))


def test_parameters_may_be_copied_computed_and_of_more_channels_than_what_they_are_added_to() -> None:
    model = Borrowed().eval()
    graph = trace(model, (1, 6, 6))
    assert [node.op for node in graph.nodes[:4]] == ["conv", "plane", "constant", "arithmetic"]
    inputs = torch.randn(4, 1, 6, 6)
    assert torch.equal(outputs(to_module(graph), inputs), outputs(model, inputs))
    smaller = shrink_graph(graph).module()
    assert torch.allclose(outputs(smaller, inputs), outputs(model, inputs), atol=1e-5)


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    class Picks(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(super().forward(x) > 0, x, -x)

    (tmp_path / "a.hsp").write_text("before")
    with pytest.raises(ModelError, match=r"operation `aten\.gt\.Scalar`"):
        save_sparse(Picks(4, 4), tmp_path / "a.hsp", input_shape=(4,))
    assert (tmp_path / "a.hsp").read_text() == "before"


@pytest.mark.parametrize("shape", [3, (), (3, 0, 8), (3, -1, 8), "abc"])
def test_an_input_shape_that_is_none_gets_a_sentence(shape: Any) -> None:
    with pytest.raises(OptionError, match=r"without the batch, such as \(3, 32, 32\); got"):
        trace(nn.Conv2d(3, 4, 3, padding=1), shape)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_network_for_single_inputs_takes_many(count: int) -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), Expm1()).eval()
    network = to_module(trace(model, (5, 8)))  # of which PyTorch runs a part, with arithmetic with the batch size
    assert network.about["batch"] == 1
    inputs = torch.randn(count, 5, 8)
    wanted = outputs(model, inputs) if count else torch.zeros(0, 5, 8)
    assert outputs(network, inputs).shape == wanted.shape
    assert torch.allclose(outputs(network, inputs), wanted, atol=1e-6)

"""Clipped activations: what is left of a sum between two numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.export.graph_module import to_module
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, GraphError, Node, SparseModel
from hypersparse_runtime.file import pack, read, unpack, write
from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.kernel_library import load_kernel

LEVELS = load_kernel().levels
VALUES = np.array([-9, -1, -0.25, 0, 0.25, 1, 9, 1e30, -1e30, np.nan], np.float32)
CLIP = {"low": -0.5, "high": 0.5}


class Clamps(nn.Module):
    """Every way to write one."""

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu6(x)
        x = functional.hardtanh(nn.Hardtanh(-2, 5)(x), -1.0, 4.5)
        x = x.clamp(0.5, 4).clamp(max=3.5).clamp(min=1).clamp_min(1.25).clamp_max(3)
        return nn.ReLU6()(torch.clip(x, 1.5, 2.75))


def test_every_clamp_by_numbers_is_a_clip() -> None:
    graph = trace(Clamps(), (3,))
    assert [node.op for node in graph.nodes] == ["clip"] * 10
    assert graph.nodes[0].options == {"low": 0.0, "high": 6.0}
    assert graph.nodes[4].options == {"high": 3.5}
    assert graph.nodes[5].options == {"low": 1.0}
    given = torch.linspace(-3, 9, 12).reshape(4, 3)
    assert torch.equal(to_module(graph)(given), Clamps()(given))
    assert torch.equal(torch.from_numpy(SparseModel(graph, engine="hypersparse")(given.numpy())), Clamps()(given))


class Others(nn.Module):
    """Bounds that a graph cannot say."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(2, 1) + x.clamp(min=-1e300) + x.clamp(min=self.low)


def test_other_clamps_stay_with_pytorch() -> None:
    opaque = [node.op for node in trace(Others(), (3,)).nodes if node.opaque]
    assert opaque == ["aten.clamp.default", "aten.clamp.default", "aten.clamp.Tensor"]


@pytest.mark.parametrize("options", [CLIP, {"low": 0.5}, {"high": -0.5}, {"low": 0.0, "high": 6.0}])
@pytest.mark.parametrize("level", [*LEVELS, "numpy"])
@pytest.mark.parametrize("shape", [(10,), (1, 2, 5)])
def test_numbers_by_hand_also_those_that_are_none(
    level: str, options: dict[str, float], shape: tuple[int, ...]
) -> None:
    graph = Graph(shape, (Node("clip", (INPUT,), "y", {}, options),), {})
    how = {"engine": "numpy"} if level == "numpy" else {"engine": "hypersparse", "instructions": level}
    model = SparseModel(graph, threads=1, **how)
    wanted = torch.clamp(torch.from_numpy(VALUES), options.get("low"), options.get("high")).numpy()
    for count in (1, 20):
        given = np.tile(VALUES, (count, 1)).reshape(count, *shape)
        np.testing.assert_array_equal(model(given), np.tile(wanted, (count, 1)).reshape(count, *shape))


def test_zeros_around_planes_stay_zero_where_the_lower_bound_is_not() -> None:
    """A plane of 3 columns has a zero beside each row, which the next convolution reads as its padding."""
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    nodes = (
        Node("conv", (INPUT,), "a", {"weight": "w"}, options),
        Node("clip", ("a",), "b", {}, {"low": 1.0, "high": 2.0}),
        Node("conv", ("b",), "c", {"weight": "w"}, options),
    )
    graph = Graph((1, 3, 3), nodes, {"w": np.ones((1, 1, 3, 3), np.float32)})
    given = np.zeros((20, 1, 3, 3), np.float32)
    for level in LEVELS:
        model = SparseModel(graph, engine="hypersparse", threads=1, instructions=level)
        for count in (1, 20):
            assert model(given[:count])[0, 0].tolist() == [[4, 6, 4], [6, 9, 6], [4, 6, 4]]


def test_a_residual_sum_that_is_clipped_again_and_again_is_not_put_off() -> None:
    """Three blocks whose second channel gets a bias alone: 0.25 + 0.5, clipped to 0.5 each time."""
    options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    weight = np.zeros((2, 2, 1, 1), np.float32)
    weight[0, 0] = 1
    nodes, x = [Node("conv", (INPUT,), "x", {"weight": "one"}, options)], "x"
    for number in range(3):
        nodes += [
            Node("conv", (x,), f"c{number}", {"weight": "w", "bias": "b"}, options),
            Node("add", (x, f"c{number}"), f"s{number}"),
            Node("clip", (f"s{number}",), f"y{number}", {}, CLIP),
        ]
        x = f"y{number}"
    tensors = {"one": np.ones((2, 1, 1, 1), np.float32), "w": weight, "b": np.array([0.125, 0.5], np.float32)}
    model = SparseModel(Graph((1, 1, 1), tuple(nodes), tensors), engine="hypersparse")
    assert model(np.array([[[[-0.25]]]], np.float32)).reshape(-1).tolist() == [-0.5, 0.5]  # -0.375, -0.625, -0.875


def test_files_from_before_read_as_before() -> None:
    """There a ReLU6 was PyTorch's own operation."""
    options = {"arguments": [{"input": 0}], "keywords": {}, "shape": (3,)}
    old = unpack(pack(Graph((3,), (Node("aten.relu6.default", (INPUT,), "v1", {}, options),), {})))
    assert old.nodes[0].opaque
    assert to_module(old)(torch.tensor([[-1.0, 2.0, 7.0]])).tolist() == [[0.0, 2.0, 6.0]]
    with pytest.raises(GraphError, match=r"no operation `aten.relu6.default`"):
        SparseModel(old)


def test_it_is_written_read_and_shrunk(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU6(), nn.Flatten(), nn.Linear(48, 2))
    with torch.no_grad():
        model[0].weight[1] = 0
        model[0].bias[1] = 7.0  # the channel is 6 everywhere
    graph = trace(model, (1, 4, 4))
    write(graph, tmp_path / "a.hsp")
    assert read(tmp_path / "a.hsp").nodes[1] == Node("clip", ("v1",), "v2", {}, {"low": 0.0, "high": 6.0})
    small = shrink_graph(graph)
    assert small.graph.tensors["0.weight"].shape == (2, 1, 3, 3)
    given = torch.randn(5, 1, 4, 4)
    with torch.no_grad():
        assert torch.allclose(small.module()(given), model(given), atol=1e-5)

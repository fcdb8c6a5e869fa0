"""Channels of several values behind each other."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypersparse.export.graph_module import to_module
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, Node, SparseModel
from hypersparse_runtime.container import FileError
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.file import pack, unpack
from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.limits import MOST_INPUTS
from hypersparse_runtime.lowering import layers_of
from tests.runtime.networks import computed

LEVELS = load_kernel().levels
CONV: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
HALF = CONV | {"stride": (2, 2)}


def conv(name: str, source: str, weight: str, options: dict[str, Any] = CONV) -> Node:
    return Node("conv", (source,), name, {"weight": weight, "bias": f"{weight}b"}, options)


def graph(*nodes: Node, shape: tuple[int, ...] = (2, 9, 11), **tensors: tuple[int, ...]) -> Graph:
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=sides) * (rng.random(sides) < 0.6) for name, sides in tensors.items()}
    arrays |= {f"{name}b": rng.normal(size=sides[0]) for name, sides in tensors.items()}
    return Graph(shape, nodes, {name: array.astype(np.float32) for name, array in arrays.items()})


POOL = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}
NETWORKS = {
    "strides of several inputs into one value": graph(
        conv("a", INPUT, "w"),
        Node("relu", ("a",), "r"),
        conv("b", "r", "v", HALF),
        conv("c", INPUT, "w", HALF),
        Node("max_pool", ("r",), "p", {}, POOL),
        Node("concat", ("b", "c", "p"), "j"),
        Node("relu", ("j",), "k"),
        conv("d", "k", "u"),
        w=(3, 2, 3, 3), v=(4, 3, 3, 3), u=(2, 10, 3, 3),
    ),
    "a value twice, and read again": graph(
        conv("a", INPUT, "w"),
        Node("concat", ("a", INPUT, "a"), "j"),
        Node("clip", ("j",), "k", {}, {"low": 0.25, "high": 1.0}),
        conv("b", "k", "v"),
        Node("concat", ("j", "b"), "l"),
        conv("c", "l", "u"),
        w=(3, 2, 3, 3), v=(3, 8, 3, 3), u=(2, 11, 3, 3),
    ),
    "the output": graph(conv("a", INPUT, "w"), Node("concat", (INPUT, "a"), "j"), w=(3, 2, 3, 3)),
    "a residual sum and its parts": graph(
        conv("a", INPUT, "w"),
        conv("b", "a", "v"),
        Node("add", ("a", "b"), "s"),
        Node("relu", ("s",), "t"),
        conv("c", "t", "v"),
        Node("concat", ("t", "c"), "j"),
        conv("d", "j", "u"),
        Node("add", ("j", "d"), "y"),
        w=(3, 2, 3, 3), v=(3, 3, 3, 3), u=(6, 6, 3, 3),
    ),
    "vectors": graph(
        conv("a", INPUT, "w"),
        Node("mean", ("a",), "m"),
        Node("flatten", (INPUT,), "f"),
        Node("linear", ("f",), "l", {"weight": "v", "bias": "vb"}),
        Node("concat", ("m", "l", "f"), "j"),
        Node("relu", ("j",), "r"),
        Node("linear", ("r",), "y", {"weight": "u", "bias": "ub"}),
        w=(3, 2, 3, 3), v=(4, 198), u=(5, 205),
    ),
    "of one, and of concatenations": graph(
        conv("a", INPUT, "w"),
        Node("concat", ("a",), "i"),
        Node("relu", ("i",), "r"),
        Node("concat", ("r", INPUT), "j"),
        Node("concat", ("j", "r"), "k"),
        Node("flatten", ("k",), "y"),
        w=(3, 2, 3, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_every_engine_gives_what_pytorch_gives(name: str) -> None:
    images = np.random.default_rng(1).normal(size=(20, 2, 9, 11)).astype(np.float32)
    wanted = computed(NETWORKS[name], images)
    most = 1e-5 * np.abs(wanted).max()
    for level in LEVELS:
        model = SparseModel(NETWORKS[name], engine="hypersparse", threads=1, instructions=level)
        assert np.abs(model(images[:1]) - wanted[:1]).max() <= most
        assert np.abs(model(images) - wanted).max() <= most
    again = unpack(pack(NETWORKS[name]))
    assert np.abs(SparseModel(again, engine="numpy")(images) - wanted).max() <= most
    with torch.no_grad():
        assert np.abs(to_module(again)(torch.from_numpy(images)).numpy() - wanted).max() <= most
        for planes in (True, False):
            small = shrink_graph(again, planes=planes).module()
            assert np.abs(small(torch.from_numpy(images)).numpy() - wanted).max() <= most


def test_parts_that_nobody_else_reads_are_written_where_they_belong() -> None:
    layers = layers_of(
        graph(
            conv("a", INPUT, "w"),
            Node("relu", ("a",), "r"),
            conv("b", INPUT, "w"),
            Node("concat", ("r", "b"), "j"),
            w=(3, 2, 3, 3),
        )
    ).layers
    assert [(layer.output, layer.rows.tolist(), layer.relu) for layer in layers] == [
        ("j", [0, 1, 2], True),
        ("j", [3, 4, 5], False),
    ]


def test_channels_that_nobody_reads_are_not_computed() -> None:
    given = graph(
        conv("a", INPUT, "w"),
        conv("b", INPUT, "w"),
        Node("concat", ("a", "b"), "j"),
        conv("c", "j", "v"),
        w=(3, 2, 3, 3),
        v=(2, 6, 3, 3),
    )
    given.tensors["v"][:] = 0
    given.tensors["v"][0, 4] = 1  # the second channel of the second part
    layers = without_dead_channels(layers_of(given)).layers
    assert [(layer.output, layer.rows.tolist()) for layer in layers] == [("j", [4]), ("c", [0, 1])]


class Joined(nn.Module):
    """Two branches of which one does not depend on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 4, 3, padding=1)
        self.last = nn.Conv2d(7, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(torch.cat([self.first(x), self.second(x)], dim=-3).relu())
        return y


def test_shrink_follows_channels_through_it() -> None:
    model = Joined().eval()
    with torch.no_grad():
        model.first.weight[1] = 0  # constant
        model.last.weight[:, 2] = 0  # the third channel of the first part is not read
        model.last.weight[:, 4] = 0  # nor the second of the second
    given = trace(model, (2, 6, 5))
    assert [node.op for node in given.nodes] == ["conv", "conv", "concat", "relu", "conv"]
    small = shrink_graph(given)
    shapes = {name: array.shape for name, array in small.graph.tensors.items() if name.endswith("weight")}
    assert shapes == {"first.weight": (1, 2, 3, 3), "second.weight": (3, 2, 3, 3), "last.weight": (2, 4, 3, 3)}
    images = torch.randn(3, 2, 6, 5)
    with torch.no_grad():
        assert torch.allclose(small.module()(images), model(images), atol=1e-5)
        model.first.weight[:] = 0
        branch = shrink_graph(trace(model, (2, 6, 5)))
        assert [layer.outputs for layer in branch.layers] == [(3, 0), (4, 3), (2, 2)]
        assert torch.allclose(branch.module()(images), model(images), atol=1e-5)


class Others(nn.Module):
    """Not along channels, or with something that is no value."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Parameter(torch.ones(1, 1, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x], 2).sum((2, 3)) + torch.cat([x[:1] * 0 + self.more, self.more], 1).sum()


def test_others_stay_with_pytorch() -> None:
    given = trace(Others(), (2, 4, 4))
    assert "aten.sum.default" in [node.op for node in given.nodes]
    images = torch.randn(1, 2, 4, 4)
    with torch.no_grad():
        assert torch.allclose(to_module(given)(images), Others()(images))


def test_a_file_cannot_claim_any_number_of_parts() -> None:
    many = Graph((2,), (Node("concat", (INPUT,) * (MOST_INPUTS + 1), "y"),), {})
    with pytest.raises(FileError, match="reads 1025 values, and 1024 are the most"):
        pack(many)


def test_very_many_channels_are_copied_without_a_bias_for_each_part() -> None:
    given = Graph((1030,), (Node("concat", (INPUT,) * 1024, "y"),), {})
    layers = layers_of(given).layers
    assert len({id(layer.bias) for layer in layers}) == 1
    images = np.arange(2 * 1030, dtype=np.float32).reshape(2, 1030)
    np.testing.assert_array_equal(SparseModel(given, engine="numpy")(images), np.tile(images, (1, 1024)))

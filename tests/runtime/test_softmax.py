"""Shares of the classes as a network's last operation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import CollapseWarning
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_sparse, save_sparse
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, Node, SparseModel
from hypersparse_runtime.dense_engines import installed_engines
from hypersparse_runtime.graph import INPUT
from hypersparse_runtime.kernel_library import load_kernel
from tests.runtime.networks import sparse_

SHARES = ("softmax", "log_softmax")
LEVELS = load_kernel().levels
INF, NAN = float("inf"), float("nan")


def alone(op: str, classes: int) -> Graph:
    return Graph((classes,), (Node(op, (INPUT,), "y"),), {})


def wanted(op: str, given: np.ndarray) -> np.ndarray:
    found: np.ndarray = getattr(torch, op)(torch.from_numpy(given).double(), 1).numpy()
    return found


@pytest.mark.parametrize("op", SHARES)
@pytest.mark.parametrize("level", [*LEVELS, "numpy"])
@pytest.mark.parametrize("classes", [1, 3, 1000])
def test_any_numbers(op: str, level: str, classes: int) -> None:
    scales = np.array([0, 1e-6, 0.1, 1, 10, 100, 1e4, 1e30], np.float32)
    given = np.random.default_rng(0).normal(size=(8, classes)).astype(np.float32) * scales[:, None]
    how = {"engine": "numpy"} if level == "numpy" else {"engine": "hypersparse", "instructions": level}
    model = SparseModel(alone(op, classes), threads=1, **how)
    for count in (1, 8):
        np.testing.assert_allclose(model(given)[:count], wanted(op, given)[:count], rtol=1e-5, atol=1e-6)
    assert not np.isnan(model(given)).any()
    single = np.concatenate([model(each[None]) for each in given])
    np.testing.assert_array_equal(model(given), single)


@pytest.mark.parametrize("op", SHARES)
def test_every_instruction_set_gives_the_same_bits(op: str) -> None:
    given = np.random.default_rng(0).normal(size=(32, 10)).astype(np.float32) * 4
    found = [SparseModel(alone(op, 10), engine="hypersparse", instructions=level)(given) for level in LEVELS]
    for each in found:
        np.testing.assert_array_equal(each, found[0])
    if op == "softmax":
        np.testing.assert_allclose(found[0].sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("op", SHARES)
@pytest.mark.parametrize("engine", ["hypersparse", "numpy"])
def test_infinity_and_nan_as_in_pytorch(op: str, engine: str) -> None:
    given = np.array([[INF, 0], [-INF, -INF], [-INF, 0], [NAN, 0], [0, NAN], [INF, INF]], np.float32)
    np.testing.assert_array_equal(SparseModel(alone(op, 2), engine=engine)(given), wanted(op, given))


class Classes(nn.Module):
    """A linear layer's classes, or those of a mean over positions, as shares."""

    def __init__(self, op: str, *, flat: bool) -> None:
        super().__init__()
        self.op, self.conv = op, nn.Conv2d(2, 5, 3)
        self.last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *([] if flat else [nn.Linear(5, 4)]))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.last(self.conv(x).relu())
        shares: Tensor = getattr(torch, self.op)(logits, dim=-1)
        return shares


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("op", SHARES)
def test_networks_that_end_in_it(op: str, flat: bool, tmp_path: Path) -> None:
    model = sparse_(Classes(op, flat=flat), 0.5)
    graph, images = trace(model, (2, 7, 9)), torch.randn(64, 2, 7, 9)
    assert graph.nodes[-1].op == op
    with torch.no_grad():
        expected = model(images).numpy()
    engines = ["numpy", *(each.name for each in installed_engines())]
    models = [SparseModel(graph, engine="hypersparse", threads=1, instructions=level) for level in LEVELS]
    models += [SparseModel(graph, engine=engine) for engine in engines]
    models.append(SparseModel(shrink_graph(graph).graph, engine="hypersparse"))
    for runtime in models:
        for count in (1, 7, 64):
            np.testing.assert_allclose(runtime(images[:count].numpy()), expected[:count], rtol=1e-5, atol=1e-6)
    save_sparse(model, tmp_path / "a.hsp", input_shape=(2, 7, 9))
    with torch.no_grad():
        np.testing.assert_allclose(load_sparse(tmp_path / "a.hsp")(images).numpy(), expected, rtol=1e-6)


class Inside(nn.Module):
    """Not the last operation, not over the classes, or of another type: PyTorch's own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "inside":
            return torch.softmax(x.flatten(1), 1) * 2
        if self.kind == "over positions":
            return torch.softmax(x, 1)
        return torch.softmax(x.flatten(1), 1, dtype=torch.float64)


def test_those_of_another_type_stay_with_pytorch() -> None:
    assert "aten.softmax.int" in [node.op for node in trace(Inside("of another type"), (2, 3, 3)).nodes]


@pytest.mark.parametrize("kind", ["inside", "over positions"])
def test_those_inside_a_network_are_softmaxes_over_an_axis(kind: str) -> None:
    model = Inside(kind)
    graph, images = trace(model, (2, 3, 3)), torch.randn(5, 2, 3, 3)
    assert "softmax_last" in [node.op for node in graph.nodes]
    found = SparseModel(graph, engine="hypersparse", threads=1)(images.numpy())
    np.testing.assert_allclose(found, model(images).numpy(), rtol=1e-5, atol=1e-6)


def test_a_network_that_collapsed_has_constant_shares() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Softmax(1))
    with torch.no_grad():
        model[0].weight[:] = 0
    with pytest.warns(CollapseWarning):
        small = shrink_graph(trace(model, (3,)))
    assert [node.op for node in small.graph.nodes] == ["flatten", "linear"]
    with torch.no_grad():
        assert torch.allclose(small.module()(torch.ones(2, 3)), model(torch.ones(2, 3)))


def test_constant_classes_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Softmax(1))
    with torch.no_grad():
        model[0].weight[1] = 0
    small = shrink_graph(trace(model, (3,)))
    with torch.no_grad():
        assert torch.allclose(small.module()(torch.eye(3)), model(torch.eye(3)))

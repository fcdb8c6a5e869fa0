"""Values of different sizes in the same memory: nothing that was there before may be seen."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from hypersparse import models
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, SparseModel, memory_plan
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from tests.runtime.networks import graphs, sparse_

LEVELS = load_kernel().levels


def branches() -> nn.Module:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.third, self.last = nn.Conv2d(8, 12, 5, padding=2), nn.Linear(12, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x).relu()
            x = torch.relu(self.second(x) + x)
            x = self.third(torch.max_pool2d(x, 2)).relu()
            logits: torch.Tensor = self.last(torch.max_pool2d(x, 2).mean((2, 3)))
            return logits

    return Branches()


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "vgg11": (lambda: models.build("vgg11", shape=(3, 32, 32), classes=10, options={"width": 12}), (3, 32, 32)),
    "resnet8": (lambda: models.build("resnet8", shape=(3, 30, 26), classes=10), (3, 30, 26)),
    "branches": (branches, (3, 17, 22)),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_memory_that_is_shared_changes_no_bit(case: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, shape = CASES[case]
    torch.manual_seed(0)
    graph = trace(sparse_(build().eval(), 0.8), shape)
    images = np.random.default_rng(0).normal(size=(20, *shape)).astype(np.float32)
    wanted = _run(graph, images, level, monkeypatch, least=2**40)
    found = _run(graph, images, level, monkeypatch, least=0)
    np.testing.assert_array_equal(found, wanted)


def _run(graph: Graph, images: np.ndarray, level: str, monkeypatch: pytest.MonkeyPatch, *, least: int) -> np.ndarray:
    """Outputs one by one and side by side, after other images were there."""
    monkeypatch.setattr(memory_plan, "MIN_OVERLAID", least)
    model = SparseModel(graph, engine="hypersparse", threads=1, instructions=level)
    one = np.concatenate([model(image[None]) for image in images])
    engine = model._engine
    many, outputs = engine._side_by_side(), np.empty_like(one)  # type: ignore[attr-defined]
    many.run((1000 * images[::-1]).copy().ctypes.data, outputs.ctypes.data, len(images))
    many.run(images.ctypes.data, outputs.ctypes.data, len(images))
    np.testing.assert_array_equal(outputs, one)
    return one


@pytest.mark.slow
@given(graphs())
@settings(max_examples=40)
def test_any_network_may_share_memory(graph: Graph) -> None:
    images = np.random.default_rng(0).normal(size=(11, *graph.input_shape)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        wanted = _run(graph, images, LEVELS[-1], patch, least=2**40)
        found = _run(graph, images, LEVELS[-1], patch, least=0)
    np.testing.assert_array_equal(found, wanted)


def test_rooms_of_values_that_are_needed_at_the_same_time_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    graph = trace(sparse_(models.build("resnet8", shape=(3, 32, 32), classes=10).eval(), 0.5), (3, 32, 32))
    placed = place(layers_of(graph), rows=True)
    apart = memory_plan.plan_memory(placed, 1)
    assert not apart.to_clear
    monkeypatch.setattr(memory_plan, "MIN_OVERLAID", 0)
    laid = memory_plan.plan_memory(placed, 1)
    assert laid.to_clear
    assert laid.floats < 0.8 * apart.floats
    for number, step in enumerate(placed.steps):
        needed = {name for later in placed.steps[number:] for name in memory_plan._read(later)} | {placed.output}
        made = {"input"} | {earlier.output for earlier in placed.steps[: number + 1]}
        taken: dict[int, tuple[int, str]] = {}
        for name in needed & made:
            value = placed.values[name]
            taken[laid.of(name)] = (laid.of(name) + value.channels * value.plane, name)
        starts = sorted(taken)
        for first, second in pairwise(starts):
            assert taken[first][0] <= second, (taken[first][1], taken[second][1], step.output)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "sides", [(2, 2), (4, 4), (8, 8), (16, 8), (6, 16), (16, 16), (32, 32), (8, 64), (7, 16)], ids=str
)
def test_pooling_by_two_is_exact_and_keeps_nan(sides: tuple[int, int], level: str) -> None:
    images = np.random.default_rng(0).normal(size=(1, 5, *sides)).astype(np.float32)
    images[0, 1].flat[:: max(1, sides[0] * sides[1] // 7)] = np.nan

    class Pools(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.max_pool2d(x, 2)

    model = SparseModel(trace(Pools(), (5, *sides)), engine="hypersparse", threads=1, instructions=level)
    np.testing.assert_array_equal(model(images), torch.max_pool2d(torch.from_numpy(images), 2).numpy())


@pytest.mark.parametrize("level", LEVELS)
def test_zeros_are_set_for_every_value_that_comes_into_a_room(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first value of 8x8 planes is read in its first channels only, the third one, in the same room, in others."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    for _ in range(4):
        layers += [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 64, 3)).eval()
    with torch.no_grad():
        for number, layer in enumerate(layer for layer in model if isinstance(layer, nn.Conv2d)):
            read = torch.arange(layer.in_channels) % 4 == number % 4 if number else torch.ones(3, dtype=torch.bool)
            layer.weight[:, ~read] = 0
    images = np.random.default_rng(0).normal(size=(3, 3, 16, 16)).astype(np.float32)
    monkeypatch.setattr(memory_plan, "MIN_OVERLAID", 0)
    sparse = SparseModel(trace(model, (3, 16, 16)), engine="hypersparse", threads=1, instructions=level)
    with torch.no_grad():
        wanted = model(torch.from_numpy(images)).numpy()
    for _ in range(2):
        np.testing.assert_allclose(sparse(images), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())

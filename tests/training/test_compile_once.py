"""Networks of one structure are compiled once, however many there are, and none runs eagerly unnoticed."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hypersparse.methods.task import accuracy
from hypersparse.models.resnet import resnet
from hypersparse.training import compile_once
from hypersparse.training.forward_backward import LossFunction
from hypersparse.training.fused.trace import trace_network
from hypersparse.training.machine import Machine

SHAPE = (3, 8, 8)
NETWORKS = 10  # more than torch compiles one function for
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that torch compiles from now on; they run as they are."""
    graphs: list[Any] = []

    def keep(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=keep))
    return graphs


def loss_of(network: nn.Module, *, inputs: Tensor | None = None) -> float:
    """The loss of a network's function on two images."""
    function = LossFunction(network, accuracy, Machine(device="cpu"), compiled=True)
    loss, _ = function(torch.ones(2, *SHAPE), torch.arange(2), inputs)
    return float(loss.detach())


def network(width: int = 8) -> nn.Module:
    return resnet(8, width=width, shape=SHAPE, classes=4).train()


def test_tails_of_equal_networks_are_compiled_once(compiled: list[Any]) -> None:
    losses = set()
    for _ in range(NETWORKS):
        traced = trace_network(network(), SHAPE)
        assert traced is not None
        losses.add(loss_of(traced.tail, inputs=torch.ones(2, 32, 2, 2)))
    assert len(compiled) == 1
    assert len(losses) == NETWORKS  # each with its own weights


def test_tails_that_compute_something_else_are_not_shared() -> None:
    class Ends(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.network, self.factor = network(), factor

        def forward(self, images: Tensor) -> Tensor:
            outputs: Tensor = self.network(images) * self.factor
            return outputs

    tails = [traced.tail for factor in (2.0, 3.0) if (traced := trace_network(Ends(factor), SHAPE))]
    assert len(tails) == 2
    assert type(tails[0]) is not type(tails[1])


def test_equal_networks_are_compiled_once(compiled: list[Any]) -> None:
    for _ in range(NETWORKS):
        loss_of(network())
    assert len(compiled) == 1


def test_each_of_many_different_networks_is_compiled(compiled: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    for width in range(1, 1 + NETWORKS):
        loss_of(network(width))
    assert len(compiled) == NETWORKS
    assert "eagerly" not in caplog.text


def test_more_variants_of_one_structure_than_torch_compiles_are_reported(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compile_once, "MOST_VARIANTS", 3)

    class Scaled(nn.Module):
        def __init__(self, factor: int) -> None:
            super().__init__()
            self.linear, self.factor = nn.Linear(192, 4), factor

        def forward(self, images: Tensor) -> Tensor:
            outputs: Tensor = self.linear(images.flatten(1)) * self.factor
            return outputs

    for factor in range(NETWORKS):
        loss_of(Scaled(factor))
    assert len(compiled) == 3
    assert caplog.text.count("The network runs eagerly, since it cannot be compiled") == NETWORKS - 3

"""C source, compiled with gcc and compared with PyTorch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError
from hypersparse.export.c_source import c_source
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.export.compiled_c import needs_gcc, predicted
from tests.export.networks import SHAPES, graph_of, outputs, sparse_model


@needs_gcc
@pytest.mark.parametrize("shrunk", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_compiled_source_computes_the_same(name: str, shrunk: bool, tmp_path: Path) -> None:
    model = sparse_model(name, density=0.1, seed=1)
    graph = graph_of(name, model)
    graph = shrink_graph(graph).graph if shrunk else graph
    inputs = torch.randn(3, *SHAPES[name])
    assert np.allclose(predicted(graph, inputs, tmp_path), outputs(model, inputs), rtol=1e-4, atol=1e-5)


class Turns(nn.Module):
    """A value read again after it was flattened and after others were computed in place of their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)
        self.linear = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        a = self.conv(x)
        b = a.relu()
        c = (b + a).relu() + b
        d = nn.functional.avg_pool2d(nn.functional.max_pool2d(c, 3, 1, 1), 2, 2, (1, 0))
        result: Tensor = self.linear(d.flatten(1)) + self.linear(d.relu().flatten(1)).relu()
        return result


@needs_gcc
def test_buffers_are_not_overwritten_while_they_are_needed(tmp_path: Path) -> None:
    model = Turns().eval()
    inputs = torch.randn(3, 2, 12, 8)
    graph = trace(model, (2, 12, 8))
    assert np.allclose(predicted(graph, inputs, tmp_path), outputs(model, inputs), rtol=1e-4, atol=1e-5)


class Views(nn.Module):
    """Views of the input and of values that are read again, and arithmetic in place of inputs of the same shape."""

    def forward(self, x: Tensor) -> Tensor:
        a = x.flatten(1).reshape(x.shape).relu()
        b = a * torch.sigmoid(a.mean((2, 3), keepdim=True))
        c = b + a.flatten(1).reshape(a.shape) * torch.arange(4.0).exp()
        d = c.transpose(1, 2).reshape(c.shape) * c
        e = d.flip(3) - d.maximum(c) / (d.amax(3, keepdim=True) + 1)
        return torch.cat([e, x, d[:, :, 1:2]], 2)


class Untouched(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


@needs_gcc
@pytest.mark.parametrize("model", [Views(), Untouched()])
def test_views_and_what_is_computed_in_place(model: nn.Module, tmp_path: Path) -> None:
    inputs = torch.randn(3, 3, 5, 4)
    graph = trace(model.eval(), (3, 5, 4))
    assert np.allclose(predicted(graph, inputs, tmp_path), outputs(model, inputs), rtol=1e-4, atol=1e-5)


def test_constants_are_computed_at_export() -> None:
    source, _ = c_source(trace(Views().eval(), (3, 5, 4)), "a")
    assert ", 20.08553" in source
    assert "apply_exp(" not in source


def test_only_kept_weights_are_in_it() -> None:
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 1.5, 0.0], [-2.0, 0.0, 3.0]]))
    source, header = c_source(trace(model, (3,)), "my net")
    assert "{\n    1.5f, -2.0f, 3.0f\n}" in source
    assert "malloc" not in source
    assert "static void conv(" not in source
    assert "#define MY_NET_INPUTS 3\n#define MY_NET_OUTPUTS 2\n" in header


def test_what_it_has_no_function_for_is_said() -> None:
    with pytest.raises(ModelError, match=r"`aten\.conv3d\.default`"):
        c_source(trace(nn.Conv3d(1, 2, 3), (1, 4, 4, 4)), "a")
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight[0, 0] = float("inf")
    with pytest.raises(ModelError, match="infinite"):
        c_source(trace(model, (3,)), "a")


def test_source_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(
        (4,), (Node("linear", (INPUT,), "y", {"weight": "a.weight"}),), {"a.weight": np.ones((4, 4), np.float32)}
    )
    c_source(graph, "network")
    monkeypatch.setattr("hypersparse.export.c_writer.MOST_NUMBERS", 36)
    with pytest.raises(ModelError, match=r"more than 36 numbers; export it as \.hsp or \.onnx"):
        c_source(graph, "network")

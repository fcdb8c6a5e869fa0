"""C source, compiled with gcc and compared with PyTorch."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError
from hypersparse.export.c_source import c_source, save_c
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.export.networks import SHAPES, graph_of, outputs, sparse_model

STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wno-sign-conversion"]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")


def predicted(graph: Graph, inputs: Tensor, folder: Path) -> Tensor:
    """What the compiled source gives for inputs."""
    save_c(graph, folder / "net-1.c")
    command = ["gcc", *STRICT, "-O2", "-shared", "-fPIC", "-o", str(folder / "net.so"), str(folder / "net-1.c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    predict = ctypes.CDLL(str(folder / "net.so")).net_1_predict
    made = []
    for one in inputs:
        given, out = np.ascontiguousarray(one.numpy()), np.zeros(4, np.float32)
        for _ in range(2):  # a second call finds the buffers used
            predict(given.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p))
        made.append(out)
    return torch.from_numpy(np.stack(made))


@needs_gcc
@pytest.mark.parametrize("shrunk", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_compiled_source_computes_the_same(name: str, shrunk: bool, tmp_path: Path) -> None:
    model = sparse_model(name, density=0.1, seed=1)
    graph = graph_of(name, model)
    graph = shrink_graph(graph).graph if shrunk else graph
    inputs = torch.randn(3, *SHAPES[name])
    assert torch.allclose(predicted(graph, inputs, tmp_path), outputs(model, inputs), rtol=1e-4, atol=1e-5)


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
    assert torch.allclose(predicted(graph, inputs, tmp_path), outputs(model, inputs), rtol=1e-4, atol=1e-5)


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
    with pytest.raises(ModelError, match="`elementwise`"):
        c_source(trace(nn.Sequential(nn.Linear(3, 2), nn.GELU()), (3,)), "a")
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

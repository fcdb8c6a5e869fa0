"""ONNX files, run by ONNX Runtime."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError, OptionError
from hypersparse.export.onnx import in_onnx_runtime, save_graph_onnx, save_onnx
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.export.networks import SHAPES, Expm1, graph_of, outputs, sparse_model

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxscript", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")


@pytest.mark.parametrize("shrunk", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_onnx_runtime_computes_the_same(name: str, shrunk: bool, tmp_path: Path) -> None:
    model = sparse_model(name, density=0.1, seed=1)
    graph = graph_of(name, model)
    graph = shrink_graph(graph).graph if shrunk else graph
    save_graph_onnx(graph, tmp_path / "a.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)
    inputs = torch.randn(5, *SHAPES[name])
    assert torch.allclose(in_onnx_runtime(tmp_path / "a.onnx")(inputs), outputs(model, inputs), rtol=1e-4, atol=1e-5)


def test_the_batch_is_open_or_fixed(tmp_path: Path) -> None:
    model = sparse_model("mlp", density=0.5)
    for batch, said in ((None, "batch"), (3, 3)):
        save_graph_onnx(graph_of("mlp", model), tmp_path / "a.onnx", batch=batch)
        first = onnx.load(tmp_path / "a.onnx").graph.input[0].type.tensor_type.shape.dim[0]
        assert (first.dim_param or first.dim_value) == said
    inputs = torch.randn(7, *SHAPES["mlp"])  # three at a time, the last batch filled up
    came = in_onnx_runtime(tmp_path / "a.onnx", batch=3)(inputs)
    assert torch.allclose(came, outputs(model, inputs), atol=1e-5)


@pytest.mark.slow
def test_what_a_graph_has_no_word_for_is_written_by_pytorch(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.SiLU(), nn.Flatten(), nn.LayerNorm(27), nn.Linear(27, 2)).eval()
    save_graph_onnx(trace(model, (1, 5, 5)), tmp_path / "a.onnx")
    inputs = torch.randn(4, 1, 5, 5)
    assert torch.allclose(in_onnx_runtime(tmp_path / "a.onnx")(inputs), outputs(model, inputs), atol=1e-5)


def test_the_extra_is_named_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    save_graph_onnx(graph_of("mlp", sparse_model("mlp", density=0.5)), tmp_path / "a.onnx")
    with pytest.raises(OptionError, match=r"hypersparse\[onnx\]"):
        save_graph_onnx(trace(Expm1(), (3,)), tmp_path / "b.onnx")


def test_the_type_of_the_weights_is_kept(tmp_path: Path) -> None:
    model = sparse_model("mlp", density=0.5).double()
    save_graph_onnx(trace(model, SHAPES["mlp"]), tmp_path / "a.onnx")
    inputs = torch.randn(2, *SHAPES["mlp"]).double()
    assert torch.allclose(in_onnx_runtime(tmp_path / "a.onnx")(inputs), outputs(model, inputs), rtol=1e-12)


def bert() -> nn.Module:
    """An encoder of token numbers, as Transformers has it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=12, num_labels=3, **sizes)
    model: nn.Module = transformers.BertForSequenceClassification(config).eval()
    return model


@pytest.mark.parametrize("batch", [None, 2])
def test_token_numbers_are_int64(batch: int | None, tmp_path: Path) -> None:
    onnxruntime, model = pytest.importorskip("onnxruntime"), bert()
    save_onnx(model, tmp_path / "a.onnx", input_shape=(9,), input_dtype=torch.int64, batch=batch)
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert (given.type, given.shape) == ("tensor(int64)", [batch or "batch", 9])
    tokens = torch.randint(0, 50, (batch or 3, 9))
    (logits,) = session.run(None, {"input": tokens.numpy()})
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(logits), model(tokens).logits, atol=1e-5)


class Tilted(nn.Module):
    """Reads token numbers, and also computes with them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x).sum(-1) * x


def test_token_numbers_that_are_also_computed_with_are_floats(tmp_path: Path) -> None:
    model, tokens = Tilted(), torch.randint(0, 5, (2, 4))
    save_onnx(model, tmp_path / "a.onnx", input_shape=(4,), input_dtype=torch.int64)
    assert torch.allclose(in_onnx_runtime(tmp_path / "a.onnx")(tokens.float()), outputs(model, tokens), atol=1e-5)


class Named(nn.Module):
    """Weights that are called as values are: in a file of ONNX both have one set of names."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.relu = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(5, 5))
        self.output = nn.Parameter(torch.randn(3, 5))

    def forward(self, x: Tensor) -> Tensor:
        for weight in (self.input, self.relu):
            x = torch.relu(nn.functional.linear(x, weight))
        return nn.functional.linear(x, self.output)


def test_weights_may_be_called_like_values(tmp_path: Path) -> None:
    model = Named()
    save_graph_onnx(trace(model, (4,)), tmp_path / "a.onnx")
    inputs = torch.randn(6, 4)
    assert torch.allclose(in_onnx_runtime(tmp_path / "a.onnx")(inputs), outputs(model, inputs), rtol=1e-4, atol=1e-5)


def test_a_network_that_would_take_pytorch_minutes_is_refused_at_once(tmp_path: Path) -> None:
    options = {"arguments": [{"input": 0}], "keywords": {}, "shape": (4,)}
    names = [INPUT, *(f"v{place}" for place in range(1025))]
    nodes = [Node("aten.gelu.default", (x,), y, {}, options) for x, y in pairwise(names)]
    with pytest.raises(ModelError, match="1025 operations, and 1024 are the most"):
        save_graph_onnx(Graph((4,), tuple(nodes), {}), tmp_path / "network.onnx")
    assert not any(tmp_path.iterdir())

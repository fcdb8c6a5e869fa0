"""A graph as a PyTorch module: what does not go together is said when it is made."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.errors import ModelError
from hypersparse.export import dry_run
from hypersparse.export.c_source import c_source
from hypersparse.export.graph_module import to_module
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import save_sparse
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node
from tests.runtime.renamed import ESCAPE


@pytest.mark.parametrize("bias", [None, np.ones(4, np.float16)], ids=["whole numbers", "two types"])
def test_layers_of_types_that_cannot_be_multiplied_are_said(bias: Any) -> None:
    arrays = {"w": np.ones((4, 4), np.int64 if bias is None else np.float32)}
    arrays |= {} if bias is None else {"b": bias}
    roles = {"weight": "w"} if bias is None else {"weight": "w", "bias": "b"}
    with pytest.raises(ModelError, match="one floating-point type"):
        to_module(Graph((4,), (Node("linear", (INPUT,), "y", roles),), arrays))


def test_a_batch_that_an_operation_multiplies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"arguments": [{"input": 0}, [0, 0, 0, 2**20]], "keywords": {}, "shape": (4,)}
    graph = Graph((4,), (Node("aten.constant_pad_nd.default", (INPUT,), "y", {}, options),), {})
    assert to_module(graph)(torch.ones(1, 4)).shape == (1 + 2**20, 4)
    monkeypatch.setattr(dry_run, "MOST_OF_A_VALUE", 2**20)
    with pytest.raises(ModelError, match="4194308 elements"):
        to_module(graph)


def test_statistics_under_other_names_can_be_run_with_gradients() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("middle", torch.tensor([1.0, 2.0]))
            self.register_buffer("spread", torch.tensor([4.0, 9.0]))

        def forward(self, x: Tensor) -> Tensor:
            return functional.batch_norm(x, self.middle, self.spread, eps=0.0)

    x = torch.tensor([[3.0, 8.0]], requires_grad=True)
    outputs = to_module(trace(Norm(), (2,)))(x)
    assert outputs.tolist() == [[1.0, 2.0]]
    outputs.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.5, pytest.approx(1 / 3)]]


def test_a_bias_that_no_operation_reads_is_not_added() -> None:
    arrays = {"a.weight": np.ones((1, 2), np.float32), "a.bias": np.full(1, 5, np.float32)}
    module = to_module(Graph((2,), (Node("linear", (INPUT,), "y", {"weight": "a.weight"}),), arrays))
    assert module(torch.ones(1, 2)).tolist() == [[2.0]]
    assert sorted(module.state_dict()) == ["a.bias", "a.weight"]


def test_names_of_too_many_modules_are_refused() -> None:
    arrays = {f"{number}{'.a' * 200}": np.zeros(1, np.float32) for number in range(100)}
    with pytest.raises(ModelError, match="in more than 16384 modules"):
        to_module(Graph((2,), (Node("relu", (INPUT,), "y"),), arrays))


@pytest.mark.parametrize("name", [ESCAPE, "a b.weight", "x\n"])
def test_no_module_is_made_with_names_that_are_source_text(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = Graph((4,), (Node("linear", (INPUT,), "y", {"weight": name}),), {name: np.ones((2, 4), np.float32)})
    for use in (to_module, lambda made: trace(to_module(made), (4,)), shrink_graph, partial(c_source, name="a")):
        with pytest.raises((ModelError, GraphError), match="is no name"):
            use(graph)
    assert not (tmp_path / "escaped").exists()


def test_a_model_with_such_names_is_not_written(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    model.add_module("a b", nn.Linear(2, 2))
    with pytest.raises(ModelError, match=r"'a b\.weight' is no name"):
        save_sparse(model, tmp_path / "a.hsp", input_shape=(4,))
    assert not (tmp_path / "a.hsp").exists()


def test_as_many_modules_inside_each_other_as_a_name_has_can_be_traced() -> None:
    name = f"{'a.' * 200}weight"
    graph = Graph((4,), (Node("linear", (INPUT,), "y", {"weight": name}),), {name: np.ones((2, 4), np.float32)})
    assert name in trace(to_module(graph), (4,)).tensors

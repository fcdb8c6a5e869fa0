"""`save_sparse` and `load_sparse`: the two profiles, and files that are not whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import Mask, models
from hypersparse.errors import ModelError, OptionError, RunError
from hypersparse.export.graph_module import to_module
from hypersparse.export.sparse_file import deployed, deployed_int8, exact, load_graph, save_graph
from hypersparse_runtime.file import pack
from hypersparse_runtime.graph import Graph
from hypersparse_runtime.sparse_model import SparseModel
from tests.export.networks import OPTIONS, SHAPES, Expm1, difference, graph_of, outputs, sparse_model


def test_exact_comes_back_bit_for_bit_into_the_architecture(tmp_path: Path) -> None:
    model = sparse_model("resnet8", density=0.1)
    size = hypersparse.save_sparse(model, tmp_path / "a.hsp", input_shape=SHAPES["resnet8"], about={"classes": ["x"]})
    assert size == (tmp_path / "a.hsp").stat().st_size
    back = hypersparse.load_sparse(tmp_path / "a.hsp")
    fresh = models.build("resnet8", shape=SHAPES["resnet8"], classes=4, options=OPTIONS["resnet8"])
    fresh.load_state_dict(back.state_dict())
    assert all(torch.equal(fresh.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    inputs = torch.randn(3, *SHAPES["resnet8"])
    assert torch.equal(outputs(back, inputs), outputs(model, inputs))
    assert not back.training
    assert back.about["profile"] == "exact"
    assert back.about["classes"] == ["x"]
    assert back.about["provenance"]["hypersparse"] == hypersparse.__version__


@pytest.mark.parametrize("name", SHAPES)
def test_deployed_is_smaller_and_nearly_the_same(name: str, tmp_path: Path) -> None:
    model = sparse_model(name, density=0.15, seed=2)
    graph = graph_of(name, model)
    small = save_graph(deployed(graph), tmp_path / "small.hsp")
    whole = save_graph(exact(graph), tmp_path / "whole.hsp")
    assert small < 0.75 * whole
    back = hypersparse.load_sparse(tmp_path / "small.hsp")
    assert back.about["values"] == "fp16"
    assert difference(model, back, torch.randn(8, *SHAPES[name])) < 5e-3
    if name != "wide_resnet":  # its batch norms follow sums
        assert not [key for key in back.state_dict() if key.endswith("running_mean")]


@pytest.mark.parametrize("name", SHAPES)
def test_int8_is_smaller_and_nearly_the_same(name: str, tmp_path: Path) -> None:
    model = sparse_model(name, density=0.3, seed=2)
    graph, images = graph_of(name, model), torch.randn(8, *SHAPES[name])
    half = save_graph(deployed(graph), tmp_path / "half.hsp")
    assert save_graph(deployed_int8(graph), tmp_path / "int8.hsp") < half / 1.1
    back = load_graph(tmp_path / "int8.hsp")
    assert back.about["values"] == "int8"
    assert difference(model, to_module(back), images) < 0.05
    ours = SparseModel.load(tmp_path / "int8.hsp", threads=1)(images.numpy())
    assert np.allclose(ours, outputs(to_module(back), images), rtol=1e-4, atol=1e-4)
    weights = [back.array(node, "weight") for node in back.nodes if node.by_channels]
    assert all(len(np.unique(row)) <= 255 for weight in weights if weight is not None for row in weight)
    with pytest.raises(OptionError, match="needs `deploy=True`"):
        hypersparse.save_sparse(model, tmp_path / "a.hsp", input_shape=SHAPES[name], int8=True)


def test_values_get_more_bits_until_nothing_is_predicted_otherwise() -> None:
    model = sparse_model("mlp", density=0.5)
    graph, inputs = graph_of("mlp", model), torch.randn(64, *SHAPES["mlp"])
    asked: list[float] = []

    def closer_than(limit: float) -> str:
        def agrees(candidate: Graph) -> bool:
            asked.append(difference(model, to_module(candidate), inputs))
            return asked[-1] < limit

        return str(deployed(graph, agrees).about["values"])

    assert closer_than(1e-2) == "fp16"
    assert closer_than(1e-4) == "fp32, 13 bits of mantissa"
    assert closer_than(1e-5) == "fp32, 16 bits of mantissa"
    assert closer_than(0) == "fp32"
    assert asked[-3] > asked[-2] > asked[-1]


def vgg_like(density: float) -> Graph:
    """A VGG-19 whose masks and statistics are random: no trained one was at hand."""
    torch.manual_seed(0)
    model = models.build("vgg19", shape=(3, 32, 32), classes=10)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.ndim > 1:
                tensor[torch.rand(tensor.shape) >= density] = 0
            elif tensor.is_floating_point():
                tensor.copy_(
                    1 + 0.3 * torch.randn(tensor.shape) if "var" not in name else 0.5 + torch.rand(tensor.shape)
                )
    from hypersparse.export.trace import trace

    return trace(model, (3, 32, 32))


@pytest.mark.slow
def test_vgg19_at_99_8_percent_is_as_small_as_promised() -> None:
    graph = vgg_like(0.002)
    assert len(pack(exact(graph))) < 345_000
    assert len(pack(deployed(graph), half=True)) < 150_000


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "missing"])
def test_a_damaged_file_is_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "a.hsp"
    save_graph(exact(graph_of("mlp", sparse_model("mlp", density=0.2))), path)
    content = path.read_bytes()
    changed = {
        "cut": content[:-10],
        "flipped": content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
        "empty": b"",
        "foreign": b"PK" + content,
    }
    path.unlink()
    if damage in changed:
        path.write_bytes(changed[damage])
    with pytest.raises(RunError, match=r"a\.hsp") as raised:
        hypersparse.load_sparse(path)
    assert "\n" not in str(raised.value)


def test_names_that_no_module_can_have_are_said(tmp_path: Path) -> None:
    graph = graph_of("mlp", sparse_model("mlp", density=0.2))
    for name in ("forward.weight", "fc1.weight.x", "..", "training"):
        odd = Graph(graph.input_shape, graph.nodes, {**graph.tensors, name: np.zeros(3, np.float32)})
        save_graph(odd, tmp_path / "odd.hsp")
        with pytest.raises(ModelError, match="no module can have"):
            hypersparse.load_sparse(tmp_path / "odd.hsp")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="folder does not exist"):
        hypersparse.save_sparse(nn.Linear(2, 1), tmp_path / "no" / "a.hsp", input_shape=(2,))


def test_what_pytorch_alone_can_do_is_in_the_file_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 8), Expm1(), nn.LayerNorm(8), nn.Linear(8, 2)).eval()
    hypersparse.save_sparse(model, tmp_path / "a.hsp", input_shape=(6,))
    inputs = torch.randn(3, 6)
    assert torch.equal(outputs(hypersparse.load_sparse(tmp_path / "a.hsp"), inputs), outputs(model, inputs))
    assert load_graph(tmp_path / "a.hsp").nodes[1].op == "aten.expm1.default"


@pytest.mark.parametrize("about", [{"score": np.float32(1)}, {"score": float("nan")}, ["a"], {"provenance": "mine"}])
def test_what_is_no_json_about_a_network_gets_a_sentence(about: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`about` is plain JSON"):
        hypersparse.save_sparse(nn.Linear(2, 2), tmp_path / "a.hsp", input_shape=(2,), about=about)
    assert not list(tmp_path.iterdir())


def test_a_dropped_weight_that_is_not_zero_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    mask = Mask.top({"0.weight": model[0].weight.detach().abs()}, 3)
    with pytest.raises(ModelError, match=r"^5 weights of `0\.weight` should be 0\.0 by the mask"):
        hypersparse.save_sparse(model, tmp_path / "a.hsp", input_shape=(4,), mask=mask)
    assert not list(tmp_path.iterdir())
    mask.apply_to_(model)
    hypersparse.save_sparse(model, tmp_path / "a.hsp", input_shape=(4,), mask=mask)
    assert Mask.from_zeros(hypersparse.load_sparse(tmp_path / "a.hsp")).kept == 3

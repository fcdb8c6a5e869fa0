"""Networks that came after plain CNNs, and networks of tokens and sequences, sparse, in whatever can run them."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hypersparse
from hypersparse.errors import ModelError
from hypersparse.export.onnx import in_onnx_runtime
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_sparse, save_sparse
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, GraphError, SparseModel
from hypersparse_runtime.kernel_library import load_kernel
from tests.export.compiled_c import needs_gcc, predicted
from tests.modern_architectures import ARCHITECTURES
from tests.runtime.networks import sparse_
from tests.runtime.test_architectures import assert_close

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
REFUSED = {  # networks whose operation the runtime lacks
    "cosine": (lambda: Cosine(), (4,), "aten.cos.default"),
    "3-D CNN": (lambda: nn.Sequential(nn.Conv3d(1, 2, 3), nn.ReLU()), (1, 4, 5, 6), "aten.conv3d.default"),
    "reflecting CNN": (lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), (1, 6, 6), "aten.pad.default"),
}
names = pytest.mark.parametrize("name", ARCHITECTURES)


class Cosine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x)


@cache
def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = sparse_(ARCHITECTURES[name].build(), 0.5)
    with torch.no_grad():
        for weight in (each for each in model.parameters() if each.dim() > 1):
            weight.mul_(2 * (len(weight) ** 0.5) / weight.norm())  # else little of the input is left in the end
    return model.eval()


def dtype(name: str) -> torch.dtype | None:
    return torch.int64 if ARCHITECTURES[name].words else None


@cache
def traced(name: str) -> Graph:
    return trace(made(name), ARCHITECTURES[name].shape, input_dtype=dtype(name))


def inputs(name: str, count: int = 3) -> torch.Tensor:
    given, generator = ARCHITECTURES[name], torch.Generator().manual_seed(1)
    if given.words:
        return torch.randint(0, given.words, (count, *given.shape), generator=generator)
    return torch.randn(count, *given.shape, generator=generator)


def expected(name: str, count: int = 3) -> np.ndarray:
    with torch.no_grad():
        given = inputs(name, count)
        wanted: np.ndarray = made(name)(given).numpy()
    return wanted


@names
def test_the_kernel_gives_what_pytorch_gives_for_every_instruction_set(name: str) -> None:
    given, wanted = inputs(name, 17).numpy(), expected(name, 17)
    assert wanted.std(axis=0).max() > 0.01 * np.abs(wanted).max()  # inputs differ
    for level in load_kernel().levels:
        runtime = SparseModel(traced(name), engine="hypersparse", threads=1, instructions=level)
        for batch in (1, 17):
            assert_close(runtime(given[:batch]), wanted[:batch])


@names
def test_any_batch_size_is_kept(name: str) -> None:
    assert "batch" not in traced(name).about
    assert not any(node.opaque for node in traced(name).nodes)


@names
def test_files_come_back_and_deployed_ones_compute_the_same(name: str, tmp_path: Path) -> None:
    shape, wanted = ARCHITECTURES[name].shape, expected(name)
    save_sparse(made(name), tmp_path / "exact.hsp", input_shape=shape, input_dtype=dtype(name))
    network = load_sparse(tmp_path / "exact.hsp")
    with torch.no_grad():
        assert_close(network(inputs(name)).numpy(), wanted)
    assert_close(SparseModel.load(tmp_path / "exact.hsp", engine="hypersparse")(inputs(name).numpy()), wanted)
    made(name).load_state_dict(network.state_dict())
    small = shrink_graph(traced(name)).graph
    assert_close(SparseModel(small, engine="hypersparse")(inputs(name).numpy()), wanted)


@names
def test_onnx_files_for_any_batch(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    shape = ARCHITECTURES[name].shape
    hypersparse.save_onnx(made(name), tmp_path / "a.onnx", input_shape=shape, input_dtype=dtype(name))
    run = in_onnx_runtime(tmp_path / "a.onnx")
    assert_close(run(inputs(name)).numpy(), expected(name))


@names
def test_numpy_too(name: str) -> None:
    assert_close(SparseModel(traced(name), engine="numpy")(inputs(name).numpy()), expected(name))


@needs_gcc
@names
def test_c_source(name: str, tmp_path: Path) -> None:
    assert_close(predicted(traced(name), inputs(name).float(), tmp_path), expected(name))


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_runtime_lacks_is_refused_by_its_name_and_runs_in_pytorch(name: str, tmp_path: Path) -> None:
    build, shape, operation = REFUSED[name]
    model = build().eval()
    save_sparse(model, tmp_path / "a.hsp", input_shape=shape)
    given = torch.randn(2, *shape)
    with torch.no_grad():
        assert torch.allclose(load_sparse(tmp_path / "a.hsp")(given), model(given), atol=1e-5)
    with pytest.raises(GraphError, match=re.escape(operation)):
        SparseModel.load(tmp_path / "a.hsp")


def test_the_page_lists_every_network() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = {row[0]: row for row in rows}
    for name in ARCHITECTURES:
        assert listed[name][1:6] == ["works"] * 5, name
    for name, (_, _, operation) in REFUSED.items():
        assert listed[name][1] == f"`{operation}`"


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_read_the_rows_of_images_in_their_order(kind: type[nn.Module]) -> None:
    class Pixels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(1, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.layer(x.reshape(len(x), -1, 1))[0]
            return made

    torch.manual_seed(0)
    model, images = Pixels().eval(), torch.randn(2, 1, 5, 30)
    with torch.no_grad():
        wanted = model(images).numpy()
    assert_close(SparseModel(trace(model, (1, 5, 30)), engine="hypersparse")(images.numpy()), wanted)


class ResponseNorm(nn.Module):
    """ConvNeXt V2's norm of channels that come last, and unit vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.norm(p=2, dim=(1, 2), keepdim=True)
        made = x + torch.addcmul(self.shift, self.gain, x * (size / (size.mean(-1, keepdim=True) + 1e-6)))
        return nn.functional.normalize(made, dim=-1)


def test_vector_norms() -> None:
    torch.manual_seed(0)
    model, x = ResponseNorm(), torch.randn(3, 4, 5, 6)
    graph = trace(model, (4, 5, 6))
    with torch.no_grad():
        wanted = model(x).numpy()
    assert "batch" not in graph.about
    for engine in ("hypersparse", "numpy"):
        assert_close(SparseModel(graph, engine=engine)(x.numpy()), wanted)


class States(nn.Module):
    """Outputs and last hidden states of an LSTM or a GRU with two layers in both directions; `given`: from states."""

    def __init__(self, kind: type[nn.Module], given: float | None = None, *, cells: bool = False) -> None:
        super().__init__()
        self.layer, self.given, self.cells = kind(6, 5, 2, batch_first=True, bidirectional=True), given, cells

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None if self.given is None else torch.full((4, len(x), 5), self.given)
        is_lstm = isinstance(self.layer, nn.LSTM)
        out, last = self.layer(x, (state, state) if is_lstm and state is not None else state)
        hidden = last[1 if self.cells else 0] if is_lstm else last
        return torch.cat([out.mean(1), hidden[-1], hidden[0], hidden[-2]], 1)


@pytest.mark.parametrize("given", [None, 0.0])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_last_hidden_states(kind: type[nn.Module], given: float | None) -> None:
    torch.manual_seed(0)
    model, x = States(kind, given).eval(), torch.randn(3, 7, 6)
    graph = trace(model, (7, 6))
    with torch.no_grad():
        wanted = model(x).numpy()
    assert "batch" not in graph.about
    assert_close(SparseModel(graph, engine="hypersparse")(x.numpy()), wanted)


def test_initial_states_and_cells_are_refused_by_what_they_are() -> None:
    with pytest.raises(ModelError, match="gives its GRU initial states"):
        trace(States(nn.GRU, 1.0), (7, 6))
    with pytest.raises(ModelError, match="reads the cell state of its LSTM"):
        trace(States(nn.LSTM, cells=True), (7, 6))


def test_token_numbers_beyond_the_table_are_refused() -> None:
    runtime = SparseModel(traced("BERT"), engine="hypersparse")
    with pytest.raises(ValueError, match="whole numbers from 0 to 49; got 0 to 50"):
        runtime(np.array([[0, 50, *range(8)]]))
    with pytest.raises(ValueError, match="token numbers"):
        runtime(np.full((1, 10), 0.5, np.float32))

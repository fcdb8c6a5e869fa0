"""Networks of common kinds, sparse, in every way the package can run them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hypersparse.export.onnx import in_onnx_runtime, save_graph_onnx
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_sparse, save_sparse
from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, SparseModel
from hypersparse_runtime.dense_engines import DENSE_ENGINES
from hypersparse_runtime.kernel_library import load_kernel
from tests import architectures
from tests.export.compiled_c import needs_gcc, predicted
from tests.runtime.networks import sparse_

KINDS = ("mobile_net", "squeeze_net", "dense_net")
SHAPE = (3, 20, 24)
BATCHES = (1, 7, 64)


@cache
def traced(name: str, sparsity: float = 0.7) -> Graph:
    return trace(made(name, sparsity), SHAPE)


def made(name: str, sparsity: float = 0.7) -> nn.Module:
    torch.manual_seed(0)
    build: Callable[[], nn.Module] = getattr(architectures, name)
    model = sparse_(build(), sparsity)
    with torch.no_grad():
        for weight in (each for each in model.parameters() if each.dim() > 1):
            weight.mul_(2 * (len(weight) ** 0.5) / weight.norm())  # else little of the image is left in the end
        for norm in (each for each in model.modules() if isinstance(each, nn.BatchNorm2d)):
            norm.weight.add_(1)
    return model


def images(count: int) -> torch.Tensor:
    return 3 * torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def expected(model: nn.Module, given: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        wanted: np.ndarray = model.double()(given.double()).numpy()
    model.float()
    return wanted


def assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("level", load_kernel().levels)
def test_the_kernel_gives_what_pytorch_gives(name: str, level: str) -> None:
    model = made(name)
    given, wanted = images(64).numpy(), expected(model, images(64))
    assert wanted.std(axis=0).max() > 0.05 * np.abs(wanted).max()  # images differ
    runtime = SparseModel(traced(name), engine="hypersparse", threads=1, instructions=level)
    for batch in BATCHES:
        assert_close(runtime(given[:batch]), wanted[:batch])
    one_by_one = np.concatenate([runtime(given[n : n + 1]) for n in range(9)])
    np.testing.assert_array_equal(runtime(given)[:9], one_by_one)
    many = np.empty((64, 4), np.float32)
    runtime._engine._side_by_side().run(given.ctypes.data, many.ctypes.data, 64)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(many[:9], one_by_one)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("engine", ["numpy", *(each.name for each in DENSE_ENGINES)])
def test_dense_engines_too(name: str, engine: str) -> None:
    if engine != "numpy":
        pytest.importorskip(engine)
    model = made(name)
    runtime = SparseModel(traced(name), engine=engine, threads=1)
    for batch in BATCHES:
        assert_close(runtime(images(batch).numpy()), expected(model, images(batch)))


@pytest.mark.parametrize("name", KINDS)
def test_files_come_back_and_deployed_ones_compute_the_same(name: str, tmp_path: Path) -> None:
    model = made(name)
    wanted = expected(model, images(7))
    save_sparse(model, tmp_path / "exact.hsp", input_shape=SHAPE)
    with torch.no_grad():
        assert_close(load_sparse(tmp_path / "exact.hsp")(images(7)).numpy(), wanted)
    assert_close(SparseModel.load(tmp_path / "exact.hsp", engine="hypersparse")(images(7).numpy()), wanted)
    model.load_state_dict(load_sparse(tmp_path / "exact.hsp").state_dict())
    save_sparse(model, tmp_path / "small.hsp", input_shape=SHAPE, deploy=True)
    small = SparseModel.load(tmp_path / "small.hsp", engine="hypersparse")(images(7).numpy())
    assert np.abs(small - wanted).max() <= 1e-2 * np.abs(wanted).max()  # of half precision


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("planes", [True, False])
@pytest.mark.parametrize("sparsity", [0.7, 0.95])
def test_what_is_shrunk_computes_the_same(name: str, planes: bool, sparsity: float) -> None:
    model = made(name, sparsity)
    wanted, small = expected(model, images(7)), shrink_graph(traced(name, sparsity), planes=planes)
    assert planes or small.parameters[1] < small.parameters[0]
    with torch.no_grad():
        assert_close(small.module()(images(7)).numpy(), wanted)
    assert_close(SparseModel(small.graph, engine="hypersparse")(images(7).numpy()), wanted)


@pytest.mark.parametrize("name", KINDS)
def test_onnx_files(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = made(name)
    save_graph_onnx(traced(name), tmp_path / "model.onnx")
    assert_close(in_onnx_runtime(tmp_path / "model.onnx")(images(7)).numpy(), expected(model, images(7)))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("shrunk", [False, True])
@needs_gcc
def test_c_source(name: str, shrunk: bool, tmp_path: Path) -> None:
    model = made(name)
    graph = traced(name)
    wanted = expected(model, images(3))
    assert_close(predicted(shrink_graph(graph).graph if shrunk else graph, images(3), tmp_path), wanted)

"""Exported C on microcontrollers in QEMU: the same integers as the reference, the same floats as PyTorch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.microcontroller import SMALL_FLASH, SMALL_RAM, TARGETS, Target, TooLargeError, measure
from hypersparse import zoo
from hypersparse.export import integer_reference
from hypersparse.export.calibration import calibrate
from hypersparse.export.graph_module import to_module
from hypersparse.export.quantization import quantize
from hypersparse.export.quantized_graph import QuantizedGraph
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_graph
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import INPUT, Graph
from tests.modern_architectures import ARCHITECTURES

pytestmark = pytest.mark.slow


@pytest.fixture(params=TARGETS, ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    if missing := found.missing_tools():
        pytest.skip(f"{', '.join(missing)} of {found.name} is not installed")
    return found


@pytest.fixture(scope="module")
def graph() -> Graph:
    return shrink_graph(load_graph(zoo.path_of("digits-resnet8-0.98")), planes=False).graph


@pytest.fixture(scope="module")
def images(graph: Graph) -> torch.Tensor:
    return torch.randn(2, *graph.input_shape, generator=torch.Generator().manual_seed(0))


def test_integers_are_those_of_the_reference(
    target: Target, graph: Graph, images: torch.Tensor, tmp_path: Path
) -> None:
    network = quantize(graph, calibrate(graph, [images]))
    found = measure(network, _integers(network, images), target, tmp_path, flash=SMALL_FLASH, ram=SMALL_RAM)
    assert np.array_equal(found.outputs, integer_reference.run(network, images).numpy())
    kept = sum(int(np.count_nonzero(node.arrays["weight"])) for node in network.nodes if "weight" in node.arrays)
    assert 3 * kept < found.flash < 16_384
    assert found.arena + 64 + 20 + found.stack == pytest.approx(found.ram, abs=16)
    assert 0 < found.stack < 1024
    assert 40_000 < found.instructions < 2_000_000  # it has 46,000 products


def test_floats_are_those_of_pytorch(target: Target, graph: Graph, images: torch.Tensor, tmp_path: Path) -> None:
    found = measure(graph, images.numpy(), target, tmp_path)
    with torch.no_grad():
        expected = to_module(graph)(images).numpy()
    assert np.abs(found.outputs - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["MobileNetV3", "1-D CNN", "GRU"])
def test_later_networks_and_the_c_library(target: Target, name: str, tmp_path: Path) -> None:
    """Hard swish and squeeze-and-excite need no library; GELU, sigmoid and tanh call its mathematics."""
    torch.manual_seed(0)
    given = ARCHITECTURES[name]
    model, images = given.build().eval(), torch.randn(2, *given.shape)
    with torch.no_grad():
        expected = model(images).numpy()
    found = measure(trace(model, given.shape), images.numpy(), target, tmp_path)
    assert np.abs(found.outputs - expected).max() < 1e-5 * np.abs(expected).max()
    assert ("#include <math.h>" in (tmp_path / "network.c").read_text()) == (name != "MobileNetV3")


def test_tables_of_functions_need_no_library(target: Target, tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = ARCHITECTURES["EfficientNet"]
    images = torch.randn(2, *given.shape)
    graph = trace(given.build().eval(), given.shape)
    network = quantize(graph, calibrate(graph, [images]))
    found = measure(network, _integers(network, images), target, tmp_path)
    assert np.array_equal(found.outputs, integer_reference.run(network, images).numpy())


def _integers(network: QuantizedGraph, images: torch.Tensor) -> NDArray[np.generic]:
    return integer_reference.to_integers(images, network.values[INPUT]).numpy()


def test_what_does_not_fit_is_said(target: Target, graph: Graph, images: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(TooLargeError, match="overflowed by"):
        measure(graph, images.numpy(), target, tmp_path, flash=8192, ram=SMALL_RAM)

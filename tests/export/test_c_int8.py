"""C source of quantized networks, compiled with gcc: its integers are those of the reference, all of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hypersparse.export import integer_reference
from hypersparse.export.c_source import c_source
from hypersparse.export.calibration import calibrate
from hypersparse.export.quantization import quantize
from hypersparse.export.quantized_graph import QuantizedGraph
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.trace import trace
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.export.compiled_c import needs_gcc, predicted
from tests.export.networks import SHAPES, graph_of, outputs, sparse_model
from tests.export.test_c_source import Turns
from tests.export.test_quantization import OPERATIONS, STATISTICS, images_of
from tests.modern_architectures import ARCHITECTURES


def check_exact(network: QuantizedGraph, images: torch.Tensor, folder: Path) -> None:
    given = integer_reference.to_integers(images, network.values[INPUT])
    expected = integer_reference.run(network, images).numpy()
    assert np.array_equal(predicted(network, given, folder), expected)
    assert len(np.unique(expected)) > 2  # or any code would pass


@needs_gcc
@pytest.mark.parametrize("density", [0.02, 0.3])
@pytest.mark.parametrize("name", SHAPES)
def test_networks(name: str, density: float, tmp_path: Path) -> None:
    """Values beyond those of calibration are clamped as in the reference."""
    graph = shrink_graph(graph_of(name, sparse_model(name, density=density, seed=1)), planes=False).graph
    network = quantize(graph, calibrate(graph, [images_of(name, 4)]))
    check_exact(network, 3 * images_of(name, 4), tmp_path)


@needs_gcc
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "concat"])
def test_operations(name: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    tensors = {
        "plane": generator.standard_normal((3, 6, 4)).astype(np.float32) * 3,
        "w": generator.standard_normal((2, 3, 3)).astype(np.float32),
        **{f"n.{role}": generator.random(3).astype(np.float32) + 0.5 for role in STATISTICS},
    }
    used = {own for node in OPERATIONS[name] for own in node.tensors.values()}
    graph = Graph((3, 6, 4), OPERATIONS[name], {own: array for own, array in tensors.items() if own in used})
    images = torch.randn(20, 3, 6, 4, generator=torch.Generator().manual_seed(0))
    check_exact(quantize(graph, calibrate(graph, [images])), 2 * images, tmp_path)


@needs_gcc
@pytest.mark.parametrize("name", ["MobileNetV3", "EfficientNet"])
def test_tables_of_functions_and_products_by_channel(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = ARCHITECTURES[name]
    model = given.build().eval()
    images = torch.randn(32, *given.shape)
    graph = shrink_graph(trace(model, given.shape), planes=False).graph
    network = quantize(graph, calibrate(graph, [images]))
    check_exact(network, images, tmp_path)
    came, expected = integer_reference.predict(network, images), outputs(model, images)
    assert float((came - expected).std()) < 0.05 * float(expected.std())


class Joined(nn.Module):
    """Convolutions of every kind, joined by sums, of which one is its own second input, and by a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)
        self.second = nn.Conv2d(4, 4, (3, 1), padding=(1, 0))
        self.third = nn.Conv2d(8, 3, 3, stride=2)
        self.last = nn.Linear(18, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.first(x).relu()
        b = self.second(a) + a  # a is read again later
        c = (b + b).relu()
        d = (c + self.second(b)).relu()  # over c
        e = torch.cat([d, a], 1)
        result: torch.Tensor = self.last(self.third(nn.functional.avg_pool2d(e, 2, 1)).flatten(1))
        return result


@needs_gcc
@pytest.mark.parametrize("model", [Joined(), Turns()])
def test_sums_lie_over_nothing_that_is_needed(model: nn.Module, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    images = torch.randn(4, 2, 12, 8, generator=generator)
    graph = trace(model.eval(), (2, 12, 8))
    check_exact(quantize(graph, calibrate(graph, [images])), images, tmp_path)
    (tmp_path / "floats").mkdir()
    with torch.no_grad():
        assert np.allclose(predicted(graph, images, tmp_path / "floats"), model(images), rtol=1e-4, atol=1e-4)


@needs_gcc
@pytest.mark.parametrize("most", [2.0**place for place in range(-4, 24, 3)])
def test_every_shift(most: float, tmp_path: Path) -> None:
    """Sums are multiplied by 2^-1 to 2^-28; below 2^-2 the upper half of the product is enough."""
    tensors = {"w": np.array([[127.0, 0.0, 3.0], [0.0, -127.0, 5.0]]), "b": np.array([1e4, -3.0])}
    graph = Graph((3,), (Node("linear", (INPUT,), "y", {"weight": "w", "bias": "b"}),), tensors)
    network = quantize(graph, {INPUT: 127.0, "y": 127 * 127 * most})
    given = torch.from_numpy(np.random.default_rng(0).integers(-127, 128, (400, 3)).astype(np.float32))
    expected = integer_reference.run(network, given).numpy()
    assert np.array_equal(predicted(network, given, tmp_path), expected)


def test_the_header_says_what_integers_mean() -> None:
    graph = trace(nn.Linear(3, 2), (3,))
    network = quantize(graph, {INPUT: 127.0, graph.output: 32767 / 4})
    source, header = c_source(network, "my net")
    assert "#define MY_NET_INPUT_SCALE 1.0f" in header
    assert "#define MY_NET_OUTPUT_SCALE 1.0f" in header
    assert "void my_net_predict(const int8_t *input, int16_t *output);" in header
    assert "float" not in source
    assert "malloc" not in source

"""Networks in integers: numbers computed by hand, every operation without tensors, and whole networks."""

from typing import Any

import numpy as np
import pytest
import torch

from hypersparse import data, zoo
from hypersparse.errors import ModelError
from hypersparse.export import integer_reference
from hypersparse.export.calibration import calibrate
from hypersparse.export.graph_module import to_module
from hypersparse.export.quantization import quantize
from hypersparse.export.quantized_graph import QuantizedGraph, QuantizedValue, multiplier_and_shift
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_graph
from hypersparse.training.loaders import EvalLoader
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.export.networks import SHAPES, graph_of, sparse_model

ONE = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


def linear(*inputs: str, output: str) -> Node:
    return Node("linear", inputs, output, {"weight": f"{output}.weight", "bias": f"{output}.bias"})


def integers(network: QuantizedGraph, images: Any) -> list[Any]:
    found: list[Any] = integer_reference.run(network, torch.as_tensor(images, dtype=torch.float32)).tolist()
    return found


def test_a_layer_computed_by_hand() -> None:
    """The input has the scale 1/4, row 0 the scale 1 and row 1 the scale 1/2; the hidden value the scale 8."""
    tensors = {
        "a.weight": np.array([[127, -2.2], [63.5, 0.1]]),
        "a.bias": np.array([10.1, -3.05]),
        "y.weight": np.array([[63.5, -63.5]]),
        "y.bias": np.array([0.0]),
    }
    nodes = (linear(INPUT, output="a"), Node("relu", ("a",), "b"), linear("b", output="y"))
    network = quantize(Graph((2,), nodes, tensors), {INPUT: 31.75, "a": 9999.0, "b": 2040.0, "y": 32767 / 4})
    first, last = network.nodes
    assert (first.op, first.output, last.inputs) == ("linear", "b", ("b",))
    assert first.arrays["weight"].tolist() == [[127, -2], [127, 1]]  # a fifth of a step is one step
    assert first.arrays["bias"].tolist() == [40, -24]  # 10.1 / (1/4 * 1) = 40.4; -3.05 / (1/4 * 1/2) = -24.4
    assert (first.arrays["multiplier"] / 2.0 ** first.arrays["shift"]).tolist() == [1 / 32, 1 / 64]
    assert network.values["b"] == QuantizedValue(8.0, 0, 255)
    assert network.values["y"] == QuantizedValue(1.0, -32767, 32767)
    # x = (20, -3): 127 * 20 + 2 * 3 + 40 = 2586, / 32 = 80.8; 127 * 20 - 3 - 24 = 2513, / 64 = 39.3
    # y = 127 * 81 - 127 * 39 = 5334, in units of 8 * 1/2
    assert integers(network, [[5.0, -0.75]]) == [[5334 * 4]]
    assert network.values[INPUT] == QuantizedValue(0.25, -127, 127)
    # x = (-127, 127): both sums are negative; x beyond the range is clamped
    assert integers(network, [[-31.75, 31.75], [-1e9, 1e9]]) == [[0], [0]]


def test_a_sum_computed_by_hand() -> None:
    nodes = (Node("relu", (INPUT,), "a"), Node("add", (INPUT, "a"), "b"), Node("flatten", ("b",), "c"))
    network = quantize(Graph((4,), nodes, {}), {INPUT: 127.0, "a": 1.0, "b": 254.0, "c": 1.0})
    values = network.values
    assert [values[name] for name in "abc"] == [
        QuantizedValue(1.0, 0, 127),
        QuantizedValue(2.0, -127, 127),
        QuantizedValue(2.0, -127, 127),
    ]
    multipliers, shift = network.nodes[1].arrays["multiplier"], int(network.nodes[1].arrays["shift"][0])
    assert (multipliers / 2.0**shift).tolist() == [0.5, 0.5]
    assert 254 * int(multipliers[0]) <= 2**30
    # halves are rounded up: -3 / 2, (1 + 1) / 2, (127 + 127) / 2, -127 / 2
    assert integers(network, [[-3, 1, 127, -127]]) == [[-1, 1, 127, -63]]


def test_factors_have_31_bits() -> None:
    generator = np.random.default_rng(0)
    for factor in [*np.exp(generator.uniform(-20, 20, 200)), 1.0, 2.0**29, 1 - 2.0**-40]:
        multiplier, shift = multiplier_and_shift(factor)
        assert 2**30 <= multiplier < 2**31
        assert 1 <= shift <= 62
        assert abs(multiplier / 2.0**shift / factor - 1) < 2.0**-30
    assert multiplier_and_shift(0.0)[0] == 0
    with pytest.raises(ModelError, match=r"multiplied by 1\.07e"):
        multiplier_and_shift(2.0**30)


def images_of(name: str, count: int = 32) -> torch.Tensor:
    return torch.randn(count, *SHAPES[name], generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", SHAPES)
def test_a_network_in_integers_is_nearly_the_same(name: str) -> None:
    model = sparse_model(name, density=0.3, seed=1)
    graph, images = shrink_graph(graph_of(name, model), planes=False).graph, images_of(name)
    network = quantize(graph, calibrate(graph, [images]))
    expected = to_module(graph)(images).detach()
    came = integer_reference.predict(network, images)
    assert float((came - expected).norm() / expected.norm()) < 0.05
    assert not any(node.op in ("relu", "batch_norm") for node in network.nodes)
    assert {value.dtype for name, value in network.values.items() if name != network.output} <= {"int8", "uint8"}
    assert network.values[network.output].dtype == "int16"


@pytest.mark.parametrize("name", ["digits-resnet8-0.95", "digits-resnet8-0.98"])
def test_trained_networks_predict_nearly_the_same_in_integers(name: str) -> None:
    dataset = data.load("digits", [])
    train, test = (
        torch.cat([images for images, _ in EvalLoader(split, dataset, torch.device("cpu"))])
        for split in (dataset.train, dataset.test)
    )
    graph = load_graph(zoo.path_of(name))
    network = quantize(graph, calibrate(graph, [train[:256]]))
    right = integer_reference.run(network, test).argmax(1) == dataset.test.labels
    before = to_module(graph)(test).argmax(1) == dataset.test.labels
    assert float(before.double().mean()) > 0.98
    assert float(right.double().mean()) > float(before.double().mean()) - 0.01


def slow_conv(x: list[Any], node: Any) -> list[Any]:
    """A convolution and its rounding in Python's own integers."""
    weight, options = node.arrays["weight"].tolist(), node.options
    (sy, sx), (py, px), (dy, dx) = options["stride"], options["padding"], options["dilation"]
    per_group = len(weight) // options["groups"]
    height, width = len(x[0]), len(x[0][0])
    rows = (height + 2 * py - dy * (len(weight[0][0]) - 1) - 1) // sy + 1
    columns = (width + 2 * px - dx * (len(weight[0][0][0]) - 1) - 1) // sx + 1
    made = []
    for o, kernels in enumerate(weight):
        first = o // per_group * len(kernels)
        bias, m, s = (int(node.arrays[role][o]) for role in ("bias", "multiplier", "shift"))
        plane = [[bias] * columns for _ in range(rows)]
        for i, j in np.ndindex(rows, columns):
            for c, kernel in enumerate(kernels):
                for ky, line in enumerate(kernel):
                    for kx, w in enumerate(line):
                        at = (i * sy - py + ky * dy, j * sx - px + kx * dx)
                        if 0 <= at[0] < height and 0 <= at[1] < width:
                            plane[i][j] += w * x[first + c][at[0]][at[1]]
        made.append([[(a * m + 2 ** (s - 1)) // 2**s for a in line] for line in plane])
    return made


def test_a_convolution_in_pythons_integers() -> None:
    generator = np.random.default_rng(0)
    how = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    tensors = {"w": generator.standard_normal((6, 2, 3, 2)), "b": generator.standard_normal(6) * 20}
    graph = Graph((4, 7, 6), (Node("conv", (INPUT,), "y", {"weight": "w", "bias": "b"}, how),), tensors)
    images = torch.randn(2, 4, 7, 6, generator=torch.Generator().manual_seed(0))
    network = quantize(graph, calibrate(graph, [images]))
    given = integer_reference.to_integers(images, network.values[INPUT])
    assert integer_reference.run(network, images).tolist() == [slow_conv(x, network.nodes[0]) for x in given.tolist()]


POOL = {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 0)}
STATISTICS = {role: f"n.{role}" for role in ("weight", "bias", "mean", "variance")}
OPERATIONS = {
    "avg_pool": (Node("avg_pool", (INPUT,), "y", {}, POOL),),
    "max_pool": (Node("max_pool", (INPUT,), "y", {}, POOL),),
    "mean": (Node("mean", (INPUT,), "y"),),
    "flatten": (Node("flatten", (INPUT,), "y"),),
    "relu": (Node("relu", (INPUT,), "y"),),
    "clip": (Node("clip", (INPUT,), "y", {}, {"low": -0.5, "high": 1.5}),),
    "a clipped sum": (Node("add", (INPUT, INPUT), "a"), Node("clip", ("a",), "y", {}, {"low": 0.0, "high": 1.5})),
    "concat": (Node("relu", (INPUT,), "a"), Node("concat", ("a", INPUT), "y", {}, {"axis": 2})),
    "plane": (Node("plane", (INPUT,), "y", {"value": "plane"}),),
    "batch_norm": (Node("batch_norm", (INPUT,), "a", STATISTICS, {"epsilon": 1e-5}), Node("relu", ("a",), "y")),
    "hardswish": (Node("elementwise", (INPUT,), "y", {}, {"function": "hardswish"}),),
    "a function between": (
        Node("elementwise", (INPUT,), "a", {}, {"function": "neg"}),
        Node("max_pool", ("a",), "y", {}, POOL),
    ),
    "product": (Node("arithmetic", (INPUT, INPUT), "y", {}, {"operator": "mul"}),),
    "a sequence": (Node("conv", (INPUT,), "y", {"weight": "w"}, {**ONE, "padding": (0, 1)}),),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_right_to_half_a_step(name: str) -> None:
    generator = np.random.default_rng(0)
    tensors = {
        "plane": generator.standard_normal((3, 6, 4)).astype(np.float32) * 3,
        "w": generator.standard_normal((2, 3, 3)).astype(np.float32),
        **{f"n.{role}": generator.random(3).astype(np.float32) + 0.5 for role in STATISTICS},
    }
    used = {own for node in OPERATIONS[name] for own in node.tensors.values()}
    graph = Graph((3, 6, 4), OPERATIONS[name], {own: array for own, array in tensors.items() if own in used})
    images = torch.randn(40, 3, 6, 4, generator=torch.Generator().manual_seed(0))
    network = quantize(graph, calibrate(graph, [images]))
    given = network.values[INPUT]
    exact = integer_reference.to_integers(images, given) * given.scale
    expected, came = to_module(graph)(exact.float()).detach(), integer_reference.predict(network, images)
    rounded_weights = 0.02 if name in ("a sequence", "batch_norm") else 0.0
    apart = float((came - expected).abs().max()) - rounded_weights * float(expected.abs().max())
    assert apart < 0.51 * network.values["y"].scale
    assert float(expected.abs().max()) > 20 * network.values["y"].scale  # or it would be no test


def test_a_bias_without_weights_is_exact_enough() -> None:
    tensors = {"y.weight": np.array([[0.0], [1e-9]]), "y.bias": np.array([-5.0, 7.0])}
    network = quantize(Graph((1,), (linear(INPUT, output="y"),), tensors), {INPUT: 1.0, "y": 7.0})
    came = integer_reference.predict(network, torch.tensor([[0.3]]))
    assert torch.allclose(came, torch.tensor([[-5.0, 7.0]]), atol=4 * 7 / 32767)


def test_what_has_no_integers_is_said() -> None:
    images = torch.randn(2, 4)
    graph = Graph((4,), (Node("softmax", (INPUT,), "y"),), {})
    with pytest.raises(ModelError, match="no operation `softmax`"):
        quantize(graph, calibrate(graph, [images]))
    for node, said in (
        (Node("arithmetic", (INPUT, INPUT), "y", {}, {"operator": "sub"}), "`arithmetic` with `sub`"),
        (Node("elementwise", (INPUT,), "y", {}, {"function": "log"}), "not finite for every input"),
    ):
        with pytest.raises(ModelError, match=said):
            quantize(Graph((4,), (node,), {}), {INPUT: 1.0, "y": 1.0})
    wide = Graph((70_000,), (Node("linear", (INPUT,), "y", {"weight": "w"}),), {"w": np.ones((1, 70_000))})
    fine = {INPUT: 1.0, "y": 1.0}
    with pytest.raises(ModelError, match="32 bits"):
        quantize(wide_after_sum(wide), {**fine, "a": 1.0, "b": 1.0})
    with pytest.raises(ModelError, match="finite"):
        calibrate(graph, [images * torch.inf])
    with pytest.raises(ModelError, match="finite"):
        calibrate(graph, [])


def wide_after_sum(graph: Graph) -> Graph:
    """With an unsigned value before it."""
    before = (Node("add", (INPUT, INPUT), "a"), Node("relu", ("a",), "b"))
    (last,) = graph.nodes
    return Graph(graph.input_shape, (*before, Node(last.op, ("b",), "y", last.tensors)), graph.tensors)

"""Rows that only add a bias are put off; by hand on networks of a few weights."""

import numpy as np

from hypersparse_runtime import Graph, Node, SparseModel
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.lazy_bias import with_lazy_bias
from hypersparse_runtime.lowering import layers_of
from tests.runtime.networks import computed

OPTIONS = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


def blocks(*biases: tuple[float, float]) -> Graph:
    """y = relu(x + conv(x)) some times over two channels, where conv only ever writes to the first."""
    nodes, tensors, x = [], {}, "input"
    for number, bias in enumerate(biases):
        tensors[f"w{number}"] = np.array([[[[2.0]], [[0.0]]], [[[0.0]], [[0.0]]]], dtype=np.float32)
        tensors[f"b{number}"] = np.array(bias, dtype=np.float32)
        given = {"weight": f"w{number}", "bias": f"b{number}"}
        inner = (Node("relu", (x,), f"r{number}"), Node("conv", (f"r{number}",), f"c{number}", given, OPTIONS))
        nodes += [*inner, Node("add", (x, f"c{number}"), f"s{number}"), Node("relu", (f"s{number}",), f"y{number}")]
        x = f"y{number}"
    return Graph((2, 4, 4), tuple(nodes), tensors)


def test_biases_in_a_row_are_one_maximum() -> None:
    graph = blocks((0.5, 1.0), (0.5, -3.0), (0.5, 0.25))
    layers = with_lazy_bias(without_dead_channels(layers_of(graph))).layers
    computed_rows = [list(layer.rows) for layer in layers if layer.entries is not None and len(layer.entries)]
    assert computed_rows.count([0]) >= 3  # the second channel is left alone until the end
    last = layers[-1]
    assert list(last.rows) == [1]
    assert last.offset is not None
    assert last.floor is not None
    # relu(relu(relu(x + 1) - 3) + 0.25) = max(x - 1.75, 0.25)
    assert (last.offset[1], last.floor[1]) == (-1.75, 0.25)
    images = np.linspace(-4, 4, 64, dtype=np.float32).reshape(2, 2, 4, 4)
    model = SparseModel(graph, engine="hypersparse")
    np.testing.assert_allclose(model(images), computed(graph, images), atol=1e-6)


def test_strided_layers_copy_what_waits_as_it_should_be() -> None:
    graph = blocks((0.5, 1.0), (0.5, -3.0))
    weight = np.ones((1, 2, 1, 1), dtype=np.float32)
    last = Node("conv", (graph.output,), "z", {"weight": "last"}, OPTIONS | {"stride": (2, 2)})
    graph = Graph(graph.input_shape, (*graph.nodes, last), {**graph.tensors, "last": weight})
    layer = with_lazy_bias(without_dead_channels(layers_of(graph))).layers[-1]
    assert layer.lazy_bias is not None
    assert layer.lazy_bias[:, 1].tolist() == [-2.0, 0.0]  # relu(relu(x + 1) - 3) = max(x - 2, 0)
    images = np.linspace(-4, 4, 320, dtype=np.float32).reshape(10, 2, 4, 4)
    model = SparseModel(graph, engine="hypersparse")
    np.testing.assert_allclose(model(images), computed(graph, images), atol=1e-6)
    np.testing.assert_array_equal(np.concatenate([model(image[None]) for image in images]), model(images))


def test_channels_that_nothing_reaches_are_constants() -> None:
    weight = np.zeros((2, 1, 1, 1), dtype=np.float32)
    weight[0] = 1
    nodes = (
        Node("conv", ("input",), "a", {"weight": "w", "bias": "b"}, OPTIONS),
        Node("relu", ("a",), "b"),
        Node("mean", ("b",), "c"),
    )
    graph = Graph((1, 3, 3), nodes, {"w": weight, "b": np.array([0, 7], dtype=np.float32)})
    model = SparseModel(graph, engine="hypersparse")
    np.testing.assert_allclose(model(np.full((1, 1, 3, 3), 2, dtype=np.float32)), [[2, 7]])


def test_dead_channels_are_not_computed() -> None:
    first = np.ones((3, 1, 1, 1), dtype=np.float32)
    second = np.array([1, 0, 1], dtype=np.float32).reshape(1, 3, 1, 1)
    nodes = (
        Node("conv", ("input",), "a", {"weight": "first", "bias": "bias"}, OPTIONS),
        Node("relu", ("a",), "b"),
        Node("conv", ("b",), "c", {"weight": "second"}, OPTIONS),
    )
    first[2] = 0  # always relu(-1): zero
    tensors = {"first": first, "second": second, "bias": np.array([0, 0, -1], dtype=np.float32)}
    network = without_dead_channels(layers_of(Graph((1, 2, 2), nodes, tensors)))
    assert [list(layer.rows) for layer in network.layers] == [[0], [0]]
    assert network.products() == 8

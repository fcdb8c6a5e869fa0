"""Winograd's transform on the columns of kernels: its mathematics, where it is used, and that nobody sees it."""

from functools import partial

import numpy as np
import pytest

from hypersparse_runtime import Graph, Node, SparseModel, sparse_engine, winograd
from hypersparse_runtime.checked_step import Memory
from hypersparse_runtime.graph import INPUT, GraphError
from hypersparse_runtime.kernel_program import Program, write_program
from hypersparse_runtime.kernel_tables import KINDS
from hypersparse_runtime.limits import estimate
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from hypersparse_runtime.program_check import check_program
from hypersparse_runtime.sparse_layers import Entries, Layer
from hypersparse_runtime.winograd import combined, with_winograd
from tests.runtime.networks import check_levels, computed

RNG = np.random.default_rng(0)


def conv_graph(
    sides: tuple[int, int],
    *,
    kernel: tuple[int, int] = (3, 3),
    kept: float = 1.0,
    channels: int = 40,
    **options: object,
) -> Graph:
    """A convolution with a bias, and a ReLU."""
    weight = RNG.normal(size=(channels, channels, *kernel)) * (RNG.random((channels, channels, *kernel)) < kept)
    weight[3], weight[:, 5] = 0, 0  # an output and an input without weights
    padding = (1, kernel[1] // 2)
    whole = {"stride": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1} | options
    arrays = {"w": weight.astype(np.float32), "b": RNG.normal(size=channels).astype(np.float32)}
    node = Node("conv", (INPUT,), "a", {"weight": "w", "bias": "b"}, whole)
    return Graph((channels, *sides), (node, Node("relu", ("a",), "y")), arrays)


def drawn(graph: Graph, count: int) -> np.ndarray:
    return RNG.normal(size=(count, *graph.input_shape)).astype(np.float32)


def kinds_of(graph: Graph) -> list[str]:
    return [layer.kind for layer in with_winograd(layers_of(graph)).layers]


def written(graph: Graph, *, rows: bool, lanes: int) -> Program:
    return write_program(place(with_winograd(layers_of(graph)), rows=rows), lanes, vector=16)


def test_four_rows_come_from_six_products() -> None:
    """One output column, by the matrices of the paper and by hand."""
    rows, taps = RNG.normal(size=6), RNG.normal(size=3)
    zero = np.zeros(3, dtype=int)
    entries = Entries(zero, zero, np.arange(3), zero, taps)
    weights = np.array([part.weight[0] for part in combined(entries)])
    before = np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    )
    after = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
    wanted = [taps @ rows[first : first + 3] for first in range(4)]
    np.testing.assert_allclose(after @ (weights * (before @ rows)), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("taps", "products"),
    [((1, 0, 0), 5), ((0, 1, 0), 4), ((0, 0, 1), 5), ((1, 2, 0), 5), ((1, 0, 2), 6), ((1, 2, 4), 6)],
)
def test_products_with_zero_are_left_out(taps: tuple[int, ...], products: int) -> None:
    y = np.flatnonzero(taps)
    zero = np.zeros_like(y)
    parts = combined(Entries(zero, zero, y, zero, np.array(taps, dtype=float)[y]))
    assert sum(map(len, parts)) == products


@pytest.mark.parametrize("sides", [(4, 16), (6, 16), (16, 16), (7, 32), (12, 48)], ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (3, 1), (3, 5)], ids=str)
def test_every_instruction_set_gives_what_pytorch_gives(
    sides: tuple[int, int], kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_engine, "with_winograd", partial(with_winograd, cost=0))
    graph = conv_graph(sides, kernel=kernel, kept=0.7)
    assert with_winograd(layers_of(graph), cost=0).layers[0].kind == "winograd_input"
    images = drawn(graph, 3)
    check_levels(graph, images, computed(graph, images))


@pytest.mark.parametrize("padding", [0, 2])
def test_other_paddings_and_a_clip(padding: int) -> None:
    graph = conv_graph((9, 16), kept=0.8, padding=(padding, 1))
    graph = Graph(
        graph.input_shape, (graph.nodes[0], Node("clip", ("a",), "y", {}, {"low": -10.0, "high": 20.0})), graph.tensors
    )
    assert "winograd_output" in kinds_of(graph)
    images = drawn(graph, 2)
    check_levels(graph, images, computed(graph, images))


def test_layers_before_and_after_may_be_of_any_kind() -> None:
    """With a stride, a pool, a residual sum and another transformed layer beside it."""
    wide = conv_graph((32, 32), kept=0.9)
    same = dict(wide.nodes[0].options)
    pool = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    given = {"weight": "w", "bias": "b"}
    nodes = (
        *wide.nodes,
        Node("conv", ("y",), "c", given, same),
        Node("add", ("c", "y"), "s"),
        Node("max_pool", ("s",), "p", {}, pool),
        Node("conv", ("p",), "d", given, same),
        Node("relu", ("d",), "e"),
        Node("conv", ("e",), "f", given, same | {"stride": (2, 2)}),
    )
    arrays = {"w": wide.tensors["w"] / np.float32(10), "b": wide.tensors["b"]}
    graph = Graph(wide.input_shape, nodes, arrays)
    assert kinds_of(graph).count("winograd_input") == 2  # those that nothing is added to, without a stride
    images = drawn(graph, 2)
    check_levels(graph, images, computed(graph, images))


def test_it_is_used_where_it_pays_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds_of(conv_graph((16, 16)))[0] == "winograd_input"
    assert kinds_of(conv_graph((16, 16), kept=0.05)) == ["conv"]  # few weights
    assert kinds_of(conv_graph((16, 16), channels=6)) == ["conv"]  # few channels
    assert kinds_of(conv_graph((16, 20))) == ["conv"]
    assert kinds_of(conv_graph((3, 16))) == ["conv"]
    assert kinds_of(conv_graph((16, 16), kernel=(5, 3))) == ["conv"]
    assert kinds_of(conv_graph((16, 16), dilation=(2, 2), padding=(2, 2))) == ["conv"]
    monkeypatch.setattr(winograd, "MOST_FLOATS", 6 * 40 * 4 * 16 - 1)
    assert kinds_of(conv_graph((16, 16))) == ["conv"]


def test_weights_that_are_no_numbers_are_summed_one_by_one() -> None:
    graph = conv_graph((16, 16))
    graph.tensors["w"][0, 0, 0, 0] = np.inf
    assert kinds_of(graph) == ["conv"]


def test_fewer_products_are_made() -> None:
    network = layers_of(conv_graph((16, 16)))
    assert with_winograd(network).products() == network.products() / 2


def test_nan_reaches_only_channels_with_a_weight_for_it() -> None:
    graph = conv_graph((16, 16))
    graph.tensors["w"][:20, 0] = 0
    images = drawn(graph, 1)
    images[0, 0, 7, 7] = np.nan
    found = SparseModel(graph, engine="hypersparse", threads=1)(images)
    assert np.isfinite(found[0, :20]).all()
    assert np.isnan(found[0, 20:, 6:9, 6:9]).all()
    assert np.isfinite(found[0, :, :3]).all()  # tiles that read none of its rows
    assert np.isfinite(found[0, :, 12:]).all()


def test_the_estimate_of_loading_counts_what_is_made_of_weights() -> None:
    plain, transformed = conv_graph((16, 20)), conv_graph((16, 16))
    assert estimate(transformed).entries > 1.4 * estimate(plain).entries


LAYOUTS = {"rows": (True, 1), "padded": (False, 1), "many": (False, 16)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_word_that_leads_outside_is_found(layout: str) -> None:
    rows, lanes = LAYOUTS[layout]
    made = written(conv_graph((16, 16)), rows=rows, lanes=lanes)
    memory = Memory(made.tables, made.workspace_floats, made.image_size, made.image_size)
    for kind in ("winograd_input", "winograd_output"):
        (number,) = np.flatnonzero(made.steps["kind"] == KINDS.index(kind))
        outside = {"input": made.workspace_floats, "output": made.workspace_floats, "channels": len(made.tables)}
        wrong = {"rows": 10**6, "segment_length": 24 * lanes, "fold": 4, "out_fold": 4, "width": 32, **outside}
        wrong |= {"bias": len(made.tables), "clip": len(made.tables)} if kind == "winograd_output" else {}
        for name, value in wrong.items():
            steps = made.steps.copy()
            steps[name][number] = value
            with pytest.raises(GraphError, match="leaves its memory"):
                check_program(steps, memory)


def test_rows_of_the_layers_between_are_all_computed() -> None:
    """Sums without products are zeros that the last step reads."""
    layers: tuple[Layer, ...] = with_winograd(layers_of(conv_graph((16, 16), kept=0.6))).layers
    sums = [layer for layer in layers if layer.kind == "conv"]
    np.testing.assert_array_equal(np.concatenate([layer.rows for layer in sums]), np.arange(6 * 40))

"""The layers of a program are found among its steps."""

import numpy as np

from benchmarks.inference_layers import layer_times
from hypersparse_runtime import Graph, Node, SparseModel

SAME = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


def test_each_layer_has_its_products_and_whether_it_is_transformed() -> None:
    rng = np.random.default_rng(0)
    dense, few = rng.normal(size=(2, 40, 40, 3, 3)).astype(np.float32)
    few[rng.random(few.shape) < 0.9] = 0
    pool = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    nodes = (
        Node("conv", ("input",), "a", {"weight": "dense"}, SAME),
        Node("max_pool", ("a",), "b", {}, pool),
        Node("conv", ("b",), "c", {"weight": "few"}, SAME),
        Node("mean", ("c",), "d"),
        Node("linear", ("d",), "e", {"weight": "last"}),
    )
    last = rng.normal(size=(4, 40)).astype(np.float32)
    graph = Graph((40, 16, 16), nodes, {"dense": dense, "few": few, "last": last})
    times = layer_times(SparseModel(graph, engine="hypersparse", threads=1), rounds=2)
    assert [each.side for each in times] == [16, 8, 1, 0]
    assert [each.transformed for each in times] == [True, False, False, False]
    assert [each.products for each in times] == [dense.size // 2 * 256, np.count_nonzero(few) * 64, last.size, 0]
    assert all(each.microseconds > 0 for each in times)

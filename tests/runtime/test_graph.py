"""Shapes of a network's values, and networks that do not fit together."""

from typing import Any

import numpy as np
import pytest

from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, shapes

CONV = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 1}
POOL = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}


def graph(*nodes: Node, **tensors: Any) -> Graph:
    return Graph((3, 8, 8), nodes, {name: np.zeros(shape, np.float32) for name, shape in tensors.items()})


def test_shapes_by_hand() -> None:
    found = shapes(
        graph(
            Node("conv", (INPUT,), "a", {"weight": "w", "bias": "b"}, CONV),
            Node("max_pool", ("a",), "p", {}, POOL),
            Node("relu", ("p",), "r"),
            Node("add", ("p", "r"), "s"),
            Node("flatten", ("s",), "f"),
            Node("linear", ("f",), "l", {"weight": "m"}),
            w=(5, 3, 3, 3),
            b=(5,),
            m=(4, 20),
        )
    )
    # Height (8 + 2 - 3) // 2 + 1 = 4; width 8 - 5 + 1 = 4: three taps two apart span five.
    assert found == {
        INPUT: (3, 8, 8), "a": (5, 4, 4), "p": (5, 2, 2), "r": (5, 2, 2), "s": (5, 2, 2), "f": (20,), "l": (4,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ((), "at least one operation"),
        ((Node("relu", ("x",), "y"),), "before anything made it"),
        ((Node("relu", (INPUT,), INPUT),), "made twice"),
        ((Node("linear", (INPUT,), "y", {"weight": "gone"}),), "not there"),
        ((Node("linear", (INPUT,), "y", {"weight": "w"}),), "does not fit"),
        ((Node("linear", (INPUT,), "y"),), "no array `weight`"),
        ((Node("conv", (INPUT,), "y", {"weight": "w"}, {**CONV, "stride": (0, 1)}),), "at least 1"),
        ((Node("conv", (INPUT,), "y", {"weight": "w"}, {**CONV, "groups": 0}),), "`groups`"),
        ((Node("conv", (INPUT,), "y", {"weight": "w", "bias": "w"}, CONV),), "`bias`"),
        ((Node("max_pool", (INPUT,), "y", {}, {**POOL, "kernel": (9, 9)}),), "an empty shape"),
        ((Node("max_pool", (INPUT,), "y", {}, {**POOL, "padding": (2, 0)}),), "half its kernel"),
        ((Node("mean", (INPUT,), "m"), Node("add", ("m", INPUT), "y")), "two shapes"),
        ((Node("add", (INPUT,), "y"),), "count of inputs"),
        ((Node("plane", (INPUT,), "y", {"value": "w"}),), "plane"),
        ((Node("concat", (), "y"),), "count of inputs"),
        ((Node("softmax", (INPUT,), "y"),), "no vector"),
        (
            (
                Node("aten.sum.default", (INPUT,), "n", {}, {"arguments": [], "keywords": {}, "shape": ()}),
                Node("flatten", ("n",), "y"),
            ),
            "one number, not an array",
        ),
        (
            (Node("flatten", (INPUT,), "f"), Node("log_softmax", ("f",), "s"), Node("relu", ("s",), "y")),
            "`s` is a log_softmax, which can only be the last operation",
        ),
        ((Node("mean", (INPUT,), "m"), Node("concat", (INPUT, "m"), "y")), "other heights and widths"),
        ((Node("max_pool", (INPUT,), "m", {}, POOL), Node("concat", (INPUT, "m"), "y")), "other heights and widths"),
        ((Node("clip", (INPUT,), "y"),), "needs `low`, `high` or both"),
        ((Node("clip", (INPUT,), "y", {}, {"low": 0}),), "finite numbers of float32; got {'low': 0}"),
        ((Node("clip", (INPUT,), "y", {}, {"low": 0.0, "high": float("nan")}),), "finite numbers"),
        ((Node("clip", (INPUT,), "y", {}, {"high": 1e39}),), "finite numbers"),
        ((Node("clip", (INPUT,), "y", {}, {"low": 1.0, "high": 0.5}),), "the lower is the larger"),
        ((Node("clip", (INPUT, INPUT), "y", {}, {"low": 0.0}),), "count of inputs"),
        ((Node("batch_norm", (INPUT,), "y", dict.fromkeys(("weight", "bias", "mean", "variance"), "v")),), "epsilon"),
    ],
)
def test_what_does_not_fit_is_said(nodes: tuple[Node, ...], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        shapes(graph(*nodes, w=(5, 3, 3, 3), v=(3,)))

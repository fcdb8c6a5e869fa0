"""Operations of PyTorch that a file may name: each computes a tensor and does nothing else, whatever its arguments."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from hypersparse.errors import ModelError
from hypersparse.export import aten_ops, dry_run
from hypersparse.export.aten_checks import FIXED, LEAST
from hypersparse.export.graph_module import to_module
from hypersparse_runtime.graph import INPUT, Graph, Node

from .aten_examples import EXAMPLES, STATISTICS, Example, X

MAY_BE_NEGATIVE = (
    *("dim", "dim0", "dim1", "dims", "start_dim", "end_dim", "source", "destination", "index", "start", "end"),
    *("shifts", "pad", "sizes", "size", "shape"),
)


def example(name: str) -> Example:
    return next(each for each in EXAMPLES if each.op == f"aten.{name}")


def refuse(graph: Graph, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence) as raised:
        to_module(graph)
    assert "\n" not in str(raised.value)


def test_every_argument_of_every_operation_is_a_tensor_or_bounded() -> None:
    for each in EXAMPLES:
        _, name, overload = each.op.split(".")
        schema = getattr(getattr(torch.ops.aten, name), overload)._schema
        assert not schema.is_mutable
        for argument in schema.arguments:
            kind = str(argument.type).removeprefix("Optional[").removeprefix("List[").rstrip("]")
            assert kind in {"Tensor", "number", "float", "bool", "str", "int", "Device"}
            if kind in {"int", "Device"} and argument.name != "dtype":  # a type comes from a table of ours
                assert argument.name in {*LEAST, *FIXED, *MAY_BE_NEGATIVE}, f"{each.op}: {argument.name}"


@pytest.mark.parametrize("each", EXAMPLES, ids=lambda each: each.op)
def test_an_operation_gives_what_its_dry_run_says_and_changes_nothing(each: Example) -> None:
    x = torch.linspace(0.1, 0.9, prod(each.shape)).reshape(1, *each.shape)
    given, random = x.clone(), torch.get_rng_state()
    module = to_module(each.graph())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.no_grad():
        outputs = module(x)
        assert torch.equal(outputs, module(x))
    assert torch.equal(x, given)
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_making_and_running_a_module_draws_no_random_number() -> None:
    arrays = {"a.weight": np.ones((4, 3, 1, 1), np.float32), "b.weight": np.ones((2, 4), np.float32)}
    where = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    nodes = (
        Node("conv", (INPUT,), "y", {"weight": "a.weight"}, where),
        Node("mean", ("y",), "m"),
        Node("linear", ("m",), "z", {"weight": "b.weight"}),
    )
    random = torch.get_rng_state()
    outputs = to_module(Graph((3, 2, 2), nodes, arrays))(torch.ones(1, 3, 2, 2))
    assert outputs.tolist() == [[12.0, 12.0]]
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize("length", [1, 3, 5])
@pytest.mark.parametrize("name", ["_native_batch_norm_legit_no_training.default", "batch_norm.default"])
@pytest.mark.parametrize("role", ["w", "b", "m", "v"])
def test_a_norm_does_not_read_beyond_its_arrays(name: str, role: str, length: int) -> None:
    wrong = replace(example(name).graph(), tensors={})
    arrays = {
        f"{each}.weight": np.ones((length,) if each == role else shape, np.float32)
        for each, shape in STATISTICS.items()
    }
    refuse(replace(wrong, tensors=arrays), r"must have the shape \(4,\) and be torch.float32; got")


@pytest.mark.parametrize(
    ("name", "place", "value", "sentence"),
    [
        ("batch_norm.default", 5, True, "`training` of .* must be False; got True"),
        ("instance_norm.default", 5, False, "either a mean and a variance or those of its input"),
        ("native_group_norm.default", 4, 3, "other sizes than its input"),
        ("native_group_norm.default", 5, 2**24, "other sizes than its input"),
        ("group_norm.default", 1, 3, "4 channels into 3 groups"),
        ("native_layer_norm.default", 1, [6], "needs arrays of the shape"),
        ("pixel_shuffle.default", 1, 0, "`upscale_factor` .* a whole number from 1"),
        ("max_pool2d.default", 2, [0, 1], "`stride` .* from 1 to .*; got 0"),
        ("conv2d.default", 3, [0, 0], "`stride` .* got 0"),
        ("conv2d.default", 6, 0, "`groups` .* got 0"),
        ("avg_pool2d.default", 1, [2**24, 2**24], "must be|cannot be run"),
        ("max_pool2d.default", 4, [2**40, 1], "`dilation`"),
        ("upsample_nearest2d.default", 2, 1e-300, "cannot scale 6 to 12 by 1e-300"),
        ("upsample_bilinear2d.default", 3, 3.0, "cannot scale 6 to 12 by 3.0"),
        ("upsample_bilinear2d.vec", 3, [1e9, 1.0], "cannot scale|elements"),
        ("upsample_nearest2d.default", 1, [2**20, 2**20], "cannot scale|elements"),
        ("expand.default", 1, [-1, 4, 2**22, 6], "elements, and"),
        ("constant_pad_nd.default", 1, [2**23, 2**23], "elements, and"),
        ("chunk.default", 1, 2**40, "`chunks`"),
        ("split.Tensor", 1, 0, "`split_size` .* got 0"),
        ("_softmax.default", 2, True, "`half_to_float` .* must be False"),
        ("prelu.default", 0, {"tensor": "w"}, "needs one slope|should give"),
    ],
)
def test_arguments_that_no_layer_of_torchs_has_are_refused(name: str, place: int, value: Any, sentence: str) -> None:
    graph = example(name).graph()
    first = graph.nodes[0]
    arguments = [value if number == place else each for number, each in enumerate(first.options["arguments"])]
    node = replace(first, options={**first.options, "arguments": arguments})
    changed = replace(graph, nodes=(node, *graph.nodes[1:]))
    refuse(changed, sentence)


@pytest.mark.parametrize(
    ("name", "keywords", "sentence"),
    [
        ("scaled_dot_product_attention.default", {"dropout_p": 0.5}, "`dropout_p` .* must be 0; got 0.5"),
        ("_to_copy.default", {"device": "meta"}, "`device` .* must be None"),
        ("_to_copy.default", {"pin_memory": True}, "`pin_memory`"),
        ("relu.default", {"inplace": True}, "takes self; got 1 and inplace"),
        ("_to_copy.default", {"dtype": {"dtype": "complex64"}}, "cannot be run as it was written down"),
    ],
)
def test_keywords_that_would_do_more_are_refused(name: str, keywords: dict[str, Any], sentence: str) -> None:
    graph = example(name).graph()
    first = graph.nodes[0]
    refuse(replace(graph, nodes=(replace(first, options={**first.options, "keywords": keywords}),)), sentence)


@pytest.mark.parametrize(
    "op", ["aten.mul.left_t", "aten.view.dtype", "aten.add.int", "aten.einsum.sublist", "aten.add"]
)
def test_overloads_that_compute_no_tensor_of_numbers_are_refused(op: str) -> None:
    options = {"arguments": [X, 2], "keywords": {}, "shape": (3,)}
    refuse(Graph((3,), (Node(op, (INPUT,), "y", {}, options),), {}), f"operation.* `{op}`")


def called(op: str, *arguments: Any, shape: Any = (4,), source: str = INPUT, output: str = "y") -> Node:
    return Node(op, (source,), output, {}, {"arguments": list(arguments), "keywords": {}, "shape": shape})


def test_pieces_work_and_axes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(Graph((2048,), (called("aten.split.Tensor", X, 1, 1, shape=None),), {}), "gives 2048 pieces, and 1024")
    refuse(Graph((4,), (called("aten.split.Tensor", X, 1, 1, shape=None),), {}), "a network gives one")
    axes = [
        called(
            "aten.unsqueeze.default",
            X,
            -1,
            shape=(4, *[1] * at),
            source=f"v{at - 1}" if at > 1 else INPUT,
            output=f"v{at}",
        )
        for at in range(1, 9)
    ]
    refuse(Graph((4,), tuple(axes), {}), "10 axes, and 9 are the most")
    matrices = called("aten.matmul.default", X, X, shape=(64, 64))
    to_module(Graph((64, 64), (matrices,), {}))
    monkeypatch.setattr(dry_run, "MOST_WORK", 64**3 - 1)
    refuse(Graph((64, 64), (matrices,), {}), "takes 262144 multiplications")


def test_a_product_that_copies_a_matrix_for_every_other_is_refused() -> None:
    first = called("aten.reshape.default", X, [4096, 1, 1, 512], shape=(1, 1, 512), output="a")
    second = called("aten.reshape.default", X, [1, 4096, 512, 1], shape=(4096, 512, 1), output="b")
    both = Node(
        "aten.matmul.default", ("a", "b"), "y", {},
        {"arguments": [{"input": 0}, {"input": 1}], "keywords": {}, "shape": (4096, 1, 1)},
    )  # fmt: skip
    refuse(Graph((4096, 512), (first, second, both), {}), "elements for itself")


def test_only_what_gives_several_values_can_be_picked_from() -> None:
    refuse(Graph((4,), (called("getitem", X, 0),), {}), "picks one of several values")


def test_the_whole_networks_arguments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "MOST_ARGUMENTS", 10)
    refuse(Graph((4,), (called("aten.cat.default", [X] * 12, 1, shape=(48,)),), {}), "arguments, and 10 are the most")
    assert aten_ops.count_arguments(called("aten.cat.default", [X] * 12, 1)) == 27


def test_operations_are_counted() -> None:
    nodes = [called("aten.silu.default", X, output=f"v{number}") for number in range(2049)]
    refuse(Graph((4,), tuple(nodes), {}), "2049 operations of PyTorch")


def test_operations_that_pytorch_makes_of_many_count_as_several() -> None:
    """Of 2,048 of them that took 7 s."""
    divided = [called("aten.div.Tensor_mode", X, X, output=f"v{each}") for each in range(257)]
    refuse(Graph((4,), tuple(divided), {}), "2056 operations of PyTorch, slow ones counted several times; 2048 are")


def test_a_mean_over_the_batch_is_no_value_for_a_layer() -> None:
    mean = called("aten.mean.dim", X, [1, 0], output="m", shape=())
    refuse(Graph((4,), (mean, Node("flatten", ("m",), "f")), {}), "one number, not an array of them")

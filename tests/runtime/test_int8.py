"""Layers in int8: sums are those of integers, where they are used, and what they do to outputs."""

from functools import partial
from math import inf
from pathlib import Path

import numpy as np
import pytest

from hypersparse_runtime import Graph, Node, SparseModel, sparse_engine
from hypersparse_runtime.__main__ import main
from hypersparse_runtime.checked_step import Memory
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.file import pack
from hypersparse_runtime.graph import INPUT, GraphError
from hypersparse_runtime.int8 import Scales, count_int8, packed_quads, with_int8
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.kernel_program import Program, write_program
from hypersparse_runtime.kernel_tables import KINDS
from hypersparse_runtime.lazy_bias import with_lazy_bias
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from hypersparse_runtime.program_check import check_program
from hypersparse_runtime.row_quantization import quantize_rows
from hypersparse_runtime.sparse_engine import Runner
from hypersparse_runtime.sparse_layers import Entries, Network
from hypersparse_runtime.tuning import prepare_
from hypersparse_runtime.winograd import with_winograd
from tests.runtime.networks import computed, largest
from tests.runtime.test_winograd import conv_graph

RNG = np.random.default_rng(0)
LEVELS = ("avx2", "avx512")
needs_vnni = pytest.mark.skipif(not load_kernel().has_int8, reason="this CPU has no AVX-512 VNNI")
always = partial(with_int8, cost=0, worth=inf)


def behind_relu(graph: Graph) -> Graph:
    """The same network, with a ReLU of its input first."""
    first = Node("relu", (INPUT,), "positive")
    nodes = (
        Node(
            each.op,
            tuple("positive" if name == INPUT else name for name in each.inputs),
            each.output,
            each.tensors,
            each.options,
        )
        for each in graph.nodes
    )
    return Graph(graph.input_shape, (first, *nodes), graph.tensors)


def drawn(graph: Graph, count: int) -> np.ndarray:
    return RNG.normal(size=(count, *graph.input_shape)).astype(np.float32)


def in_int8(graph: Graph) -> Network:
    return with_winograd(always(with_lazy_bias(without_dead_channels(layers_of(graph)))))


def written(graph: Graph, *, folded: bool = True) -> Program:
    placed = place(in_int8(graph), rows=True, folded=folded)
    assert count_int8(placed)
    return write_program(placed, 1, vector=16)


def outputs_of(program: Program, images: np.ndarray) -> np.ndarray:
    kernel = load_kernel()
    prepare_(program, kernel, LEVELS)
    outputs = np.zeros((len(images), *program.output_shape), np.float32)
    Runner(program, kernel).run(images.ctypes.data, outputs.ctypes.data, len(images))
    return outputs


def in_integers(graph: Graph, image: np.ndarray) -> np.ndarray:
    """A convolution behind a ReLU: rounded values and weights, exact sums, and one rounding of each output."""
    positive = np.maximum(image, 0)
    read = graph.tensors["w"].any(axis=(0, 2, 3))
    scale = positive[read].max() / np.float32(255)
    steps = np.rint(positive * (np.float32(1) / scale)).astype(np.int64)
    weight = graph.tensors["w"].astype(np.float64)
    most = np.abs(weight).max(axis=(1, 2, 3))
    scales = np.where(most > 0, most / 127, 1)
    rounded = np.rint(weight / scales[:, None, None, None])
    tensors = {"w": rounded, "b": np.zeros(len(rounded))}
    sums = computed(Graph(graph.input_shape, graph.nodes, tensors), steps[None].astype(np.float64))[0]
    assert np.abs(sums).max() > 2**15  # 16 bits would not hold them
    outputs: np.ndarray = sums.astype(np.float32) * (scale * scales.astype(np.float32))[:, None, None]
    return outputs


@needs_vnni
@pytest.mark.parametrize("sides", [(8, 8), (7, 6), (16, 16), (5, 12), (32, 32), (9, 48), (3, 128)], ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (3, 1), (1, 3), (5, 3)], ids=str)
@pytest.mark.parametrize("folded", [True, False])
def test_sums_are_those_of_integers(sides: tuple[int, int], kernel: tuple[int, int], folded: bool) -> None:
    """Every bit, for whole and folded rows."""
    padding = (kernel[0] // 2, kernel[1] // 2)
    check_bits(conv_graph(sides, kernel=kernel, kept=0.4, channels=30, padding=padding), folded=folded)


@needs_vnni
def test_sums_of_blocks_of_channels_are_those_of_integers() -> None:
    program = check_bits(conv_graph((8, 8), kept=0.4, channels=300), folded=True)
    assert program.steps["blocks"][program.steps["kind"] == KINDS.index("conv_int8")] > 1


def check_bits(graph: Graph, *, folded: bool) -> Program:
    graph = behind_relu(Graph(graph.input_shape, graph.nodes[:1], graph.tensors))
    graph.tensors["b"][:] = 0
    images = drawn(graph, 2)
    program = written(graph, folded=folded)
    for image, outputs in zip(images, outputs_of(program, images), strict=True):
        np.testing.assert_array_equal(outputs, in_integers(graph, image))
    return program


def residual_graph() -> Graph:
    """Layers with all that is added to sums, a pool, a stride, channels without weights, and a shared input."""
    wide = conv_graph((16, 16), kept=0.3, channels=30)
    same, given = dict(wide.nodes[0].options), {"weight": "w", "bias": "b"}
    nodes = (
        *wide.nodes,
        Node("conv", ("y",), "c", given, same),
        Node("add", ("c", "y"), "s"),
        Node("relu", ("s",), "r"),
        Node("conv", ("r",), "d", given, same),
        Node("clip", ("d",), "e", {}, {"low": 0.0, "high": 2.0}),
        Node("conv", ("e",), "f", given, same),
        Node("add", ("f", "r"), "g"),
        Node("relu", ("g",), "h"),
        Node("max_pool", ("h",), "p", {}, {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}),
        Node("conv", ("p",), "i", given, same),
        Node("relu", ("i",), "j"),
        Node("conv", ("j",), "k", given, same | {"stride": (2, 2)}),
        Node("mean", ("k",), "m"),
    )
    arrays = {"w": wide.tensors["w"] / np.float32(8), "b": wide.tensors["b"]}
    return Graph(wide.input_shape, nodes, arrays)


@needs_vnni
@pytest.mark.parametrize("overlaid", [True, False])
def test_outputs_of_whole_networks_are_close(overlaid: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypersparse_runtime.memory_plan.MIN_OVERLAID", 0 if overlaid else 2**40)
    graph = residual_graph()
    layers = [layer for layer in in_int8(graph).layers if isinstance(layer.work, Scales)]
    assert len(layers) == 4  # not the first, whose input is negative too, and not that with a stride
    images = drawn(graph, 4)
    found, wanted = outputs_of(written(graph), images), computed(graph, images)
    assert 0 < np.abs(found - wanted).max() <= 0.02 * largest(graph, images)


@needs_vnni
def test_a_model_says_how_many_layers_are_in_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_engine, "WORTH", inf)
    monkeypatch.setattr(sparse_engine, "with_int8", always)
    graph = residual_graph()
    images = drawn(graph, 3)
    plain, model = (SparseModel(graph, engine="hypersparse", int8=int8) for int8 in (False, True))
    assert plain.int8_layers == 0
    assert model.int8_layers == 4
    np.testing.assert_array_equal(model(images), np.concatenate([model(image[None]) for image in images]))
    assert 0 < np.abs(model(images) - plain(images)).max() <= 0.02 * largest(graph, images)


@needs_vnni
@pytest.mark.parametrize(("seconds", "layers"), [((1.0, 0.96), 0), ((1.0, 0.9), 4)])
def test_it_is_left_out_where_it_is_not_faster(
    seconds: tuple[float, float], layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_engine, "with_int8", always)
    monkeypatch.setattr(sparse_engine, "measured", lambda *runners: list(seconds)[: len(runners)])
    assert SparseModel(residual_graph(), engine="hypersparse", int8=True).int8_layers == layers


def test_other_cpus_and_instruction_sets_compute_in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_engine, "WORTH", inf)
    for instructions in load_kernel().levels[:-1]:
        model = SparseModel(residual_graph(), engine="hypersparse", instructions=instructions, int8=True)
        assert model.int8_layers == 0
    monkeypatch.setattr(load_kernel(), "has_int8", False)
    assert SparseModel(residual_graph(), engine="hypersparse", int8=True).int8_layers == 0


def count_of(graph: Graph) -> int:
    return sum(isinstance(layer.work, Scales) for layer in in_int8(graph).layers)


def test_it_is_used_where_it_fits() -> None:
    fitting = behind_relu(conv_graph((8, 8), kept=0.5))
    assert count_of(fitting) == 1
    assert count_of(conv_graph((8, 8), kept=0.5)) == 0  # of negative inputs
    assert count_of(behind_relu(conv_graph((8, 4), kept=0.5))) == 0
    assert count_of(behind_relu(conv_graph((2, 129), channels=6))) == 0
    assert count_of(behind_relu(conv_graph((8, 8), kernel=(3, 5)))) == 0  # loads are shared by three distances
    assert count_of(behind_relu(conv_graph((8, 8), stride=(2, 2)))) == 0
    assert count_of(behind_relu(conv_graph((8, 8), padding=(0, 1)))) == 0
    fitting.tensors["w"][0, 0, 0, 0] = np.nan
    assert count_of(fitting) == 0


def test_it_is_used_where_it_pays() -> None:
    def count(kept: float, channels: int) -> int:
        network = without_dead_channels(layers_of(behind_relu(conv_graph((16, 16), kept=kept, channels=channels))))
        return sum(isinstance(layer.work, Scales) for layer in with_int8(network).layers)

    assert count(0.5, 64) == 1
    assert count(0.01, 64) == 0  # a quad has one weight
    assert count(0.2, 6) == 0  # rounding takes longer than the products


def test_sums_beyond_32_bits_are_refused() -> None:
    convolution = behind_relu(conv_graph((8, 8)))
    arrays = {"w": np.ones((1, 66_400 // 9, 3, 3), np.float32), "b": np.zeros(1, np.float32)}
    graph = Graph((66_400 // 9, 8, 8), convolution.nodes, arrays)
    assert count_of(graph) == 0
    graph.tensors["w"][:, 10:] *= 0.9
    assert count_of(graph) == 1


def test_weights_of_int8_files_keep_their_steps() -> None:
    steps, scales = quantize_rows(RNG.normal(size=(20, 90)))
    row, channel = np.nonzero(steps)
    zero = np.zeros_like(row)
    norm = RNG.uniform(0.1, 3, size=20)  # as of a folded batch norm
    weight = steps[row, channel] * scales.astype(np.float64)[row] * norm[row]
    quads, found, _ = packed_quads(Entries(row, channel, zero, zero, weight), channel, 20)
    words = np.zeros((20, 23), np.int32)
    words[quads.row, quads.channel] = quads.weight
    np.testing.assert_array_equal(words.view(np.int8)[:, :90], steps)
    np.testing.assert_allclose(found, scales * norm, rtol=1e-12)


@needs_vnni
def test_zeros_and_tiny_numbers_leave_the_bias() -> None:
    graph = behind_relu(conv_graph((8, 8), kept=0.5))
    program = written(graph)
    for factor in (0, 1e-38, 1e-42):
        found = outputs_of(program, drawn(graph, 1) * np.float32(factor))
        wanted = np.maximum(graph.tensors["b"], 0)[:, None, None]
        np.testing.assert_allclose(found[0], np.broadcast_to(wanted, found[0].shape), atol=1e-6)


@needs_vnni
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_number_that_is_not_finite_makes_all_outputs_so(value: float) -> None:
    graph = behind_relu(conv_graph((8, 8), kept=0.5))
    images = drawn(graph, 1)
    images[0, 7, 3, 3] = value
    found = outputs_of(written(graph), images)[0]
    computed_rows = np.delete(found, 3, axis=0)  # row 3 has no weights
    assert np.isnan(computed_rows).all()


@needs_vnni
def test_a_word_that_leads_outside_is_found() -> None:
    made = written(behind_relu(conv_graph((8, 8), kept=0.5)))
    size = int(np.prod(made.output_shape))
    memory = Memory(made.tables, made.workspace_floats, made.image_size, size)
    check_program(made.steps, memory)
    floats, words = made.workspace_floats, len(made.tables)
    wrong = {
        "largest": {"input": floats, "output": floats, "channels": words, "blocks": 10**6, "lanes": 2},
        "quantize": {"input": floats, "output": floats, "channels": words, "rows": 10**6, "kernel_x": floats},
        "conv_int8": {"input": floats, "output": floats, "starts": words, "kernel_x": floats, "kernel_y": words},
    }
    wrong["largest"] |= {"segment_length": 10**6}
    wrong["quantize"] |= {"segment_length": 24, "lanes": 2}
    wrong["conv_int8"] |= {"groups": 4, "lanes": 2, "blocks": 100}
    for kind, changes in wrong.items():
        (number,) = np.flatnonzero(made.steps["kind"] == KINDS.index(kind))
        for name, value in changes.items():
            for bad in (value, -2):
                steps = made.steps.copy()
                steps[name][number] = bad
                with pytest.raises(GraphError, match="leaves its memory"):
                    check_program(steps, memory)


@needs_vnni
def test_the_command_counts_the_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_engine, "with_int8", always)
    file = tmp_path / "network.hsp"
    file.write_bytes(pack(residual_graph()))
    for worth, named in ((inf, "4 of 6 layers in int8"), (0, "0 of 6 layers in int8")):
        monkeypatch.setattr(sparse_engine, "WORTH", worth)
        assert main(["--int8", str(file)]) == 0
        assert named in capsys.readouterr().out
    assert main([str(file)]) == 0
    assert "int8" not in capsys.readouterr().out

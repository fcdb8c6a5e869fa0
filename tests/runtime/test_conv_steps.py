"""Convolutions on planes of every kind: rows of few and many weights, vectors of several rows or of parts of one."""

import numpy as np
import pytest
import torch
from torch import nn

from hypersparse.export.trace import trace
from hypersparse_runtime import Graph, Node, SparseModel, tuning
from hypersparse_runtime.conv_steps import FEW, FEW_IN_SMALL_PLANES
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.kernel_program import write_program
from hypersparse_runtime.kernel_tables import KINDS
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from hypersparse_runtime.shared_loads import CHANNELS, PATTERN_ORDER, blocks_of, ranks_of
from hypersparse_runtime.sparse_layers import Entries
from tests.runtime.networks import check_levels, computed

LEVELS = load_kernel().levels
PLANES = [
    (1, 1),
    (2, 2),
    (3, 5),
    (4, 4),
    (7, 7),
    (8, 8),
    (8, 3),
    (5, 16),
    (12, 12),
    (16, 16),
    (6, 28),
    (4, 32),
    (5, 64),
    (3, 80),
]


def conv_graph(sides: tuple[int, int], weight: np.ndarray, *, padding: int | tuple[int, int] = 1) -> Graph:
    sides_padded = padding if isinstance(padding, tuple) else (padding, padding)
    options = {"stride": (1, 1), "padding": sides_padded, "dilation": (1, 1), "groups": 1}
    node = Node("conv", ("input",), "a", {"weight": "w", "bias": "b"}, options)
    bias = np.linspace(-1, 1, len(weight), dtype=np.float32)
    return Graph((weight.shape[1], *sides), (node, Node("relu", ("a",), "y")), {"w": weight, "b": bias})


def mixed_weight(channels: int, *, kernel: int = 3, rows: int = 24) -> np.ndarray:
    """From rows without any weight to full ones."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(rows, channels, kernel, kernel))
    kept = np.linspace(0, 1, rows).reshape(-1, 1, 1, 1) ** 2
    return (weight * (rng.random(weight.shape) < kept)).astype(np.float32)


def convolved(graph: Graph, images: np.ndarray) -> np.ndarray:
    given = (torch.from_numpy(part).double() for part in (images, graph.tensors["w"], graph.tensors["b"]))
    return torch.nn.functional.conv2d(*given, padding=graph.nodes[0].options["padding"]).relu().numpy()


@pytest.mark.parametrize("sides", PLANES, ids=str)
def test_every_plane_and_instruction_set_gives_what_pytorch_gives(sides: tuple[int, int]) -> None:
    graph = conv_graph(sides, mixed_weight(6))
    images = np.random.default_rng(1).normal(size=(9, 6, *sides)).astype(np.float32)
    check_levels(graph, images, convolved(graph, images))


@pytest.mark.parametrize(("kernel", "padding"), [(3, 0), (5, 2), (5, 4)])
def test_small_planes_with_inputs_of_another_size_and_far_taps(kernel: int, padding: int) -> None:
    graph = conv_graph((8, 8), mixed_weight(4, kernel=kernel), padding=padding)
    images = np.random.default_rng(1).normal(size=(2, 4, 8, 8)).astype(np.float32)
    wanted = convolved(graph, images)
    for level in LEVELS:
        found = SparseModel(graph, engine="hypersparse", instructions=level)(images)
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def kinds_of(weight: np.ndarray, side: int, *, vector: int) -> list[str]:
    placed = place(layers_of(conv_graph((side, side), weight)), rows=True, folded=vector == 16)
    kinds = [KINDS[kind] for kind in write_program(placed, 1, vector=vector).steps["kind"]]
    return [kind for kind in kinds if kind not in ("pack", "unpack")]


def test_few_and_many_weights_are_summed_in_different_ways() -> None:
    few, many = np.zeros((2, 9, 3, 3), dtype=np.float32), np.ones((2, 9, 3, 3), dtype=np.float32)
    few[:, 0] = 1  # nine
    assert FEW < 9 <= FEW_IN_SMALL_PLANES < many[0].size
    both = np.concatenate([few, many])
    assert kinds_of(both, 4, vector=16) == ["conv_few_taps", "conv_small_planes"]
    assert kinds_of(both, 8, vector=16) == ["repeat_rows", "conv_few_taps", "conv_shared_loads"]
    assert kinds_of(both, 8, vector=8) == ["conv_few_taps", "conv"]
    assert kinds_of(few, 8, vector=16) == ["repeat_rows", "conv_few_taps"]
    few[:, :, ::2] = 0  # no tap up or down
    assert kinds_of(few, 8, vector=16) == ["conv_few_taps"]
    assert kinds_of(both, 16, vector=16) == ["conv_shared_loads"]
    assert kinds_of(both, 16, vector=8) == ["conv"]


def test_patterns_are_what_a_row_of_a_kernel_has() -> None:
    kept = np.random.default_rng(0).random((6, 40, 3, 3)) < 0.3
    row, channel, y, x = np.nonzero(kept)
    entries = Entries(row, channel, y - 1, x - 1, np.ones(len(row)))
    ranks = ranks_of(entries, (x - 1) % 3)  # groups: none, right, left
    patterns = (kept * np.array([4, 1, 2])).sum(axis=3)[row, channel, y]
    np.testing.assert_array_equal(np.array(PATTERN_ORDER)[ranks], patterns)


def test_many_channels_are_summed_in_blocks_of_few() -> None:
    full = np.indices((10, 3 * CHANNELS, 3, 3)).reshape(4, -1)
    entries = Entries(full[0], full[1], full[2] - 1, full[3] - 1, np.ones(len(full[0])))
    blocks = blocks_of(entries)
    assert blocks.max() == 2
    np.testing.assert_array_equal(blocks, entries.channel // CHANNELS)
    few = entries.where(entries.channel % 4 == 0)  # loops would be too short
    assert blocks_of(few).max() == 0


@pytest.mark.parametrize(("rows", "sides"), [(5, (16, 16)), (19, (8, 8)), (9, (4, 32))])
def test_sums_of_blocks_are_whole(rows: int, sides: tuple[int, int]) -> None:
    """With as many rows as are summed together, fewer and more."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(rows, 2 * CHANNELS, 3, 3)).astype(np.float32)
    graph = conv_graph(sides, weight * (rng.random(weight.shape) < 0.9))
    images = rng.normal(size=(2, 2 * CHANNELS, *sides)).astype(np.float32)
    program = write_program(place(layers_of(graph), rows=True), 1, vector=16)
    assert program.steps["blocks"].max() == 2
    check_levels(graph, images, convolved(graph, images))


@pytest.mark.parametrize("kernel", [(5, 3), (4, 2), (1, 3), (7, 3)])
@pytest.mark.parametrize("sides", [(8, 8), (7, 7), (11, 6), (9, 16)])
def test_kernels_of_every_height_share_loads(sides: tuple[int, int], kernel: tuple[int, int]) -> None:
    """On folded rows taps reach beyond the middle of the plane, and beyond its edges."""
    rng = np.random.default_rng(0)
    weight = (rng.normal(size=(5, 12, *kernel)) * (rng.random((5, 12, *kernel)) < 0.7)).astype(np.float32)
    graph = conv_graph(sides, weight, padding=(kernel[0] // 2, kernel[1] // 2))
    images = rng.normal(size=(2, 12, *sides)).astype(np.float32)
    check_levels(graph, images, convolved(graph, images))


@pytest.mark.parametrize("side", [8, 16, 32])
@pytest.mark.parametrize(("kernel", "dilation"), [(7, 3), (5, 5), (3, 2)])
def test_the_last_of_a_steps_variants_is_right_too(
    side: int, kernel: int, dilation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which one is fastest, with the widest vectors or narrower ones, is found by measuring."""
    monkeypatch.setattr(tuning, "_chosen", lambda variants, _: len(variants) - 1)
    torch.manual_seed(0)
    module = nn.Conv2d(4, 4, kernel, padding=kernel // 2 * dilation, dilation=dilation)
    graph = trace(module, (4, side, side))
    images = np.random.default_rng(0).normal(size=(2, 4, side, side)).astype(np.float32)
    wanted = computed(graph, images)
    model = SparseModel(graph, engine="hypersparse", threads=1)
    found = np.concatenate([model(image[None]) for image in images])
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()

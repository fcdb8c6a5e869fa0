"""Planes of 5 to 8 columns, whose rows are folded: every operation finds them, at any height."""

import numpy as np
import pytest
import torch
from torch import nn

from hypersparse.export.trace import trace
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from tests.runtime.networks import check_levels, computed, sparse_

SIDES = [(16, 16), (14, 14), (15, 16), (6, 13), (31, 16), (2, 16), (16, 10)]


def network(before: str, after: str, *, height: int = 3) -> nn.Module:
    """A convolution on planes of half the width, after and before what is named."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 6, 3, padding=1, stride=2 if before == "stride" else 1)
    middle = nn.Conv2d(6, 8, (height, 3), padding=(height // 2, 1))
    ends: dict[str, list[nn.Module]] = {
        "pool": [nn.MaxPool2d(2)],
        "wide pool": [nn.MaxPool2d(3, 2, 1)],
        "stride": [nn.Conv2d(8, 5, 3, padding=1, stride=2)],
        "mean": [nn.AdaptiveAvgPool2d(1), nn.Flatten()],
        "linear": [nn.Flatten(), nn.LazyLinear(4)],
    }
    pool = [nn.MaxPool2d(2)] if before == "pool" else []
    return nn.Sequential(first, nn.ReLU(), *pool, middle, nn.ReLU(), *ends.get(after, []))


def check(module: nn.Module, sides: tuple[int, int]) -> None:
    module(torch.zeros(2, 3, *sides))  # gives the linear layer its size
    graph = trace(sparse_(module.eval(), 0.2), (3, *sides))
    assert any(value.fold for value in place(layers_of(graph), rows=True, folded=True).values.values())
    images = np.random.default_rng(0).normal(size=(2, 3, *sides)).astype(np.float32)
    check_levels(graph, images, computed(graph, images))


@pytest.mark.parametrize("sides", SIDES, ids=str)
@pytest.mark.parametrize("before", ["pool", "stride"])
def test_pools_and_strides_write_folded_rows(before: str, sides: tuple[int, int]) -> None:
    check(network(before, "nothing"), sides)


@pytest.mark.parametrize("sides", SIDES[:5], ids=str)
@pytest.mark.parametrize("after", ["pool", "wide pool", "stride", "mean", "linear"])
def test_every_operation_reads_folded_rows(after: str, sides: tuple[int, int]) -> None:
    check(network("pool", after), sides)


@pytest.mark.parametrize("height", [5, 9, 13])
def test_taps_reach_beyond_the_middle_and_the_plane(height: int) -> None:
    check(network("pool", "nothing", height=height), (16, 16))


@pytest.mark.parametrize(("height", "kernel"), [(10, 3), (9, 2), (12, 5)])
def test_pools_of_planes_beside_taller_ones(height: int, kernel: int) -> None:
    """How far apart the rows of a vector are is decided by the tallest plane of the group."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 4, (kernel, 3), padding=(0, 1))
    check(nn.Sequential(first, nn.MaxPool2d(2)), (height, 8))


@pytest.mark.parametrize("aside", [9, 16, 17, 40])
def test_taps_far_aside_read_nothing_outside_the_room(aside: int) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(3, 4, 3, padding=(1, aside), dilation=(1, aside))
    check(module, (8, 8))
    placed = place(layers_of(trace(module, (3, 8, 8))), rows=True, folded=True)
    for value in placed.values.values():
        assert value.margin >= aside + 2 * value.pitch or not value.fold or not value.padded

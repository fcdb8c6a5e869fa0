"""Tests of `benchmarks/conv_weight_gradient.py` without a GPU: shapes, tilings and printed tables."""

from collections import Counter

import pytest
import torch

from benchmarks import conv_weight_gradient as script
from hypersparse.training.kernels.conv_tiling import Convolution, Tiling, key_of, tiling_of

FIRST, LAST = Convolution(64, 32, 32, 32, 32, 3, 1, 1), Convolution(64, 128, 128, 8, 8, 3, 1, 1)


def test_all_shapes_of_resnet32_are_found() -> None:
    counts, others = script.shapes_of("resnet32", batch=64, side=32)
    assert counts == {
        FIRST: 10,
        Convolution(64, 32, 64, 32, 32, 3, 2, 1): 1,
        Convolution(64, 32, 64, 32, 32, 1, 2, 0): 1,
        Convolution(64, 64, 64, 16, 16, 3, 1, 1): 9,
        Convolution(64, 64, 128, 16, 16, 3, 2, 1): 1,
        Convolution(64, 64, 128, 16, 16, 1, 2, 0): 1,
        LAST: 9,
    }
    assert others == 1  # the first layer, which has three input channels


def test_all_shapes_of_vgg19_are_found() -> None:
    counts, others = script.shapes_of("vgg19", batch=8, side=32)
    assert (sum(counts.values()), others) == (15, 1)
    assert counts[Convolution(8, 512, 512, 2, 2, 3, 1, 1)] == 4


@pytest.mark.parametrize("quick", [True, False])
def test_all_tilings_fit_and_the_default_is_first(quick: bool) -> None:
    for name in ("resnet32", "vgg19"):
        for shape in script.shapes_of(name, batch=64, side=32)[0]:
            found = script.candidates(shape, quick=quick)
            assert found[0] == script.used(tiling_of(shape), shape)
            assert len(found) == len(set(found)) > 2
            for tiling in found:
                assert tiling.fits(shape)
                assert tiling.shares == tiling.used_shares(shape)
                assert tiling.filters * tiling.channels * tiling.taps <= 128 * 32 * tiling.warps
    assert len(script.candidates(FIRST, quick=True)) < len(script.candidates(FIRST, quick=False))


def test_the_table_sums_over_fully_measured_networks() -> None:
    slow = script.used(tiling_of(FIRST), FIRST)
    fast = Tiling(32, 32, 3, block=64, shares=171, warps=2, stages=1)
    last = script.used(tiling_of(LAST), LAST)
    rows = [script.GradientTimes(FIRST, 19.0, {slow: 9.0, fast: 8.0}), script.GradientTimes(LAST, 5.0, {last: 6.0})]
    counts = {
        "one": Counter({FIRST: 10, LAST: 2}),
        "two": Counter({FIRST: 1, Convolution(1, 16, 16, 1, 1, 1, 1, 0): 1}),
    }
    lines = list(script.table(rows, counts))
    assert lines[2] == "| 32->32 3x3 at 32x32 | 10 | 1 | 19.0 | 9.0 | 8.0 | 32x32x3, 171 x 64, 2 warps, 1 stages |"
    assert lines[-1] == "| one | 200 | 102 | 92 | 90 |"
    assert not any(line.startswith("| two |") for line in lines)
    assert len({line.count("|") for line in lines[:4]}) == 1


def test_printed_python_lines_form_the_table_of_tilings() -> None:
    fast, slow = tiling_of(FIRST), tiling_of(LAST)
    rows = [script.GradientTimes(FIRST, 19.0, {fast: 8.0}), script.GradientTimes(LAST, 5.0, {slow: 6.0})]
    table = eval("{" + "\n".join(script.entries(rows)) + "\n}", {"Tiling": Tiling})
    assert table == {key_of(FIRST): fast, key_of(LAST): None}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_exits_with_a_message() -> None:
    with pytest.raises(SystemExit, match="needs a CUDA device, and none was found"):
        script.main(["--quick", "--models", "resnet8"])

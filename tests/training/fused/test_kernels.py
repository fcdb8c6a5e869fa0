"""The Triton kernels of fused networks: as plain Python here, and on a GPU."""

import json
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from hypersparse.models.resnet import resnet
from hypersparse.models.vgg import vgg
from hypersparse.training.fused.network import activation_sizes, convolution_of
from hypersparse.training.fused.trace import trace_network
from hypersparse.training.kernels.conv_tiling import Convolution
from tests.conftest import ROOT
from tests.training.fused.compare_operations import SMALL, errors, inputs_of, results, runs_of

NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
BF16 = 0.01  # relative; rounding alone makes 0.002 to 0.004


def shapes() -> list[Convolution]:
    """All convolutions of the paper's networks at batch 64."""
    found: dict[Convolution, None] = {}
    for model in (resnet(32, shape=(3, 32, 32), classes=10), vgg(19, shape=(3, 32, 32), classes=10)):
        traced = trace_network(model, (3, 32, 32))
        assert traced is not None
        sizes = activation_sizes(traced.activations, 64, (3, 32, 32))
        for activation in traced.activations:
            for branch in activation.branches:
                if branch.conv is not None:
                    found[convolution_of(branch.conv, 64, sizes[branch.source])] = None
    return list(found)


@NEEDS_TRITON
@pytest.mark.slow
def test_as_plain_python_they_agree_with_their_twins() -> None:
    command = [sys.executable, "-m", "tests.training.fused.compare_operations"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == SMALL.keys()
    assert {name: each for name, each in found.items() if not max(each.values()) < 1e-5} == {}


@NEEDS_TRITON
@NEEDS_GPU
@pytest.mark.gpu
@pytest.mark.parametrize("convolution", shapes(), ids=str)
def test_on_a_gpu_they_agree_with_their_twins(convolution: Convolution) -> None:
    from hypersparse.training.fused.triton_operations import TritonOperations

    torch.manual_seed(0)
    like = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    found = errors(TritonOperations(), convolution, runs=2, like=like)
    assert {name: error for name, error in found.items() if not error < BF16} == {}


@NEEDS_TRITON
@NEEDS_GPU
@pytest.mark.gpu
@pytest.mark.parametrize("convolution", shapes()[:8], ids=str)
def test_a_run_has_the_same_bits_alone_and_among_others(convolution: Convolution) -> None:
    from hypersparse.training.fused.triton_operations import TritonOperations

    torch.manual_seed(0)
    like = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    made, norms = inputs_of(convolution, runs=3, like=like)

    def of(runs: slice) -> list[Tensor]:
        mine = {name: value[runs].contiguous() for name, value in made.items()}
        return [
            value
            for _, value in results(TritonOperations(), convolution, mine, [runs_of(each, runs) for each in norms])
        ]

    together = of(slice(None))
    for run in range(3):
        for alone, among in zip(of(slice(run, run + 1)), together, strict=True):
            assert torch.equal(alone[0], among[run])


def test_the_paper_s_networks_have_no_other_shapes() -> None:
    assert len(shapes()) == 17
    assert all(first != second for first, second in pairwise(shapes()))

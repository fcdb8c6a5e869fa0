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
from hypersparse.training.fused import tilings
from hypersparse.training.fused.cudnn_operations import CudnnOperations
from hypersparse.training.fused.network import activation_sizes, convolution_of
from hypersparse.training.fused.operations import Operations, PlainOperations
from hypersparse.training.fused.trace import trace_network
from hypersparse.training.kernels.conv_tiling import Convolution
from tests.conftest import ROOT
from tests.training.fused.compare_operations import SMALL, errors, inputs_of, network_gradients, results, runs_of

NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
BF16 = 0.01  # relative; rounding alone makes 0.002 to 0.004


@pytest.fixture(params=["Triton", "cuDNN"])
def operations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Operations:
    """The kernels, for all convolutions or for none."""
    from hypersparse.training.fused.triton_operations import TritonOperations

    if request.param == "Triton":
        return TritonOperations()
    monkeypatch.setattr(tilings, "FUSED_PAIRS", 0)
    return CudnnOperations(TritonOperations())


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
    assert found.keys() > {*SMALL, "VGG", "ResNet", "optimizer"}
    assert {name: each for name, each in found.items() if not max(each.values()) < 1e-5} == {}


@NEEDS_TRITON
@NEEDS_GPU
@pytest.mark.gpu
@pytest.mark.parametrize("convolution", shapes(), ids=str)
def test_on_a_gpu_they_agree_with_their_twins(convolution: Convolution, operations: Operations) -> None:
    torch.manual_seed(0)
    like = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    found = errors(operations, convolution, runs=2, like=like)
    assert {name: error for name, error in found.items() if not error < BF16} == {}


@NEEDS_TRITON
@NEEDS_GPU
@pytest.mark.gpu
@pytest.mark.parametrize("convolution", [*shapes()[:8], *shapes()[-3:]], ids=str)
def test_a_run_has_the_same_bits_alone_and_among_others(convolution: Convolution, operations: Operations) -> None:
    torch.manual_seed(0)
    like = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    made, norms = inputs_of(convolution, runs=3, like=like)

    def of(runs: slice) -> list[Tensor]:
        mine = {name: value[runs].contiguous() for name, value in made.items()}
        return [value for _, value in results(operations, convolution, mine, [runs_of(each, runs) for each in norms])]

    together = of(slice(None))
    for run in range(3):
        for alone, among in zip(of(slice(run, run + 1)), together, strict=True):
            assert torch.equal(alone[0], among[run])


@NEEDS_TRITON
@NEEDS_GPU
@pytest.mark.gpu
@pytest.mark.parametrize("side", [32, 64])
def test_vgg_with_large_layers_by_cudnn(side: int) -> None:
    """As exact as plain operations in bf16, and the same bits again, alone and among others."""
    from hypersparse.training.fused.triton_operations import TritonOperations

    torch.manual_seed(0)
    model = vgg(19, shape=(3, side, side), classes=10).cuda().to(memory_format=torch.channels_last).train()
    images = torch.randn(64, 3, side, side, device="cuda")
    halves, mixed = images.bfloat16(), CudnnOperations(TritonOperations())
    exact = dict(network_gradients(PlainOperations(), model, images))
    plain = dict(network_gradients(PlainOperations(), model, halves))
    found = dict(network_gradients(mixed, model, halves))
    for name, expected in exact.items():
        apart, usual = (float((each[name].float() - expected.float()).norm()) for each in (found, plain))
        assert apart <= 1.5 * usual + 0.01 * float(expected.float().norm()), name  # the classifier's are 0
    again, among = (dict(network_gradients(mixed, model, halves, runs=runs)) for runs in (1, 3))
    for name, value in found.items():
        assert torch.equal(value, again[name]), name
        last = among[name][-1:] if name == "activations" else among[name]
        assert torch.equal(value, last), name


def test_the_paper_s_networks_have_no_other_shapes() -> None:
    assert len(shapes()) == 17
    assert all(first != second for first, second in pairwise(shapes()))

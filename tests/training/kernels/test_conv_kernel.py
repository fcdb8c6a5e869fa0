"""The kernel for gradients of convolution weights: as plain Python, compiled for an H200, and on a GPU."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from hypersparse.training.kernels.conv_tiling import Convolution, tiling_of
from tests.conftest import ROOT

NEEDS_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
RESNET32 = [  # at batch 64
    Convolution(64, 32, 32, 32, 32, 3, 1, 1),
    Convolution(64, 32, 64, 32, 32, 3, 2, 1),
    Convolution(64, 32, 64, 32, 32, 1, 2, 0),
    Convolution(64, 64, 64, 16, 16, 3, 1, 1),
    Convolution(64, 64, 128, 16, 16, 3, 2, 1),
    Convolution(64, 64, 128, 16, 16, 1, 2, 0),
    Convolution(64, 128, 128, 8, 8, 3, 1, 1),
]
OTHERS = [
    Convolution(64, 512, 512, 2, 2, 3, 1, 1),
    Convolution(64, 64, 64, 32, 32, 3, 1, 1),
    Convolution(64, 128, 256, 8, 8, 3, 1, 1),
    Convolution(50, 16, 48, 9, 7, 3, 2, 0),
    Convolution(37, 160, 160, 5, 5, 3, 1, 1),
]


@NEEDS_TRITON
@pytest.mark.slow
def test_as_plain_python_it_agrees_with_its_twin() -> None:
    command = [sys.executable, "-m", "tests.training.interpreted"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) == 17
    assert {name: error for name, error in errors.items() if not error < 1e-5} == {}


@NEEDS_TRITON
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("convolution", [RESNET32[0], RESNET32[2], RESNET32[6]], ids=str)
def test_it_compiles_for_an_h200(convolution: Convolution) -> None:
    import triton
    from triton.backends.compiler import GPUTarget

    from hypersparse.training.kernels.conv_kernel import _sum_shares, constants

    tiling = tiling_of(convolution)
    constant = constants(convolution, tiling)
    options = {name: constant.pop(name) for name in ("num_warps", "num_stages")}
    types = {"images": "*bf16", "gradients": "*bf16", "sums": "*fp32", "pixels": "i32", "blocks": "i32"}
    names = _sum_shares.arg_names
    assert set(names) == set(types) | set(constant)
    source = triton.compiler.ASTSource(
        _sum_shares,
        {name: types.get(name, "constexpr") for name in names},
        {(names.index(name),): value for name, value in constant.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in ("images", "gradients", "sums")},
    )
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    # Blocks are fetched ahead 16 bytes at a time, and multiplied on tensor cores.
    assert ("cp.async.cg.shared.global" in text) == (tiling.stages > 1)
    assert ("wgmma.mma_async" if tiling.filters >= 64 else "mma.sync") in text


def tensors(convolution: Convolution) -> tuple[Tensor, Tensor]:
    sides, outs = (convolution.height, convolution.width), (convolution.out_height, convolution.out_width)
    images = torch.randn(convolution.batch, convolution.channels, *sides, device="cuda")
    gradients = torch.randn(convolution.batch, convolution.filters, *outs, device="cuda")
    last = torch.channels_last
    return images.bfloat16().contiguous(memory_format=last), gradients.bfloat16().contiguous(memory_format=last)


@pytest.mark.gpu
@pytest.mark.parametrize("convolution", RESNET32 + OTHERS, ids=str)
def test_on_a_gpu_it_agrees_with_cudnn_in_float32(convolution: Convolution) -> None:
    from hypersparse.training.kernels.conv_kernel import weight_gradient

    images, gradients = tensors(convolution)
    found = weight_gradient(images, gradients, convolution, tiling_of(convolution))
    again = weight_gradient(images, gradients, convolution, tiling_of(convolution))
    assert torch.equal(found, again)
    assert found.dtype == torch.bfloat16
    assert found.is_contiguous(memory_format=torch.channels_last)
    with torch.backends.cudnn.flags(allow_tf32=False):
        expected = torch.nn.grad.conv2d_weight(
            images.float(), found.shape, gradients.float(), stride=convolution.stride, padding=convolution.padding
        )
    # bf16 has 8 bits: what is right but rounded is off by at most 2^-9 of itself.
    assert torch.allclose(found.float(), expected, rtol=2**-8, atol=float(1e-4 * expected.abs().max()))


@pytest.mark.gpu
def test_on_a_gpu_it_is_captured_without_waiting() -> None:
    from hypersparse.training.kernels.conv_kernel import weight_gradient

    convolution = RESNET32[0]
    images, gradients = tensors(convolution)
    expected = weight_gradient(images, gradients, convolution, tiling_of(convolution))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = weight_gradient(images, gradients, convolution, tiling_of(convolution))
    graph.replay()
    assert torch.equal(found, expected)

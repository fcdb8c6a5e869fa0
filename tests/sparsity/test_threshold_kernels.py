"""The Triton kernels against their PyTorch twins; they need a GPU."""

import pytest
import torch
from torch import Tensor

from hypersparse.sparsity import penalties
from hypersparse.sparsity.mask import kth_largest

pytestmark = pytest.mark.gpu


def vectors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(count: int) -> Tensor:
        return torch.randn(count, generator=generator)

    return {
        "one": torch.tensor([-2.0]),
        "normal": 0.05 * normal(1_000_003),
        "ties": torch.randint(-3, 4, (90_001,), generator=generator).float(),
        "too small for the coarse digit": 1e-30 * normal(5000),
        "too large for the coarse digit": 1e6 * normal(5000),
        "of all sizes": normal(90_000) * torch.exp(8 * normal(90_000)),
        "mostly zeros": torch.cat([torch.zeros(40_000), normal(10)]),
    }


@pytest.mark.parametrize("name", vectors())
@pytest.mark.parametrize("share", [0.0, 0.002, 0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("sampled", [2**20, 1000])  # with so few the sample misleads now and then
def test_kernels_agree_with_their_twins(name: str, share: float, sampled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from hypersparse.sparsity import threshold_kernels

    monkeypatch.setattr(threshold_kernels, "SAMPLED", sampled)
    vector = vectors()[name].cuda()
    keep = max(1, round(share * vector.numel()))
    assert threshold_kernels.kth_largest(vector, keep) == kth_largest(vector.abs(), keep)
    strength = torch.tensor(0.5, device="cuda")
    fast, plain = (
        threshold_kernels.hypersparse_grad(vector, keep, strength),
        0.5 * penalties._wide_grad(vector, keep, None),
    )
    assert torch.allclose(fast, plain, rtol=1e-4, atol=1e-6 * float(plain.abs().max()))
    assert torch.equal(fast == 0, plain == 0) or name != "mostly zeros"
    assert torch.equal(fast, threshold_kernels.hypersparse_grad(vector, keep, strength))  # the same bits again


def test_the_penalty_uses_them_in_float32() -> None:
    vector = (0.05 * torch.randn(10_000)).cuda().requires_grad_()
    (penalties.hypersparse(vector, 200) * 3).backward()
    expected = 3 * penalties._wide_grad(vector.detach(), 200, None)
    assert vector.grad is not None
    assert torch.allclose(vector.grad, expected, rtol=1e-4, atol=1e-6)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        penalties.hypersparse_grad(vector, 200)
        torch.cuda.synchronize()
    assert any("_write_gradient" in event.key for event in profile.key_averages())


def test_other_types_take_the_twin() -> None:
    vector = torch.randn(1000).cuda()
    for dtype in (torch.float64, torch.bfloat16):
        grad = penalties.hypersparse_grad(vector.to(dtype), 20)
        assert grad.dtype == dtype
        assert torch.allclose(grad.double(), penalties.hypersparse_grad(vector, 20).double(), rtol=2e-2, atol=2e-2)

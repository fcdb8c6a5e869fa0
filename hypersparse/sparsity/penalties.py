"""Penalties that shrink weights: functions of one vector of all prunable weights.

Each returns a scalar that can be added to a loss. They are computed in float32 or better, whatever
the weights are stored in.
"""

from math import atanh, sqrt
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from hypersparse.distributed.shards import ShardGroup
from hypersparse.sparsity.mask import kth_largest
from hypersparse.sparsity.triton_import import import_if_triton

SHARPEST_BEND = atanh(1 / sqrt(3))  # where tanh' bends most; 0.6585 in the paper


def l1(vector: Tensor) -> Tensor:
    """Sum of |w|.

    >>> l1(torch.tensor([1.0, -2.0]))
    tensor(3.)
    """
    return _wide(vector).abs().sum()


def l2(vector: Tensor) -> Tensor:
    """Sum of w squared (not halved, not the root: as in the authors' code).

    >>> l2(torch.tensor([1.0, -2.0]))
    tensor(5.)
    """
    return _wide(vector).square().sum()


def hypersparse(vector: Tensor, keep: int, *, over: ShardGroup | None = None) -> Tensor:
    """The HyperSparse penalty (eq. 2): shrinks all weights but the `keep` largest.

    Its value is 0 by construction; only its gradient acts. `over` are the ranks that have a part of the vector each.
    """
    value: Tensor = _HyperSparse.apply(vector, keep, over)  # type: ignore[no-untyped-call]
    return value


def hypersparse_grad(vector: Tensor, keep: int, *, over: ShardGroup | None = None) -> Tensor:
    """Gradient of `hypersparse` in closed form (eq. 3, with the factor s that the paper leaves out).

    `sign(w) * s * (1 - tanh(s|w|)^2) * sum|w| / sum tanh(s|w|)`. The factor s puts the sharpest bend of
    tanh' at the smallest kept weight. The gradient is at least 1 near zero, 2/3 of that at w_kappa, 0 far out,
    and 0 for weights that are exactly zero.
    """
    strength = torch.ones((), dtype=_wide(vector[:0]).dtype, device=vector.device)
    return _strong_grad(vector.detach(), keep, strength, over)


def _strong_grad(vector: Tensor, keep: int, strength: Tensor, over: ShardGroup | None) -> Tensor:
    """The gradient times a strength; rounded once, after it: alone it may be too large for float16."""
    fits = vector.is_cuda and vector.dtype == torch.float32
    if fits and over is None and (kernels := _kernels()) and vector.numel() < kernels.MOST:
        strong: Tensor = kernels.hypersparse_grad(vector.contiguous(), keep, strength)
        return strong
    return (strength * _wide_grad(vector, keep, over)).to(vector.dtype)


@import_if_triton
def _kernels() -> ModuleType:
    """The same functions as Triton kernels."""
    from hypersparse.sparsity import threshold_kernels

    return threshold_kernels


def _wide_grad(vector: Tensor, keep: int, over: ShardGroup | None) -> Tensor:
    wide = _wide(vector)
    magnitude = wide.abs()
    limits = torch.finfo(wide.dtype)
    # Fewer than `keep` weights may differ from zero; then w_kappa is 0 and s would be infinite.
    w_kappa = kth_largest(magnitude, keep) if over is None else over.kth_largest(magnitude, keep)
    s = SHARPEST_BEND / w_kappa.clamp_min(limits.tiny)
    t = torch.tanh(s * magnitude)
    total, steep = magnitude.sum(), t.sum()
    if over is not None:
        total, steep = over.sum(torch.stack([total, steep]))
    height = (s * total / steep.clamp_min(limits.tiny)).clamp_max(limits.max)
    return wide.sign() * (1 - t * t) * height


class _HyperSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor, keep: int, over: ShardGroup | None) -> Tensor:
        ctx.save_for_backward(vector)
        ctx.keep, ctx.over = keep, over
        return torch.zeros((), dtype=_wide(vector[:0]).dtype, device=vector.device)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (vector,) = ctx.saved_tensors
        return _strong_grad(vector, ctx.keep, upstream, ctx.over), None, None


def _wide(vector: Tensor) -> Tensor:
    return vector.float() if vector.dtype in (torch.float16, torch.bfloat16) else vector
